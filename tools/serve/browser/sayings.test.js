// Sentences of the planner in another language: taken apart by patterns, put together by a catalog.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { Sayings, filled } from '../../../crates/serve/page/sayings.js';

const page = (name) => JSON.parse(readFileSync(new URL(`../../../crates/serve/page/${name}.json`, import.meta.url)));
const sentences = page('sentences-ru');
const sayings = new Sayings(page('said'));
const everything = new Sayings({ ...page('said'), ...Object.fromEntries(Object.keys(sentences).map((sentence) => [sentence, sentence])) });
const say = (words, language) => (key, values) => filled(words[key], values, language);
const russian = (text) => everything.translated(text, say({ ...sentences, ...page('ru') }, 'ru'));

test('a sentence with values, with sentences inside of it, and several in a row', () => {
  assert.equal(russian('the scores are never stored'), 'матрица оценок не хранится');
  assert.equal(russian('did you mean `epochs`?'), 'может быть, `epochs`?');
  assert.equal(russian('wrong type: this is a string'), 'не тот тип: это строка');
  assert.equal(russian('heads 16, 8 → 8, 4'), 'головы 16, 8 → 8, 4');
  assert.equal(russian('batch 128 → 64, length 512 → 256, adafactor'), 'батч 128 → 64, длина 512 → 256, adafactor');
  assert.equal(russian('train.optimizer.lr=7.07e-4 (by the square root); gradients are 1.4 times as noisy, an epoch has 2 times the steps: keep the epochs and the samples of the warm-up, and compare validation, where smaller batches often do as well; longer texts are cut: count how many'),
    'train.optimizer.lr=7.07e-4 (по квадратному корню); градиенты шумнее в 1.4 раза, шагов в эпохе больше в 2 раза: сохраните эпохи и примеры разогрева и сравните валидацию, где меньшие батчи часто не хуже; более длинные тексты обрезаются: посчитайте, сколько их');
  assert.equal(russian('with --set model.d_ff=2560, micro-batch 4 with recompute "some" fits with 1.42 MiB headroom; it changes what is learned: another model: tune it anew'),
    '--set model.d_ff=2560: микро-батч 4 с пересчётом "some" помещается с запасом 1.42 MiB; это меняет обучение: другая модель: настройте её заново');
});

test('why a run ended, and why something was refused', () => {
  assert.equal(russian('its process was ended by signal 11'), 'процесс завершён сигналом 11');
  assert.equal(russian('its process was killed (signal 9): by somebody, or by the system where the machine had no memory left'), 'процесс убит (сигнал 9): кем-то или системой, если на машине кончилась память');
  assert.equal(russian('this run is in the queue or training already'), 'этот запуск уже в очереди или обучается');
});

test('what is no sentence of the planner stays as it is', () => {
  for (const text of ['flan-t5-large', 'adafactor', '', 'x; y, z', 'batch a → b', '{key} not pinned $&']) assert.equal(russian(text), text);
});

test('in English the planner is quoted, or what to type is replaced by where to look', () => {
  const english = say(page('en'), 'en');
  assert.equal(sayings.translated('everything saved fits', english), 'everything saved fits');
  for (const sentence of Object.values(page('en')).filter((text) => /--[a-z]|`plimsoll /.test(text))) assert.match(sentence, /`plimsoll (serve|tune|study NAME --storage)\b/, sentence);
});
