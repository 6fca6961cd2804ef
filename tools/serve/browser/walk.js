// Walks through the page as a person would: first visit, a training from start to export, both languages, a server that
// dies, keyboard alone, a phone, and what screen readers need.
import assert from 'node:assert/strict';
import AxeBuilder from '@axe-core/playwright';
import { Desk, browser } from './desk.js';

const WAIT = 90_000;
const chrome = await browser();
const failures = [];
const only = process.argv.slice(2);

async function test(name, work) {
  if (only.length && !only.some((part) => name.includes(part))) return;
  const start = Date.now();
  try { await work(); console.log(`ok   ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`); } catch (error) { failures.push(name); console.log(`FAIL ${name}\n${error.stack || error}`); }
}

// A page that reports every error of its scripts and every refused resource.
async function open(desk, options = {}, path = '') {
  const context = await chrome.newContext({ locale: 'en-US', permissions: ['clipboard-read', 'clipboard-write'], ...options });
  const page = await context.newPage();
  page.problems = [];
  page.on('pageerror', (error) => page.problems.push(String(error)));
  page.on('console', (message) => { if (message.type() === 'error' && !/ERR_CONNECTION|Failed to load resource/.test(message.text())) page.problems.push(message.text()); });
  page.setDefaultTimeout(WAIT);
  await page.goto(desk.home + path);
  await page.waitForSelector('main h1');
  return page;
}

async function isClean(page, what) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const serious = violations.filter((each) => ['serious', 'critical'].includes(each.impact));
  assert.deepEqual(serious.map((each) => `${what}: ${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 140)).join(' | ')}`), []);
}

async function drag(page, name, steps) {
  const slider = page.locator(`[data-slider=${name}]`);
  const box = await slider.boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.5, y);
  await page.mouse.down();
  for (const share of steps) await page.mouse.move(box.x + box.width * share, y, { steps: 4 });
  await page.mouse.up();
}

const desk = new Desk();
await desk.start();

