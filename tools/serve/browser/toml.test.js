// The page changes single keys of a recipe's text: whatever it sets is read back, and nothing else moves.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import test from 'node:test';
import { read, set, typed, unset, write } from '../../../crates/serve/page/toml.js';

const folder = new URL('../../../recipes/', import.meta.url);
const recipes = readdirSync(folder).filter((name) => name.endsWith('.toml')).map((name) => [name, readFileSync(new URL(name, folder), 'utf8')]);
const KEYS = ['train.effective_batch', 'train.epochs', 'train.optimizer.lr', 'train.schedule.warmup', 'model.window', 'data.max_length', 'memory.budget', 'memory.micro_batch', 'data.label_from.horizon', 'name', 'train.new.deep'];
const VALUES = ['7', '1e-3', '"a # b, } ]"', '[1, 2]', 'true', '"x = 1"', '{ name = "sgd", lr = 0.1 }'];

test('what is set is read back, in every recipe', () => {
  for (const [name, text] of recipes) for (const key of KEYS) for (const value of VALUES) {
    const changed = set(text, key, value);
    assert.equal(read(changed, key), value, `${name} ${key} ${value}`);
    assert.equal(set(changed, key, value), changed, `${name}: twice is once`);
  }
});

test('other keys and all comments stay as they are', () => {
  for (const [name, text] of recipes) for (const key of KEYS) {
    const changed = set(text, key, '123456');
    for (const other of KEYS.filter((each) => each !== key && !each.startsWith(`${key}.`))) assert.equal(read(changed, other), read(text, other), `${name}: ${key} moved ${other}`);
    const comments = (of) => of.split('\n').map((line) => line.replace(/^[^#]*/, '')).filter(Boolean);
    assert.deepEqual(comments(changed), comments(text), `${name} ${key}`);
  }
});

test('a key is taken out whole', () => {
  const text = '[memory]\nbudget = "auto"  # 95 %\nprecision = "bf16"\n';
  assert.equal(unset(text, 'memory.precision'), '[memory]\nbudget = "auto"  # 95 %\n');
  assert.equal(unset(text, 'memory.nothing'), text);
});

test('values that span lines, strings with brackets and quotes are passed over', () => {
  const text = '[data]\nlist = [\n  1, # one\n  2,\n]\ntext = """a\nepochs = 9\n"""\n[train]\nepochs = 3 # three\n';
  assert.equal(read(text, 'train.epochs'), '3');
  assert.equal(read(set(text, 'train.epochs', '4'), 'train.epochs'), '4');
  assert.match(set(text, 'data.more', '1'), /"""\nmore = 1\n\[train\]/);
});

test('what people type becomes TOML', () => {
  assert.deepEqual(['12', '1e-3', 'true', 'bf16', '"x"', '[1]', 'a"b'].map(typed), ['12', '1e-3', 'true', '"bf16"', '"x"', '[1]', '"a\\"b"']);
  assert.equal(write({ name: 'adamw', lr: 0.001, list: [1, 'x'] }), '{ name = "adamw", lr = 0.001, list = [1, "x"] }');
});
