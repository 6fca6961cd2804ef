// Sentences of the planner, recognized: they come in English, and a page says them in its own language. A pattern has
// blanks, `{name}`; some names stand for numbers, keys or words, so that a pattern does not take what is another's.
const KINDS = { from: '[0-9][0-9, ]*', to: '[0-9][0-9, ]*', count: '[0-9]+', most: '[0-9]+', key: '[\\w.]+', word: '[\\w-]+' };

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

function compiled([key, pattern]) {
  const parts = pattern.split(/\{(\w+)\}/);
  const source = parts.map((part, at) => (at % 2 ? `(?<${part}>${KINDS[part] || '.+?'})` : escaped(part))).join('');
  return { key, expression: new RegExp(`^${source}$`, 's') };
}

export class Sayings {
  constructor(patterns) { this.patterns = Object.entries(patterns).map(compiled); }

  recognized(text) {
    for (const { key, expression } of this.patterns) {
      const found = expression.exec(text);
      if (found) return { key, values: { ...found.groups } };
    }
    return null;
  }

  // The sentence as `say(key, values)` has it; values may be sentences, and several may be strung together. What is not
  // known stays as it is.
  translated(text, say) {
    const known = this.recognized(text);
    if (!known) return this.strung(text, say) ?? text;
    const values = Object.fromEntries(Object.entries(known.values).map(([name, value]) => [name, this.translated(value, say)]));
    return say(known.key, values);
  }

  strung(text, say) {
    for (const between of ['; ', ', ']) {
      for (let at = text.indexOf(between); at >= 0; at = text.indexOf(between, at + 1)) {
        const [first, rest] = [text.slice(0, at), text.slice(at + between.length)];
        if (this.recognized(first)) return this.translated(first, say) + between + this.translated(rest, say);
      }
    }
    return null;
  }
}