await test('first visit, form, planner answers while dragging', async () => {
  const page = await open(desk);
  await page.getByText('No runs yet').waitFor();
  await page.getByRole('link', { name: 'Try the quickstart' }).click();
  await page.getByText('Ready to train with batch 64').waitFor();
  let answers = 0;
  page.on('response', (response) => { if (response.url().endsWith('/plan')) answers += 1; });
  await drag(page, 'batch', [0.6, 0.7, 0.5, 0.8]);
  await page.waitForFunction(() => !/batch 64$/.test(document.querySelector('.verdict strong').textContent));
  assert.ok(answers >= 2, `${answers} answers while dragging`);
  const batch = await page.locator('[data-field=batch]').inputValue();
  await page.getByText('Recipe as text').click();
  assert.match(await page.locator('textarea').first().inputValue(), new RegExp(`effective_batch = ${batch}\\b`));
  // The text is the other view of the same thing.
  const text = await page.locator('textarea').first().inputValue();
  await page.locator('textarea').first().fill(text.replace(/effective_batch = \d+/, 'effective_batch = 48'));
  await page.getByText('Ready to train with batch 48').waitFor();
  assert.equal(await page.locator('[data-field=batch]').inputValue(), '48');
  await page.getByRole('button', { name: 'Copy as command' }).click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /effective_batch = 48[\s\S]*plimsoll train quickstart.toml --device auto/);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('what does not fit cannot be started, and a rung is one click', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train').waitFor();
  const recipe = (await desk.api('/recipes')).find((each) => each.name === 'quickstart').text;
  const plan = await desk.api('/plan', { recipe, device: 'cpu', quick: true });
  const budget = Math.round((plan.reserve_bytes + 0.6 * plan.arena_bytes) / 2 ** 20);
  await page.getByPlaceholder('auto', { exact: true }).fill(`${budget}MiB`);
  await page.getByText('It does not fit').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Start training' }).isDisabled());
  const rung = page.locator('.rungs li', { has: page.locator('.badge.good') }).first();
  await rung.getByRole('button', { name: 'Take it' }).click();
  await page.getByText('Ready to train').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Start training' }).isEnabled());
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('a wrong recipe says line and hint', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train').waitFor();
  await page.getByText('Recipe as text').click();
  const text = await page.locator('textarea').first().inputValue();
  await page.locator('textarea').first().fill(text.replace('epochs = 2', 'epoch = 2'));
  await page.getByText('This recipe cannot be read').waitFor();
  await page.getByText(/line \d+/).waitFor();
  await page.context().close();
});

let run;
await test('start, live curves, stop, resume, compare, export', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train with batch 64').waitFor();
  await page.getByRole('button', { name: 'Start training' }).click();
  await page.waitForURL(/#\/run\//);
  run = decodeURIComponent(page.url().split('#/run/')[1]);
  await page.locator('h1', { hasText: run }).waitFor();
  await page.locator('.badge.running').waitFor();
  await page.locator('.uplot canvas').first().waitFor();
  const step = async () => Number((await page.locator('.tile .step').first().textContent()).replace(/\D/g, ''));
  await page.waitForFunction(() => Number(document.querySelector('.tile .step').textContent.replace(/\D/g, '')) > 2);
  const before = await step();
  await page.waitForFunction((least) => Number(document.querySelector('.tile .step').textContent.replace(/\D/g, '')) > least, before);
  await page.getByText('ready to train').first().waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.badge.interrupted').waitFor();
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.locator('.badge.running').waitFor();
  const stopped = await step();
  await page.waitForFunction((least) => Number(document.querySelector('.tile .step').textContent.replace(/\D/g, '')) > least, stopped);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.badge.interrupted').waitFor();
  await page.locator('section', { hasText: 'Checkpoints' }).locator('tbody tr').first().waitFor();
  await page.getByText('One step, buffer by buffer').click();
  await page.locator('canvas.map').waitFor();
  await page.locator('canvas.map').hover({ position: { x: 30, y: 280 } });
  await page.locator('.map-note strong').waitFor();
  await page.getByRole('button', { name: 'Export the model' }).click();
  await page.getByRole('link', { name: 'model.safetensors' }).waitFor();
  assert.ok(desk.files(run, 'export').includes('model.safetensors'));
  desk.copyRun(run, 'twin-1');
  await page.goto(`${desk.home}#/compare?run=${encodeURIComponent(run)}&run=twin-1`);
  await page.getByText('Their settings are the same').waitFor();
  await page.locator('.uplot canvas').first().waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('the server dies with the page open and comes back: it goes on by itself', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train').waitFor();
  await page.getByRole('button', { name: 'Start training' }).click();
  await page.waitForURL(/#\/run\//);
  await page.locator('.badge.running').waitFor();
  const step = () => page.evaluate(() => Number(document.querySelector('.tile .step').textContent.replace(/\D/g, '')));
  await page.waitForFunction(() => Number(document.querySelector('.tile .step').textContent.replace(/\D/g, '')) > 1);
  await desk.kill('SIGKILL');
  await page.locator('#banner > div').waitFor();
  const before = await step();
  await desk.start();
  await page.locator('#banner > div').waitFor({ state: 'detached' });
  await page.waitForFunction((least) => Number(document.querySelector('.tile .step').textContent.replace(/\D/g, '')) > least, before);
  // The new server knows the child of the old one, and can stop it.
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.badge.interrupted').waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('Russian, from the browser and by the button', async () => {
  const page = await open(desk, { locale: 'ru-RU' }, '#/new?recipe=quickstart');
  await page.getByText('Готово к обучению с batch_size=64').waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.lang), 'ru');
  await page.getByRole('button', { name: 'English' }).click();
  await page.getByText('Ready to train with batch 64').waitFor();
  await page.reload();
  await page.getByText('Ready to train with batch 64').waitFor();
  await page.context().close();
});

await test('keyboard alone starts a training and stops it', async () => {
  const page = await open(desk);
  const press = async (key, until) => { for (let n = 0; n < 80; n += 1) { if (await page.evaluate(until)) return; await page.keyboard.press(key); } throw new Error(`${key} never came to ${until}`); };
  await page.keyboard.press('Tab');
  assert.match(await page.evaluate(() => document.activeElement.textContent), /Skip/);
  await press('Tab', () => document.activeElement.getAttribute('href') === '#/new');
  await page.keyboard.press('Enter');
  await page.getByText('Ready to train').waitFor();
  await press('Tab', () => document.activeElement.dataset?.slider === 'batch');
  const before = await page.locator('[data-field=batch]').inputValue();
  for (let n = 0; n < 30; n += 1) await page.keyboard.press('ArrowLeft');
  await page.waitForFunction((was) => document.querySelector('[data-field=batch]').value !== was, before);
  await page.waitForFunction(() => !document.querySelector('.verdict').classList.contains('busy'));
  await press('Shift+Tab', () => document.activeElement.textContent === 'Start training');
  await page.keyboard.press('Enter');
  await page.waitForURL(/#\/run\//);
  await page.locator('.badge.running').waitFor();
  await press('Tab', () => document.activeElement.textContent === 'Stop');
  await page.keyboard.press('Enter');
  await page.locator('.badge.interrupted').waitFor();
  await page.context().close();
});

await test('a phone shows every page without scrolling sideways', async () => {
  const page = await open(desk, { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true });
  for (const path of ['runs', 'new', 'queue', `compare?run=${encodeURIComponent(run || '')}`, 'studies', 'devices', 'doctor', `run/${encodeURIComponent(run || '')}`]) {
    await page.goto(`${desk.home}#/${path}`);
    await page.waitForSelector('main h1');
    await page.waitForTimeout(300);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 1, `${path} is ${wide} pixels too wide`);
  }
  await page.context().close();
});

await test('every page is fit for screen readers, light and dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(desk, { colorScheme });
    for (const path of ['runs', 'new?recipe=quickstart', 'queue', `compare?run=${encodeURIComponent(run || '')}`, 'studies', 'devices', 'doctor', 'docs', `run/${encodeURIComponent(run || '')}`]) {
      await page.goto(`${desk.home}#/${path}`);
      await page.waitForSelector('main h1');
      await page.waitForTimeout(500);
      await isClean(page, `${path} ${colorScheme}`);
    }
    await page.context().close();
  }
});

