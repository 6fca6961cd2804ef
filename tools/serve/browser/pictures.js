// Pictures of every page, for the README and the docs.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Desk, browser } from './desk.js';

const [folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const chrome = await browser();
const desk = new Desk();
desk.seed(4);
await desk.start();
const { id } = await desk.api('/runs', { recipe: (await desk.api('/recipes')).find((recipe) => recipe.name === 'quickstart').text, name: 'quickstart' });
const wide = { viewport: { width: 1280, height: 860 } };

async function picture(name, path, { options = wide, before = async () => {} } = {}) {
  const context = await chrome.newContext({ locale: 'en-US', colorScheme: 'light', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(90_000);
  await page.goto(`${desk.home}#/${path}`);
  await page.waitForSelector('main h1');
  await before(page);
  await page.waitForTimeout(800);
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await context.close();
  console.log(`${name}.png`);
}

const planned = async (page) => { await page.locator('.verdict.good, .verdict.bad').waitFor(); };
await picture('new', 'new?recipe=encoder&device=rtx-4090', { before: planned });
await picture('new-does-not-fit', 'new?recipe=flan-t5-xl&device=rtx-3060-12gb', { before: async (page) => { await planned(page); await page.locator('.rungs li').first().waitFor(); } });
await picture('map', 'new?recipe=quickstart', { before: async (page) => { await planned(page); await page.getByText('Memory over one step').click(); await page.locator('canvas.map').hover({ position: { x: 120, y: 200 } }); } });
for (;;) { const run = await desk.api(`/runs/${id}`); if (run.step > 25 || !['starting', 'running', 'queued'].includes(run.state)) break; await new Promise((resolve) => setTimeout(resolve, 1000)); }
await picture('run', `run/${id}`, { before: async (page) => { await page.locator('.uplot canvas').first().waitFor(); } });
await picture('run-dark', `run/${id}`, { options: { ...wide, colorScheme: 'dark' }, before: async (page) => { await page.locator('.uplot canvas').first().waitFor(); } });
await picture('runs', 'runs');
await picture('compare', 'compare?run=seed-1&run=seed-2&run=seed-3', { before: async (page) => { await page.locator('.uplot canvas').first().waitFor(); } });
await picture('queue', 'queue');
await picture('devices', 'devices');
await picture('doctor', 'doctor', { before: async (page) => {
  await page.getByLabel('Error or log').fill('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.69 GiB. GPU 0 has a total capacity of 12.00 GiB of which 0 bytes is free. Of the allocated memory 10.83 GiB is allocated by PyTorch, and 2.02 GiB is reserved by PyTorch but unallocated.');
  await page.getByRole('button', { name: 'What does it mean?' }).click();
  await page.getByText('What the error says').waitFor();
} });
await picture('phone-ru', 'new?recipe=quickstart', { options: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 1, isMobile: true, hasTouch: true, locale: 'ru-RU' }, before: planned });
await desk.end();
await chrome.close();
