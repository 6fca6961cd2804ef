// What "Copy as command" copies is run by a shell here, in an empty folder, with a plimsoll that writes down its words.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { quoted, recipeCommand } from '../../../crates/serve/page/shell.js';

const HOSTILE = ['$(touch hacked)', '`touch hacked`', '; touch hacked', "'; touch hacked; '", '" ; touch hacked #', '90%; touch hacked', '| touch hacked', '&& touch hacked', '>hacked', '*', '~', '!!', '\\', 'a b', 'a\nb', '--flag', '#', 'é', '[a]', '{a,b}', '%', ''];

function ran(command) {
  const folder = mkdtempSync(join(tmpdir(), 'plimsoll-shell-'));
  try {
    writeFileSync(join(folder, 'plimsoll'), '#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done > said\n');
    chmodSync(join(folder, 'plimsoll'), 0o755);
    execFileSync('sh', ['-eu'], { cwd: folder, input: command, env: { PATH: `${folder}:/usr/bin:/bin`, HOME: folder } });
    return { words: readFileSync(join(folder, 'said'), 'utf8').split('\0').slice(0, -1), files: Object.fromEntries(readdirSync(folder).filter((name) => !['plimsoll', 'said'].includes(name)).map((name) => [name, readFileSync(join(folder, name), 'utf8')])) };
  } finally { rmSync(folder, { recursive: true, force: true }); }
}

test('every word comes through a shell as it is', () => {
  const { words, files } = ran(`plimsoll ${HOSTILE.map(quoted).join(' ')}\n`);
  assert.deepEqual(words, HOSTILE);
  assert.deepEqual(files, {});
});

test('no name, device or text runs anything', () => {
  const text = HOSTILE.map((value) => `x = '''${value}'''`).join('\nRECIPE\n');
  for (const word of HOSTILE.filter((each) => each !== '')) {
    const { words, files } = ran(recipeCommand({ verb: 'train', text, name: word, device: word }));
    const file = `${word.startsWith('-') ? './' : ''}${word}.toml`;
    assert.deepEqual(words, ['train', file, '--device', word]);
    assert.deepEqual(files, { [`${word}.toml`]: `${text}\n` });
  }
});

test('what needs no quotes has none', () => {
  assert.equal(recipeCommand({ verb: 'train', text: 'a = 1\n\n', name: 'quickstart', device: 'cuda:0' }), "cat > quickstart.toml <<'RECIPE'\na = 1\nRECIPE\nplimsoll train quickstart.toml --device cuda:0\n");
  assert.match(recipeCommand({ verb: 'plan', text: 'a = 1', name: 'quickstart', device: 'rtx-4090' }), /\nplimsoll plan quickstart\.toml --device rtx-4090\n$/);
});
