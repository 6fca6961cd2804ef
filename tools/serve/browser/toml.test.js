// The page changes single keys of a recipe's text: whatever it sets is read back, and nothing else moves.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import test from 'node:test';
import { Writer, paths, random } from './random-toml.js';
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

// What another reader of TOML makes of texts; floats as they print.
function parsed(texts) {
  const program = 'import json, sys, tomllib\ndef read(text):\n  try: return tomllib.loads(text)\n  except tomllib.TOMLDecodeError as error: return {"refused": str(error)}\njson.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)';
  return JSON.parse(execFileSync('python3', ['-c', program], { input: JSON.stringify(texts), maxBuffer: 1 << 30 }));
}

const keyOf = (path) => path.map((part) => JSON.stringify(part)).join('.');

function withValue(tree, [name, ...rest], value) {
  const isTable = tree[name] && typeof tree[name] === 'object' && !Array.isArray(tree[name]);
  return { ...tree, [name]: rest.length ? withValue(isTable ? tree[name] : {}, rest, value) : value };
}

// Without a key. Tables that only it made go with it, tables that are written stay: both are empty here.
function without(tree, [name, ...rest]) {
  const { [name]: gone, ...others } = tree;
  if (gone === undefined) return tree;
  return rest.length ? { ...others, [name]: without(gone, rest) } : others;
}

const isTable = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
// Empty tables apart, and whatever the order.
const bare = (tree) => Object.fromEntries(Object.entries(tree).map(([name, value]) => [name, isTable(value) ? bare(value) : value]).filter(([, value]) => !isTable(value) || Object.keys(value).length).sort(([a], [b]) => (a < b ? -1 : 1)));

// What was taken from a text and what was put in its place, as one change.
function change(before, after) {
  let from = 0;
  while (from < Math.min(before.length, after.length) && before[from] === after[from]) from += 1;
  let end = 0;
  while (end < Math.min(before.length, after.length) - from && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  return { taken: before.slice(from, before.length - end), put: after.slice(from, after.length - end) };
}

const SEED = Number(process.env.SEED ?? 20261119);
const DOCUMENTS = Number(process.env.DOCUMENTS ?? 300);

test(`in random documents a change is what was asked and nothing else (SEED=${SEED})`, () => {
  const of = random(SEED);
  const texts = Array.from({ length: DOCUMENTS }, () => new Writer(of).document());
  const trees = parsed(texts);
  const cases = texts.flatMap((text, at) => {
    assert.ok(!('refused' in trees[at]), `${trees[at].refused}\n${text}`);
    const there = paths(trees[at]).filter(([name]) => name !== 'listed');
    const path = () => (there.length && of.chance(0.6) ? of.pick(there) : [...(there.length && of.chance(0.7) ? of.pick(there) : []), ...new Writer(of).names(2), 'new']);
    return [0, 1, 2, 3].map(() => {
      const [key, value] = [path(), of.pick(VALUES)];
      return of.chance(0.65) ? { text, tree: trees[at], key, value, after: set(text, keyOf(key), value) } : { text, tree: trees[at], key, after: unset(text, keyOf(key)) };
    });
  });
  const answers = parsed(cases.flatMap(({ after, value }) => [after, `x = ${value ?? 0}`]));
  cases.forEach(({ text, tree, key, value, after }, at) => {
    const [got, { x }] = [answers[2 * at], answers[2 * at + 1]];
    const what = `${value === undefined ? 'unset' : 'set'} ${keyOf(key)} ${value ?? ''}\n--- before\n${text}\n--- after\n${after}`;
    assert.ok(!('refused' in got), `${got.refused}: ${what}`);
    assert.deepEqual(bare(got), bare(value === undefined ? without(tree, key) : withValue(tree, key, x)), what);
    if (value !== undefined) {
      assert.equal(read(after, keyOf(key)), value, what);
      assert.equal(set(after, keyOf(key), value), after, what);
    }
    const old = read(text, keyOf(key));
    const { taken, put } = change(text, after);
    // A value takes another's place, a new key takes nothing, and nothing comes where a key went.
    if (value !== undefined && old !== undefined) assert.ok(old.includes(taken), what);
    if (value !== undefined && !paths(tree).some((path) => path.every((part, n) => n >= key.length || part === key[n]))) assert.equal(taken, '', what);
    if (value === undefined && old !== undefined) assert.equal(put, '', what);
  });
});

test('a text that is being typed is read as far as it goes', () => {
  const of = random(SEED + 1);
  for (let at = 0; at < DOCUMENTS; at += 1) {
    const text = new Writer(of).document();
    const torn = text.slice(0, of.below(text.length + 1)) + of.pick(['', '"', '[', '{', ' = ', '\n[']) + text.slice(of.below(text.length + 1));
    for (const key of ['a', 'train.lr', 'a.b.pname']) assert.equal(read(set(torn, key, '17'), key) ?? '17', '17');
    unset(torn, 'train');
  }
});
