// Curves are seen against what they are drawn on, in each theme.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';

const style = readFileSync(new URL('../../../crates/serve/page/style.css', import.meta.url), 'utf8');
// Each block that says colours of a theme: the light one, the dark one by the system's wish, the dark one by the button.
const themes = [...style.matchAll(/:root(?::not\(\[data-theme=light\]\)|\[data-theme=dark\])? \{([^}]*--panel[^}]*)\}/g)].map(([, block]) => Object.fromEntries([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6})/g)].map(([, name, color]) => [name, color])));

function luminance(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16) / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

test('curves stand out from the panel, three to one', () => {
  assert.equal(themes.length, 3);
  for (const theme of themes) {
    const curves = Object.keys(theme).filter((name) => name.startsWith('curve-'));
    assert.equal(curves.length, 13);
    for (const name of curves) assert.ok(contrast(theme[name], theme.panel) >= 3, `${name} ${theme[name]} on ${theme.panel}`);
  }
  assert.deepEqual(themes[1], themes[2], 'both ways into the dark are one theme');
});
