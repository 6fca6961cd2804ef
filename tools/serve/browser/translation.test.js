// What plimsoll says in English is said in Russian by the page, word for word: the keys of a recipe and the doctor.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { Sayings, filled } from '../../../crates/serve/page/sayings.js';

const root = new URL('../../../', import.meta.url);
const page = (name) => JSON.parse(readFileSync(new URL(`crates/serve/page/${name}.json`, root)));
const sentences = page('sentences-ru');
const texts = { ...sentences, ...page('ru') };
const sayings = new Sayings({ ...page('said'), ...Object.fromEntries(Object.keys(sentences).map((sentence) => [sentence, sentence])) });
const russian = (text) => sayings.translated(text, (key, values) => filled(texts[key], values, 'ru'));
const plimsoll = (...words) => JSON.parse(spawnSync(process.env.PLIMSOLL, words, { encoding: 'utf8', maxBuffer: 1 << 26 }).stdout);

// Three words of English in a row, outside of names, code and quotes.
const isEnglish = (text) => /(^|[^\w.`"«(/-])[a-z]{2,} [a-z]{2,} [a-z]{2,}\b/.test(text.replace(/`[^`]*`|"[^"]*"|«[^»]*»|\([^а-яё)]*\)/g, '…'));
const strange = (said) => [...new Set(said)].filter((text) => text && isEnglish(russian(text))).map((text) => `${text} → ${russian(text)}`);

test('every setting: what it means, what holds without it, what it may be', () => {
  const keys = plimsoll('keys', '--json');
  const said = keys.flatMap((key) => [key.about, key.unset, ...key.uses.map((use) => use.type)]);
  assert.ok(said.length > 400);
  assert.deepEqual(strange(said), []);
  assert.equal(russian('integer, 1 to 65536'), 'целое, от 1 до 65536');
  assert.equal(russian('number, 0 to 0.9; or path'), 'число, от 0 до 0.9; или путь');
  assert.equal(russian('"auto"; or size such as "12GiB" or "90%"; or integer, 1 to 140737488355328'), '"auto"; или размер, например "12GiB" или "90%"; или целое, от 1 до 140737488355328');
  assert.equal(russian('list of 2 × (number, 0 to 0.9999999)'), 'список из 2 × (число, от 0 до 0.9999999)');
});

const FULL = 'CUDA out of memory. Tried to allocate 360.00 MiB. GPU 0 has a total capacity of 14.56 GiB of which 111.81 MiB is free. Process 17 has 29.04 GiB memory in use. Including non-PyTorch memory, this process has 14.45 GiB memory in use. Of the allocated memory 14.25 GiB is allocated by PyTorch, and 60.81 MiB is reserved by PyTorch but unallocated.';

test('the doctor, of an error and of a recipe', () => {
  const said = [];
  for (const recipe of ['encoder', 'clip', 'hybrid', 'flan-t5-xl']) {
    const { error, mismatch, pytorch } = plimsoll('advise', '--json', '--explain', '--message', `step 3, during validation\n${FULL}`, new URL(`recipes/${recipe}.toml`, root).pathname);
    said.push(mismatch, pytorch.device, ...pytorch.notes, ...error.causes.flatMap((cause) => [cause.why, ...cause.actions]), ...error.remedies.map((remedy) => remedy.reason), ...error.tensors.map((tensor) => tensor.what));
    said.push(...pytorch.settings.flatMap((setting) => [setting.memory, setting.speed, setting.learning]), ...pytorch.ways_out.map((way) => way.learning));
  }
  assert.ok(new Set(said).size > 60, `${new Set(said).size} sentences`);
  assert.deepEqual(strange(said), []);
});

test('lines that a run left behind', () => {
  assert.equal(russian('error: a.csv: line 3, column `x`: the value is missing\n  hint: did you mean `y`?'), 'ошибка: a.csv: line 3, столбец `x`: нет значения\n  совет: может быть, `y`?');
  assert.equal(russian('micro-batch 4 with recompute "none" fits with 1.42 MiB headroom'), 'микро-батч 4 с пересчётом "none" помещается с запасом 1.42 MiB');
});

test('a word goes with its number', () => {
  const said = (text, count) => filled(text, { count }, 'ru');
  assert.deepEqual([1, 2, 5, 11, 21, '1,5', '1 002', '1,002'].map((count) => said('{count|раз|раза|раз}', count)), ['раз', 'раза', 'раз', 'раз', 'раз', 'раза', 'раза', 'раза']);
  assert.deepEqual([1, 2, '1,001', 0].map((count) => filled('{count} {count|run|runs}', { count }, 'en')), ['1 run', '2 runs', '1,001 runs', '0 runs']);
});
