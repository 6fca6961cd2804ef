// Walks through the page as a person would: first visit, a training from start to export, both languages, a server that
// dies, keyboard alone, a phone, and what screen readers need.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { Desk, browser, endAll } from './desk.js';

const WAIT = 90_000;
const chrome = await browser();
const failures = [];
// The page's own words: the same walk in both languages.
const words = Object.fromEntries(['en', 'ru'].map((name) => [name, JSON.parse(readFileSync(new URL(`../../../crates/serve/page/${name}.json`, import.meta.url)))]));
const said = (name, key, values = {}) => words[name][key].replace(/\{(\w+)\}/g, (_, blank) => values[blank]);
const sentences = JSON.parse(readFileSync(new URL('../../../crates/serve/page/sentences-ru.json', import.meta.url)));
const only = process.argv.slice(2);

async function test(name, work) {
  if (only.length && !only.some((part) => name.includes(part))) return;
  const start = Date.now();
  try { await work(); console.log(`ok   ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`); } catch (error) { failures.push(name); console.log(`FAIL ${name}\n${error.stack || error}`); await desk.quiet(); }
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

async function isClean(page, what, rules) {
  const builder = new AxeBuilder({ page });
  const { violations } = await (rules ? builder.withRules(rules) : builder).analyze();
  const serious = violations.filter((each) => ['serious', 'critical'].includes(each.impact));
  assert.deepEqual(serious.map((each) => `${what}: ${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 140)).join(' | ')}`), []);
}

// `held` is waited for after each step, with the button still down.
async function drag(page, name, steps, held = async () => {}) {
  const slider = page.locator(`[data-slider=${name}]`);
  const box = await slider.boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.5, y);
  await page.mouse.down();
  for (const share of steps) {
    await page.mouse.move(box.x + box.width * share, y, { steps: 4 });
    // The page hears of moves a little later, and answers to those before may be quick.
    await page.waitForTimeout(300);
    await held();
  }
  await page.mouse.up();
}

const desk = new Desk();
desk.study('small');
await desk.start();

