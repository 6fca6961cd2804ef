// Pictures of every page, for the README and the docs: a real server, two trainings that it ran, a search that ended.
import { spawn } from 'node:child_process';
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Desk, PROGRAM, browser, endAll } from './desk.js';

const LARGEST = 200 * 1024;
const [folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const chrome = await browser();
const desk = new Desk();
await desk.start();
const wide = { viewport: { width: 1280, height: 860 } };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const quickstart = (await desk.api('/recipes')).find((recipe) => recipe.name === 'quickstart').text;

// A search over the quickstart, on less data.
function search() {
  const recipe = join(desk.folder, 'regimes.toml');
  writeFileSync(recipe, `${quickstart}\n[search]\nobjective = "accuracy"\ntrials = 12\nseed = 1\n"train.optimizer.lr" = { low = 1e-4, high = 1e-2, log = true }\n"train.effective_batch" = { choices = [16, 32, 64] }\n"model.dropout" = { low = 0.0, high = 0.3 }\n`);
  const flags = ['tune', recipe, '--study', 'regimes', '--studies', join(desk.folder, 'studies'), '--set', 'data.samples=3000', '--set', 'search.pruner="none"'];
  return new Promise((resolve, reject) => {
    let errors = '';
    const child = spawn(PROGRAM, flags, { stdio: ['ignore', 'ignore', 'pipe'] });
    child.stderr.on('data', (text) => { errors += text; });
    child.on('exit', (code) => (code === 0 ? resolve() : reject(new Error(`plimsoll tune ended with ${code}: ${errors.slice(-2000)}`))));
  });
}

async function train(set = []) {
  const { id } = await desk.api('/runs', { recipe: quickstart, name: 'quickstart', set });
  return id;
}

async function isOver(id) {
  for (;;) {
    const { state } = await desk.api(`/runs/${id}`);
    if (state === 'finished') return;
    if (['failed', 'interrupted'].includes(state)) throw new Error(`${id} is ${state}`);
    await pause(1000);
  }
}

async function picture(name, path, { options = wide, before = async () => {} } = {}) {
  const context = await chrome.newContext({ locale: 'en-US', colorScheme: 'light', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  await page.goto(`${desk.home}#/${path}`);
  await page.waitForSelector('main h1');
  await before(page);
  await pause(800);
  const file = join(folder, `${name}.png`);
  await page.screenshot({ path: file });
  await context.close();
  const { size } = statSync(file);
  if (size > LARGEST) throw new Error(`${name}.png has ${size} bytes`);
  console.log(`${name}.png ${Math.round(size / 1024)} KB`);
}

try {
  const planned = async (page) => { await page.locator('.verdict.good, .verdict.bad').waitFor(); };
  const drawn = async (page) => { await page.locator('.uplot canvas').first().waitFor(); };
  await picture('new', 'new?recipe=encoder&device=rtx-4090', { before: planned });
  await picture('new-does-not-fit', 'new?recipe=flan-t5-xl&device=rtx-3060-12gb', { before: async (page) => { await planned(page); await page.locator('.rungs li').first().waitFor(); } });
  await picture('phone-ru', 'new?recipe=quickstart', { options: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, locale: 'ru-RU' }, before: planned });
  await search();
  await picture('study', 'studies/regimes', { before: drawn });
  const [one, two] = [await train(), await train(['train.effective_batch=128'])];
  await picture('queue', 'queue');
  await isOver(one);
  await picture('run', `run/${one}`, { before: drawn });
  await picture('run-dark', `run/${one}`, { options: { ...wide, colorScheme: 'dark' }, before: drawn });
  await picture('map', `run/${one}`, { before: async (page) => { const map = page.locator('details', { hasText: 'One step, buffer by buffer' }); await map.locator('summary').click(); await map.locator('canvas').hover({ position: { x: 120, y: 200 } }); await map.scrollIntoViewIfNeeded(); } });
  await isOver(two);
  await picture('runs', 'runs');
  await picture('compare', `compare?run=${one}&run=${two}`, { before: drawn });
  await picture('devices', 'devices');
  await picture('doctor', 'doctor', { before: async (page) => {
    await page.getByLabel('Error or log').fill('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.69 GiB. GPU 0 has a total capacity of 12.00 GiB of which 0 bytes is free. Of the allocated memory 10.83 GiB is allocated by PyTorch, and 2.02 GiB is reserved by PyTorch but unallocated.');
    await page.getByRole('button', { name: 'What does it mean?' }).click();
    await page.getByText('What the error says').waitFor();
  } });
} finally {
  await chrome.close();
  await endAll();
}