await test('a thousand runs and a hundred thousand points stay smooth', async () => {
  const many = new Desk();
  many.seed(1);
  for (let n = 2; n <= 1000; n += 1) many.copyRun('seed-1', `seed-${n}`);
  await many.start();
  const page = await open(many);
  await page.getByText('1,000 runs').or(page.getByText('1000 runs')).waitFor();
  await page.getByLabel('Find a run').fill('seed-77');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length < 20);
  const { writeFileSync, readFileSync } = await import('node:fs');
  const { join } = await import('node:path');
  const file = join(many.runs, 'seed-1', 'events.jsonl');
  const line = JSON.parse(readFileSync(file, 'utf8').split('\n')[1]);
  writeFileSync(file, Array.from({ length: 100_000 }, (_, at) => JSON.stringify({ ...line, step: at + 1, loss: 1 / (1 + at / 1000) })).join('\n') + '\n');
  await page.goto(`${many.home}#/run/seed-1`);
  await page.locator('.uplot canvas').first().waitFor();
  const slowest = await page.evaluate(() => new Promise((resolve) => { let last = performance.now(); let worst = 0; let frames = 0; const tick = (now) => { worst = Math.max(worst, now - last); last = now; frames += 1; if (frames < 60) requestAnimationFrame(tick); else resolve(worst); }; requestAnimationFrame(tick); }));
  console.log(`     slowest of 60 frames ${slowest.toFixed(0)} ms`);
  assert.ok(slowest < 1000, `${slowest} ms`);
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await many.end();
});

await test('a token is asked for, the link lets in, and scripts in names do nothing', async () => {
  const shut = new Desk(['--token', 'env:PLIMSOLL_TEST_TOKEN']);
  process.env.PLIMSOLL_TEST_TOKEN = 'a secret for the browser tests';
  shut.seed(1);
  shut.copyRun('seed-1', '<img src=x onerror=window.hacked=1>');
  await shut.start();
  const page = await chrome.newPage();
  page.setDefaultTimeout(WAIT);
  await page.goto(shut.home);
  await page.getByLabel('Token').fill('wrong');
  await page.getByRole('button', { name: 'Enter' }).click();
  await page.getByText('this is not the token').waitFor();
  await page.goto(shut.link);
  await page.getByText('<img src=x onerror=window.hacked=1>').first().waitFor();
  assert.ok(!page.url().includes('token='));
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await page.getByRole('link', { name: '<img' }).click();
  await page.locator('h1', { hasText: '<img' }).waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await page.close();
  await shut.kill('SIGTERM');
});

await desk.end();
await chrome.close();
console.log(failures.length ? `${failures.length} failed: ${failures.join('; ')}` : 'all walked');
process.exit(failures.length ? 1 : 0);