await test('first visit, form, planner answers while dragging', async () => {
  const page = await open(desk);
  await page.getByText('No runs yet').waitFor();
  await page.getByRole('link', { name: 'Try the quickstart' }).click();
  await page.getByText('Ready to train with batch 64').waitFor();
  const said = () => page.locator('.verdict strong').textContent();
  const seen = [await said()];
  // At each stop the answer is about the batch that the slider stands at, before it is let go.
  await drag(page, 'batch', [0.6, 0.7, 0.4, 0.8], async () => {
    await page.waitForFunction(() => document.querySelector('.verdict strong').textContent.endsWith(` ${document.querySelector('[data-field=batch]').value}`));
    seen.push(await said());
  });
  assert.equal(new Set(seen).size, 5, `said while dragging: ${seen}`);
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

await test('what a list offers is planned while it is read', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart&device=rtx-4090');
  await page.getByText('What the planner decides').click();
  const list = page.getByLabel('Precision').first();
  const opened = page.waitForRequest((request) => request.url().endsWith('/plan') && JSON.parse(request.postData()).ahead?.[0] === 'memory.precision="f32"');
  await list.focus();
  const { ahead } = JSON.parse((await opened).postData());
  assert.deepEqual(ahead.slice(0, 5), ['f32', 'tf32', 'bf16-mixed', 'fp16-mixed', 'bf16'].map((word) => `memory.precision="${word}"`));
  assert.ok(ahead.length <= 16 && ahead.some((setting) => setting.startsWith('train.effective_batch=')), `then the sliders: ${ahead}`);
  await list.selectOption('f32');
  await page.locator('.tiles div', { hasText: 'Precision' }).getByText('f32').first().waitFor();
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

await test('data that is not here keeps a training from starting, and a file of the data folder begins one', async () => {
  desk.data('own/rates.csv', ['close,volume,spread', ...Array.from({ length: 400 }, (_, at) => [100 + Math.sin(at / 9), 10 + at % 7, 0.1 * (at % 3)].join(','))].join('\n'));
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train').waitFor();
  await page.getByText('Recipe as text').click();
  const text = page.locator('textarea').first();
  const recipe = await text.inputValue();
  await text.fill(recipe.replace(/source = .*/, 'train = "none.csv"\nlabel = "y"').replace(/^samples = .*$/m, ''));
  await page.getByText('It fits, but cannot start yet').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Start training' }).isDisabled());
  assert.match(await page.locator('.notice.bad').textContent(), /data\.train[\s\S]*none\.csv: there is no such file/);
  await page.getByText('Begin with your data or a known model').click();
  await page.locator('.begin select').first().selectOption('own/rates.csv');
  await page.getByRole('button', { name: 'Propose a recipe' }).click();
  await page.getByText(/^Proposed for hybrid-cnn-lstm/).waitFor();
  await page.getByText(/^Ready to train with batch \d+$/).waitFor();
  assert.match(await text.inputValue(), /train = "own\/rates\.csv"/);
  assert.equal(await page.locator('.notice.bad').count(), 0);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('the batch is cut into as many parts as are wished, and stays cut', async () => {
  const page = await open(desk, {}, '#/new?recipe=mu-sota-small');
  await page.getByText('Ready to train with batch 16').waitFor();
  const parts = page.getByLabel('Gradient accumulation');
  const isCut = (words) => page.locator('.tiles div', { hasText: 'micro-batch' }).getByText(words).waitFor();
  await parts.fill('4');
  await parts.press('Enter');
  await isCut('4 × 4');
  const batch = page.locator('[data-field=batch]');
  await batch.fill('32');
  await batch.press('Enter');
  await isCut('8 × 4');
  await page.getByText('Recipe as text').click();
  assert.match(await page.locator('textarea').first().inputValue(), /micro_batch = 8\b/);
  await parts.fill('33');
  await parts.press('Enter');
  await page.getByText('from 1 to 32').waitFor();
  await parts.fill('');
  await parts.press('Enter');
  await page.waitForFunction(() => !document.querySelector('textarea').value.includes('micro_batch'));
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('form and text are one recipe: a budget, a decimal comma, a setting that is cleared, a card', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train with batch 64').waitFor();
  await page.getByText('Recipe as text').click();
  const text = page.locator('textarea').first();
  const isIn = (part) => page.waitForFunction((wanted) => document.querySelector('textarea').value.includes(wanted), part);
  const isGone = (part) => page.waitForFunction((unwanted) => !document.querySelector('textarea').value.includes(unwanted), part);
  await text.fill(`${await text.inputValue()}\n[memory]\nbudget = "4GiB"\n`);
  await page.waitForFunction(() => document.querySelector('[placeholder=auto]').value === '4GiB');
  await page.getByText(/ of 4 GiB\./).waitFor();
  await page.getByPlaceholder('auto', { exact: true }).fill('');
  await isGone('4GiB');
  const rate = page.locator('[data-field=rate]');
  const type = async (field, value) => { await field.fill(value); await field.press('Enter'); };
  await type(rate, '0,002');
  await isIn('lr = 0.002');
  for (const wrong of ['much', '']) {
    await type(rate, wrong);
    assert.deepEqual([await rate.inputValue(), await rate.getAttribute('aria-invalid')], ['0.002', 'true'], wrong);
  }
  await page.getByText('All settings').click();
  const setting = (key) => page.locator('label.field', { has: page.getByText(key, { exact: true }) }).locator('input');
  await page.getByLabel('Find a setting').fill('train.');
  await type(setting('train.seed'), '7');
  await isIn('seed = 7');
  await type(setting('train.seed'), '');
  await isGone('seed = 7');
  await type(page.locator('[data-field=batch]'), '96');
  await page.getByText('Ready to train with batch 96').waitFor();
  assert.equal(await setting('train.effective_batch').inputValue(), '96');
  await page.getByLabel('Find a setting').fill('');
  await setting('model.window').waitFor();
  await page.locator('#recipe-pick').selectOption('encoder-small');
  await setting('model.hidden_size').waitFor();
  assert.equal(await setting('model.window').count(), 0);
  await page.getByRole('combobox', { name: /^Device/ }).selectOption('rtx-4090');
  await page.getByText('It would fit on rtx-4090').waitFor();
  await page.getByRole('button', { name: 'Copy as command' }).click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /plimsoll plan encoder-small\.toml --device rtx-4090/);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('another language leaves a new training as it is', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train with batch 64').waitFor();
  const batch = page.locator('[data-field=batch]');
  await batch.fill('96');
  await batch.press('Enter');
  await page.getByText('Ready to train with batch 96').waitFor();
  const device = page.getByRole('combobox', { name: /^Device/ });
  await device.selectOption('rtx-4090');
  await page.getByText('It would fit on rtx-4090').waitFor();
  await page.getByRole('button', { name: 'Русский' }).click();
  await page.getByText(said('ru', 'new.would', { device: 'rtx-4090' })).waitFor();
  assert.equal(await batch.inputValue(), '96');
  assert.match(await page.locator('.slider .hint').first().textContent(), /[а-яё]/);
  // Elsewhere and back is a new beginning.
  await page.goto(`${desk.home}#/new?recipe=encoder-small`);
  await page.waitForFunction(() => document.querySelector('#recipe-pick')?.value === 'encoder-small' && document.querySelector('[data-field=batch]').value !== '96');
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('an answer about the recipe before is nobody\'s', async () => {
  const page = await open(desk);
  const held = [];
  await page.route('**/api/v1/plan', (route) => { if (held.length === 0) held.push(route); else route.continue(); });
  await page.goto(`${desk.home}#/new?recipe=mu-sota-small`);
  while (held.length === 0) await page.waitForTimeout(50);
  await page.locator('#recipe-pick').selectOption('quickstart');
  await held[0].continue();
  await page.getByText('Ready to train with batch 64').waitFor();
  assert.doesNotMatch(await page.locator('.slider .hint').first().textContent(), /updates per epoch/);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('sliders reach as far as the model goes, and the batch as far as is recommended', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText(/^Ready to train/).waitFor();
  const { settings } = await desk.api('/plan', { recipe: (await desk.api('/recipes')).find((each) => each.name === 'quickstart').text, device: 'cpu', quick: true });
  const heads = page.locator('[data-slider=heads]');
  await heads.focus();
  for (const key of ['Home', ...Array(5).fill('ArrowRight'), 'End']) {
    await heads.press(key);
    const value = Number(await page.locator('[data-field=heads]').inputValue());
    assert.equal((2 * settings['model.hidden']) % value, 0, `${value} heads`);
  }
  await page.getByText(/Up to \d+ fits|Every batch up to 512 fits/).first().waitFor();
  await page.goto(`${desk.home}#/new?recipe=clip&device=h100-80gb`);
  await page.locator('.verdict strong', { hasText: 'h100-80gb' }).waitFor();
  const length = page.locator('[data-slider=length]');
  await length.focus();
  await length.press('End');
  assert.equal(await page.locator('[data-field=length]').inputValue(), '77');
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('a recipe for a known model; of two questions the last one counts, by its own name', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText(/^Ready to train/).waitFor();
  await page.getByText('Begin with your data or a known model').click();
  const [family, preset] = ['Architecture', 'Known model'].map((name) => page.getByRole('combobox', { name: new RegExp(`^${name}`) }));
  const propose = page.getByRole('button', { name: 'Propose a recipe' });
  await family.selectOption('bert');
  assert.ok((await preset.locator('option').allTextContents()).every((name) => !name.startsWith('t5')));
  let late = null;
  await page.route('**/plan/proposal', async (route) => { if (late) { await route.continue(); return; } late = route; });
  await propose.click();
  while (!late) await page.waitForTimeout(50);
  await preset.selectOption('bert_uncased_L-2_H-128_A-2');
  await propose.click();
  await page.waitForFunction(() => document.querySelector('textarea').value.includes('preset = "bert_uncased_L-2_H-128_A-2"'));
  await late.fulfill({ json: { recipe: 'late = 1', family: 't5', task: 'seq2seq' } });
  await page.waitForTimeout(300);
  await page.getByText('Proposed for bert, task classify.').waitFor();
  await page.getByRole('button', { name: 'Copy as command' }).click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /bert_uncased_L-2_H-128_A-2\.toml/);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('settings and the doctor speak Russian', async () => {
  const page = await open(desk, { locale: 'ru-RU' }, '#/new?recipe=quickstart');
  const isRussian = (text) => /[а-яё]/i.test(text);
  await page.locator('.verdict.good').waitFor();
  await page.getByText(said('ru', 'new.all')).click();
  const hints = page.locator('details[open] label .hint');
  // They are drawn once their list is open.
  await hints.nth(50).waitFor({ state: 'attached' });
  const about = await hints.allTextContents();
  assert.deepEqual(about.filter((text) => !isRussian(text)), []);
  await page.goto(`${desk.home}#/doctor`);
  await page.getByLabel(said('ru', 'doctor.text')).fill('step 3, during validation\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.69 GiB. GPU 0 has a total capacity of 12.00 GiB of which 0 bytes is free.');
  await page.getByLabel(said('ru', 'doctor.recipe')).selectOption('encoder-small');
  await page.getByRole('button', { name: said('ru', 'doctor.ask') }).click();
  await page.getByText(said('ru', 'doctor.error')).waitFor();
  await page.locator('summary', { hasText: said('ru', 'doctor.remedies') }).click();
  const told = [...await page.locator('.panel li, .panel strong').allTextContents(), ...await page.locator('details[open] tbody td:last-child').allTextContents()];
  assert.ok(told.length > 15, `${told.length} sentences`);
  assert.deepEqual(told.filter((text) => !isRussian(text)), []);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('an address that leads nowhere says so', async () => {
  const page = await open(desk);
  for (const path of ['run/100%', 'run/nowhere', 'compare?run=nowhere&run=%zz']) {
    await page.goto(`${desk.home}#/${path}`);
    await page.locator('main .notice').first().waitFor();
  }
  await page.getByText('There is no run nowhere.').waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('the doctor names the recipe and no file of the server', async () => {
  const page = await open(desk, {}, '#/doctor');
  await page.getByLabel('Error or log').fill('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.69 GiB. GPU 0 has a total capacity of 12.00 GiB of which 0 bytes is free.');
  await page.getByLabel('Recipe (which tensor was it?)').selectOption('encoder-small');
  await page.getByRole('button', { name: 'What does it mean?' }).click();
  await page.getByText('What the error says').waitFor();
  const told = await page.locator('main').textContent();
  assert.match(told, /output_dir="runs\/encoder-small"/);
  assert.doesNotMatch(told, /\/tmp\/|plimsoll-/);
  await page.getByLabel('Error or log').fill('all is well');
  await page.getByRole('button', { name: 'What does it mean?' }).click();
  await page.getByText('text: no out-of-memory error in it').waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('what the planner says is said in Russian', async () => {
  const page = await open(desk, { locale: 'ru-RU' }, '#/new?recipe=encoder&device=rtx-4090');
  const isRussian = (text) => /[а-яё]/i.test(text);
  await page.locator('.verdict.good').waitFor();
  await page.getByText(said('ru', 'plan.decisions')).first().click();
  const reasons = await page.locator('details[open] tbody td:last-child').allTextContents();
  assert.ok(reasons.length >= 3);
  assert.deepEqual(reasons.filter((reason) => !isRussian(reason)), []);
  await page.goto(`${desk.home}#/new?recipe=flan-t5-xl&device=rtx-3060-12gb`);
  const rungs = page.locator('.rungs li');
  await rungs.first().waitFor();
  const told = [...await rungs.locator('.hint').allTextContents(), ...await page.locator('ul.hint li').allTextContents()];
  assert.ok(told.length >= 4);
  assert.deepEqual(told.filter((words) => !isRussian(words) || /[a-z]{4,} [a-z]{3,} [a-z]{3,}/.test(words)), []);
  await page.context().close();
});

// Answers to these addresses wait until they are let go.
async function heldBack(page, address) {
  let letGo;
  const gate = new Promise((resolve) => { letGo = resolve; });
  await page.route(address, async (route) => { await gate; await route.continue().catch(() => {}); });
  return letGo;
}

// Says of runs what is not so, on the way to the page.
const told = (page, address, change) => page.route(address, async (route) => {
  const response = await route.fetch().catch(() => null);
  if (!response?.ok()) return route.abort().catch(() => {});
  return route.fulfill({ response, json: change(await response.json()) }).catch(() => {});
});
const go = (page, path) => page.evaluate((hash) => { location.hash = hash; }, `#/${path}`);
const heading = (page, name) => page.locator('main h1', { hasText: name }).waitFor();

await test('to the content: what was typed stays', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train').waitFor();
  const budget = page.getByPlaceholder('auto', { exact: true });
  await budget.fill('3GiB');
  await page.locator('#skip').focus();
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await page.waitForTimeout(300);
  assert.equal(await budget.inputValue(), '3GiB');
  assert.match(page.url(), /#\/new/);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('a page that is left while it loads stays away', async () => {
  const many = new Desk();
  many.seed(1);
  await many.start();
  const page = await open(many);
  const stays = async (name) => {
    await page.waitForFunction((title) => document.title.startsWith(title), name);
    await page.waitForTimeout(500);
    assert.deepEqual(await page.locator('main h1').allTextContents(), [name]);
    assert.equal(await page.locator('main .notice.bad').count(), 0);
    assert.match(await page.title(), new RegExp(`^${name}`));
  };
  for (const [left, address] of [['new', '**/api/v1/recipes'], ['doctor', '**/api/v1/catalog'], ['docs', '**/api/v1/openapi.json'], ['compare', '**/api/v1/runs']]) {
    const letGo = await heldBack(page, address);
    await go(page, left);
    await page.waitForTimeout(200);
    await go(page, 'queue');
    await heading(page, 'Queue');
    letGo();
    await stays('Queue');
    await page.unroute(address);
  }
  // Its error is nobody's, either.
  let refuse;
  const gate = new Promise((resolve) => { refuse = resolve; });
  await page.route('**/api/v1/openapi.json', async (route) => { await gate; await route.fulfill({ status: 500, json: { error: 'broken' } }); });
  await go(page, 'docs');
  await page.waitForTimeout(200);
  await go(page, 'queue');
  refuse();
  await stays('Queue');
  // A run that is left before its curves came is not followed.
  await told(page, '**/api/v1/runs/seed-1', (run) => ({ ...run, state: 'running' }));
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  const letGo = await heldBack(page, '**/curves?*');
  const wanted = page.waitForRequest(/curves/);
  await go(page, 'run/seed-1');
  await wanted;
  await go(page, 'queue');
  await heading(page, 'Queue');
  letGo();
  asked.length = 0;
  await page.waitForTimeout(2500);
  assert.deepEqual(asked.filter((url) => url.includes('seed-1')), []);
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await many.end();
});

await test('the server dies under a form: what it says by itself holds', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train with batch 64').waitFor();
  await desk.kill('SIGKILL');
  const batch = page.locator('[data-field=batch]');
  await batch.fill('48');
  await batch.press('Enter');
  await page.getByText('There is no answer').waitFor();
  await page.locator('#banner > div').waitFor();
  await desk.start();
  await page.getByText('Ready to train with batch 48').waitFor();
  await page.locator('#banner > div').waitFor({ state: 'detached' });
  // A page that is opened while the server is away comes with it.
  await desk.kill('SIGKILL');
  await go(page, 'doctor');
  await page.locator('main .notice.bad').waitFor();
  await desk.start();
  await heading(page, 'Doctor');
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('what is refused stays in sight, in the language of the page', async () => {
  const many = new Desk();
  many.seed(1);
  await many.start();
  const page = await open(many, { locale: 'ru-RU' });
  await told(page, '**/api/v1/runs/seed-1', (run) => ({ ...run, state: 'running', reason: 'its process was ended by signal 11' }));
  await page.route('**/stop', (route) => route.fulfill({ status: 409, json: { error: 'this run is not training' } }));
  await go(page, 'run/seed-1');
  await page.getByText(said('ru', 'said.run.signal', { count: 11 })).waitFor();
  const stop = page.getByRole('button', { name: said('ru', 'run.stop') });
  await stop.click();
  const refusal = page.getByText(said('ru', 'said.run.not_training'));
  await refusal.waitFor();
  await page.waitForTimeout(3500);
  assert.ok(await refusal.isVisible() && await stop.isEnabled());
  await page.route('**/api/v1/queue', (route) => route.fulfill({ json: [{ id: 'seed-1', state: 'queued', device: 'cpu', bytes: 1e6, expected_start: 1, expected_end: 2 }] }));
  await go(page, 'queue');
  const leaving = page.getByRole('button', { name: said('ru', 'queue.leave') });
  await leaving.click();
  await refusal.waitFor();
  await page.waitForTimeout(2500);
  assert.ok(await refusal.isVisible() && await leaving.isEnabled());
  // The first answer may be an error, and is said; the next one counts.
  await page.route('**/api/v1/runs', (route) => route.fulfill({ status: 500, json: { error: 'the run cannot be read' } }));
  await go(page, 'runs');
  await page.getByText(sentences['the run cannot be read']).waitFor();
  await page.unroute('**/api/v1/runs');
  await page.getByRole('link', { name: 'seed-1' }).waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await many.end();
});

await test('runs are compared one after the other, and the list stays as it is', async () => {
  const many = new Desk();
  many.seed(3);
  await many.start();
  const page = await open(many);
  // One of them was taken up again and waits.
  await told(page, '**/api/v1/runs', (runs) => runs.map((run) => (run.id === 'seed-3' ? { ...run, state: 'queued' } : run)));
  await go(page, 'compare');
  const search = page.getByRole('searchbox');
  await search.fill('seed');
  for (const id of ['seed-1', 'seed-2', 'seed-3']) {
    await page.getByLabel(id).click();
    await page.waitForURL(new RegExp(`run=${id}`));
    await page.locator('tbody a', { hasText: id }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.value), id);
  }
  assert.equal(await search.inputValue(), 'seed');
  assert.equal(await page.locator('main .notice').count(), 0);
  await page.getByLabel('seed-2').click();
  await page.locator('tbody a', { hasText: 'seed-2' }).waitFor({ state: 'detached' });
  assert.equal(await page.locator('tbody a').count(), 2);
  await page.reload();
  await page.locator('tbody a', { hasText: 'seed-3' }).waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await many.end();
});

await test('a run is listened to while it is at work and somebody looks', async () => {
  const many = new Desk();
  many.seed(1);
  await many.start();
  const page = await open(many);
  const streams = new Set();
  const asked = [];
  page.on('request', (request) => { if (request.url().includes('/events')) { streams.add(request); asked.push(request.url()); } });
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (request) => streams.delete(request));
  const until = async (what, isSo) => { for (let n = 0; n < 100; n += 1) { if (isSo()) return; await page.waitForTimeout(100); } throw new Error(`never ${what}: ${streams.size} open of ${asked.length}`); };
  await go(page, 'run/seed-1');
  await page.locator('.uplot canvas').first().waitFor();
  await page.waitForTimeout(2000);
  assert.deepEqual(asked, [], 'a finished run tells nothing more');
  let state = 'running';
  await told(page, '**/api/v1/runs/seed-1', (run) => ({ ...run, state }));
  // A stream that is refused is no server that is away.
  await page.evaluate(() => { window.alarms = 0; new MutationObserver(() => { window.alarms += 1; }).observe(document.getElementById('banner'), { childList: true }); });
  await page.route('**/events?*', (route) => route.fulfill({ status: 503, json: { error: 'too many streams are open' } }));
  await until('asked twice', () => asked.length === 2);
  assert.equal(await page.evaluate(() => window.alarms), 0);
  await page.unroute('**/events?*');
  await until('followed', () => streams.size === 1);
  asked.length = 1;
  const look = (isHidden) => page.evaluate((hidden) => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden }); document.dispatchEvent(new Event('visibilitychange')); }, isHidden);
  await look(true);
  await until('let go', () => streams.size === 0);
  await look(false);
  await until('followed again', () => streams.size === 1 && asked.length === 2);
  // What is looked at closely stays where it is while more comes.
  const chart = page.locator('.chart .u-over').first();
  const box = await chart.boundingBox();
  await page.mouse.move(box.x + 0.3 * box.width, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + 0.6 * box.width, box.y + 20, { steps: 5 });
  await page.mouse.up();
  const seen = () => page.evaluate(() => { const { min, max } = document.querySelector('.chart').chart.scales.x; return [min, max]; });
  const closer = await seen();
  assert.ok(closer[0] > 50 && closer[1] < 250, `${closer}`);
  many.grow('seed-1', 301);
  await page.waitForFunction(() => document.querySelector('.chart').chart.data[0].at(-1) === 301);
  assert.deepEqual(await seen(), closer);
  await chart.dblclick();
  many.grow('seed-1', 302);
  await page.waitForFunction(() => document.querySelector('.chart').chart.scales.x.max === 302);
  state = 'finished';
  await until('over', () => streams.size === 0);
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await many.end();
});

await test('a list that is drawn anew leaves the focus where it was', async () => {
  const many = new Desk();
  many.seed(3);
  await many.start();
  const page = await open(many);
  let step = 300;
  await told(page, '**/api/v1/runs', (runs) => runs.map((run) => ({ ...run, step })));
  await page.locator('main a', { hasText: 'seed-2' }).focus();
  step = 77;
  await page.getByText('77 of 300').first().waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'seed-2');
  await page.context().close();
  await many.end();
});

const stepNow = () => Number(document.querySelector('.tile .step').textContent.replace(/\D/g, ''));
const beyond = (page, least) => page.waitForFunction((than) => Number(document.querySelector('.tile .step').textContent.replace(/\D/g, '')) > than, least);
let run;
// Some run to look at, whichever tests were chosen.
const someRun = async () => encodeURIComponent(run ?? (await desk.api('/runs'))[0].id);

// A series with the columns that the quickstart's has, as long as its model looks back and a little more.
const seriesRows = () => [Array.from({ length: 8 }, (_, at) => `channel-${at}`).join(','), ...Array.from({ length: 70 }, (_, row) => Array.from({ length: 8 }, (_, at) => Math.sin(row * (at + 1)).toFixed(4)).join(','))].join('\n');

// Start → live curves → stop → resume → compare → export, by the words of a language.
async function wholeWalk(name, locale) {
  const t = (key, values) => said(name, key, values);
  desk.data('rows.csv', seriesRows());
  const page = await open(desk, { locale }, '#/new?recipe=quickstart');
  await page.getByText(t('new.ready', { batch: 64 })).waitFor();
  await page.getByRole('button', { name: t('new.start') }).click();
  await page.waitForURL(/#\/run\//);
  run = decodeURIComponent(page.url().split('#/run/')[1]);
  await page.locator('h1', { hasText: run }).waitFor();
  await page.locator('.badge.running').waitFor();
  await page.locator('.uplot canvas').first().waitFor();
  await beyond(page, 2);
  await beyond(page, await page.evaluate(stepNow));
  await page.getByText('ready to train').first().waitFor();
  await page.getByRole('button', { name: t('run.stop') }).click();
  await page.locator('.badge.interrupted').waitFor();
  await page.getByRole('button', { name: t('run.resume') }).click();
  await page.locator('.badge.running').waitFor();
  await beyond(page, await page.evaluate(stepNow));
  await page.getByRole('button', { name: t('run.stop') }).click();
  await page.locator('.badge.interrupted').waitFor();
  await page.locator('section', { hasText: t('run.checkpoints') }).locator('tbody tr').first().waitFor();
  await page.getByText(t('run.map')).click();
  const map = page.locator('canvas.map');
  await map.waitFor();
  // Weights are at the bottom of the arena and stay for the whole run.
  const { height } = await map.boundingBox();
  await map.hover({ position: { x: 30, y: height - 3 } });
  await page.locator('.map-note strong').waitFor();
  assert.ok((await page.locator('.map-note').textContent()).includes(t('map.resident')));
  await page.locator('summary', { hasText: t('run.predict') }).click();
  await page.getByLabel(t('run.file')).selectOption('rows.csv');
  const asked = page.waitForResponse((response) => response.url().endsWith('/predict'));
  await page.getByRole('button', { name: t('run.predict') }).click();
  const { predictions } = await (await asked).json();
  assert.ok(predictions.length > 0, 'a file of the data folder is answered');
  await page.locator('pre.log', { hasText: JSON.stringify(predictions[0]) }).waitFor();
  await page.getByRole('button', { name: t('run.export') }).click();
  await page.getByRole('link', { name: 'model.safetensors' }).waitFor();
  assert.ok(desk.files(run, 'export').includes('model.safetensors'));
  desk.copyRun(run, `twin-${name}`);
  await page.goto(`${desk.home}#/compare?run=${encodeURIComponent(run)}&run=twin-${name}`);
  await page.getByText(t('compare.same')).waitFor();
  await page.locator('.uplot canvas').first().waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
}

await test('start, live curves, stop, resume, compare, export', () => wholeWalk('en', 'en-US'));
await test('the same in Russian', () => wholeWalk('ru', 'ru-RU'));

await test('stop and resume at once: the server waits for the old process', async () => {
  const { id } = await desk.api('/runs', { recipe: (await desk.api('/recipes')).find((recipe) => recipe.name === 'quickstart').text, name: 'quickstart' });
  while (!((await desk.api(`/runs/${id}`)).step > 1)) await new Promise((resolve) => setTimeout(resolve, 200));
  await desk.api(`/runs/${id}/stop`, {});
  const answer = await desk.api(`/runs/${id}/resume`, {});
  assert.equal(answer.id, id, JSON.stringify(answer));
  await desk.api(`/runs/${id}/stop`, { now: true });
});

await test('the server dies with the page open and comes back: it goes on by itself', async () => {
  const page = await open(desk, {}, '#/new?recipe=quickstart');
  await page.getByText('Ready to train').waitFor();
  await page.getByRole('button', { name: 'Start training' }).click();
  await page.waitForURL(/#\/run\//);
  await page.locator('.badge.running').waitFor();
  await beyond(page, 1);
  await desk.kill('SIGKILL');
  await page.locator('#banner > div').waitFor();
  const before = await page.evaluate(stepNow);
  await desk.start();
  await page.locator('#banner > div').waitFor({ state: 'detached' });
  await beyond(page, before);
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
  const id = await someRun();
  const long = 'a-name-of-a-run-'.repeat(8).slice(0, 120);
  desk.seed(1, long);
  for (const path of ['runs', 'new', 'queue', `compare?run=${id}`, `compare?run=${long}&run=${id}`, `run/${long}`, 'studies', 'studies/small', 'devices', 'doctor', `run/${id}`]) {
    await page.goto(`${desk.home}#/${path}`);
    await page.waitForSelector('main h1');
    await page.waitForTimeout(300);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 1, `${path} is ${wide} pixels too wide`);
  }
  await page.context().close();
});

// It mostly waits, on a server of its own: the next ones go on beside it, until frames are counted.
const coming = test('every page comes without jumping', async () => {
  const many = new Desk();
  many.seed(3);
  many.study('small');
  await many.start();
  const page = await open(many);
  await page.addInitScript(() => {
    window.shifts = [];
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => { if (!entry.hadRecentInput) window.shifts.push([entry.value, ...entry.sources.map(({ node }) => (node?.outerHTML || String(node)).slice(0, 80))]); })).observe({ type: 'layout-shift', buffered: true });
  });
  const failed = [];
  for (const path of ['runs', 'new?recipe=quickstart', 'queue', 'compare?run=seed-1&run=seed-2', 'studies', 'studies/small', 'devices', 'doctor', 'docs', 'run/seed-1']) {
    await page.goto('about:blank');
    await page.goto(`${many.home}#/${path}`);
    await page.waitForSelector('main h1');
    await page.waitForTimeout(2500);
    const [shifts, paint] = await page.evaluate(() => [window.shifts, performance.getEntriesByName('first-contentful-paint')[0]?.startTime]);
    const sum = shifts.reduce((total, [value]) => total + value, 0);
    console.log(`     ${path}: first paint after ${paint?.toFixed(0)} ms, layout shift ${sum.toFixed(3)}`);
    if (sum >= 0.1) failed.push([path, sum, shifts]);
  }
  assert.deepEqual(failed, []);
  await page.context().close();
  await many.end();
});

await test('every page is fit for screen readers, light and dark', async () => {
  const page = await open(desk);
  const id = await someRun();
  for (const path of ['runs', 'new?recipe=quickstart', 'queue', `compare?run=${id}`, 'studies', 'studies/small', 'devices', 'doctor', 'docs', `run/${id}`]) {
    await page.goto(`${desk.home}#/${path}`);
    await page.waitForSelector('main h1');
    await page.waitForTimeout(400);
    await page.emulateMedia({ colorScheme: 'light' });
    await isClean(page, `${path} light`);
    await page.emulateMedia({ colorScheme: 'dark' });
    await isClean(page, `${path} dark`, ['color-contrast']);
  }
  await page.context().close();
});
await test('a study shows its best trial, its history and what matters, and grows by itself', async () => {
  const page = await open(desk, {}, '#/studies');
  await page.getByRole('link', { name: 'small' }).click();
  await page.locator('h1', { hasText: 'small' }).waitFor();
  await page.locator('.uplot canvas').first().waitFor();
  const rows = () => page.locator('tbody tr').count();
  const before = await rows();
  assert.ok(before >= 8, `${before} trials`);
  assert.equal(await page.locator('tr.best').count(), 1);
  desk.growStudy('small');
  await page.waitForFunction((least) => document.querySelectorAll('tbody tr').length > least, before);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

await test('a study of two objectives shows their front, either of them, and what trials reached on the way', async () => {
  const many = new Desk();
  many.studyOfTwo('two');
  await many.start();
  const page = await open(many, {}, '#/studies');
  await page.getByText('plimsoll study NAME --storage postgresql://').waitFor();
  await page.getByRole('link', { name: 'two' }).click();
  const titles = () => page.locator('.chart').evaluateAll((charts) => charts.filter((chart) => chart.checkVisibility()).map((chart) => chart.getAttribute('aria-label')));
  await page.locator('.chart .u-over').first().waitFor();
  assert.deepEqual((await titles()).sort(), ['Curves of trials', 'Values over trials: accuracy', 'accuracy against seconds', 'train.effective_batch: accuracy', 'train.optimizer.lr: accuracy']);
  // On the front none is better in both: quicker ones are worse.
  const [seconds, behind, front] = await page.evaluate(() => document.querySelector('.chart[aria-label="accuracy against seconds"]').chart.data);
  const onFront = seconds.map((time, at) => [time, front[at]]).filter(([, value]) => value !== null);
  assert.ok(onFront.length >= 2 && behind.some((value) => value !== null));
  onFront.slice(1).forEach(([, value], at) => assert.ok(value > onFront[at][1], JSON.stringify(onFront)));
  // All that stand at the end are seen: there is room behind them.
  const batches = await page.evaluate(() => document.querySelector('.chart[aria-label="train.effective_batch: accuracy"]').chart.data[0]);
  assert.ok(batches[0] < 16 && batches.at(-1) > 64 && batches.filter((batch) => batch === 64).length === 8);
  const shares = () => page.locator('.weights li').allTextContents();
  const before = await shares();
  assert.ok(before.length >= 2);
  const one = await page.locator('.chart .u-over').first().elementHandle();
  many.growStudyOfTwo();
  await page.waitForFunction(() => document.querySelectorAll('.scroll tbody tr').length === 25);
  assert.ok(await one.evaluate((element) => element.isConnected), 'a chart that grows is the same chart');
  await page.getByLabel('Objective shown').selectOption('seconds');
  await page.waitForFunction(() => document.querySelector('.chart[aria-label="seconds against accuracy"]'));
  assert.deepEqual((await titles()).sort(), ['Curves of trials', 'Values over trials: seconds', 'seconds against accuracy', 'train.effective_batch: seconds', 'train.optimizer.lr: seconds']);
  assert.notDeepEqual(await shares(), before, 'each objective has its own');
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await many.end();
});

await test('what looks like markup is text, wherever it stands', async () => {
  const many = new Desk();
  const [svg, script] = ['<svg onload=window.hacked=1>', '<script>window.hacked=1</script>'];
  many.seed(1);
  many.copyRun('seed-1', `seed ${svg}`);
  many.tell(`seed ${svg}`, [
    { event: 'step', step: 301, loss: 0.1, [svg]: 1, [script]: 2 }, { event: 'evaluation', step: 301, loss: 0.1, [svg]: 0.5, best: true },
    { event: 'device', step: 301, [script]: 3 }, { event: 'sample', step: 301, prompt: svg, text: `${script}${svg}` }, { event: 'note', text: `${svg}${script}` },
  ], `${svg}\n${script}\nerror: ${svg}\n`);
  many.data(`own/${svg.replaceAll('/', '')}.csv`, [`${svg},${script}`, ...Array.from({ length: 200 }, (_, at) => `${at % 7},${Math.sin(at)}`)].join('\n'));
  many.data('own/labels.csv', ['text,label', ...Array.from({ length: 60 }, (_, at) => `${svg} ${at},${at % 2 ? svg : script}`)].join('\n'));
  many.studyOfTwo(svg, { objectives: [svg, script], param: script });
  await many.start();
  const page = await open(many);
  const isText = async (where) => {
    await page.waitForTimeout(300);
    assert.equal(await page.evaluate(() => window.hacked), undefined, where);
    assert.equal(await page.locator('main svg, main script').count(), 0, where);
  };
  await page.getByText(svg).first().waitFor();
  await isText('runs');
  await go(page, `run/${encodeURIComponent(`seed ${svg}`)}`);
  await page.locator('.sample', { hasText: svg }).waitFor();
  await page.locator('pre.log', { hasText: script }).first().waitFor();
  await page.locator('h3', { hasText: svg }).first().waitFor();
  await page.locator('summary', { hasText: 'Ask it' }).click();
  await isText('run');
  await go(page, `compare?run=seed-1&run=${encodeURIComponent(`seed ${svg}`)}`);
  await page.locator('.uplot canvas').first().waitFor();
  await isText('compare');
  await go(page, `studies/${encodeURIComponent(svg)}`);
  await page.locator('h3', { hasText: script }).first().waitFor();
  await isText('study');
  await go(page, 'studies');
  await page.getByRole('link', { name: svg }).waitFor();
  await isText('studies');
  await go(page, 'new?recipe=quickstart');
  await page.getByText('Ready to train').waitFor();
  await page.getByText('Begin with your data').click();
  for (const file of await page.locator('.begin select').first().locator('option').evaluateAll((options) => options.map((option) => option.value).filter(Boolean))) {
    await page.locator('.begin select').first().selectOption(file);
    const answered = page.waitForResponse((response) => response.url().includes('/plan/proposal'));
    await page.getByRole('button', { name: 'Propose a recipe' }).click();
    await answered;
    await isText(`proposal for ${file}`);
  }
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await many.end();
});

await coming;
await test('a thousand runs and a hundred thousand points stay smooth', async () => {
  const many = new Desk();
  many.seed(1);
  for (let n = 2; n <= 1000; n += 1) many.copyRun('seed-1', `seed-${n}`);
  await many.start();
  const page = await open(many);
  await page.getByText('1,000 runs').or(page.getByText('1000 runs')).waitFor();
  await page.getByLabel('Find a run').fill('seed-77');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length < 20);
  // Of many runs those that a search finds can be compared; those that are not shown are counted.
  await page.goto(`${many.home}#/compare`);
  await page.getByText(/^940 more: narrow the search/).waitFor();
  await page.getByRole('searchbox').fill('seed-777');
  await page.getByLabel('seed-777').click();
  await page.waitForURL(/run=seed-777/);
  await page.locator('.uplot canvas').first().waitFor();
  await page.goto(`${many.home}#/compare?${Array.from({ length: 13 }, (_, at) => `run=seed-${at + 1}`).join('&')}`);
  await page.getByText('At most 12 runs').waitFor();
  await page.goto(`${many.home}#/compare?run=seed-1&run=nowhere&run=seed-2`);
  await page.getByText('There is no run nowhere.').waitFor();
  await page.locator('.uplot canvas').first().waitFor();
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
  // A session that is over: the form comes once, and what is typed into it stays.
  await page.context().clearCookies();
  await page.getByRole('link', { name: 'Runs', exact: true }).click();
  await page.getByLabel('Token').fill('a secret');
  await page.waitForTimeout(3000);
  assert.equal(await page.getByLabel('Token').inputValue(), 'a secret');
  assert.equal(await page.evaluate(() => document.activeElement.name), 'token');
  await page.getByRole('button', { name: 'Русский' }).click();
  await page.getByLabel(said('ru', 'login.token')).waitFor();
  assert.equal(await page.getByLabel(said('ru', 'login.token')).inputValue(), 'a secret');
  await page.getByLabel(said('ru', 'login.token')).fill(process.env.PLIMSOLL_TEST_TOKEN);
  await page.getByRole('button', { name: said('ru', 'login.enter') }).click();
  await page.getByRole('link', { name: '<img' }).waitFor();
  await page.close();
  await shut.end();
});

await chrome.close();
await endAll();
console.log(failures.length ? `${failures.length} failed: ${failures.join('; ')}` : 'all walked');
process.exit(failures.length ? 1 : 0);
