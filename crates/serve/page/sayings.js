// Sentences of plimsoll, recognized: they come in English, and a page says them in its own language. A pattern has
// blanks, `{name}`; some names stand for numbers, sizes, keys or words, so that a pattern does not take what is another's.
const SIZE = '[0-9][0-9.]* [KMGTPE]?i?B';
const KINDS = { from: '[0-9][0-9, ]*', to: '[0-9][0-9, ]*', count: '[0-9]+', most: '[0-9.]+', low: '-?[0-9][0-9.e-]*', high: '-?[0-9][0-9.e-]*', key: '[\\w.]+', word: '[\\w-]+', words: '"[^;]*', size: SIZE, total: SIZE, held: SIZE, free: SIZE };
// What stands in these is said as it is.
const VERBATIM = ['key', 'word', 'words', 'path', 'column', 'name'];

// A number as it stands in a text of the language.
function numeric(written, language) {
  const plain = String(written).replace(/\s/g, '');
  return Number(language === 'ru' ? plain.replace(',', '.') : plain.replaceAll(',', ''));
}

// Which of a language's forms goes with a number: `run|runs`, `запуск|запуска|запусков`; a Russian fraction takes the second.
function plural(forms, written, language) {
  const which = new Intl.PluralRules(language).select(numeric(written, language));
  return forms[{ one: 0, few: 1, many: 2, other: 1 }[which]] ?? forms.at(-1);
}

// A text with its blanks filled: `{count}` by the value itself, `{count|run|runs}` by the word that goes with it.
export function filled(text, values, language) {
  return text.replace(/\{(\w+)((?:\|[^{}|]+)*)\}/g, (_, name, forms) => (forms ? plural(forms.slice(1).split('|'), values[name] ?? '', language) : values[name] ?? ''));
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

function compiled([key, pattern]) {
  const parts = pattern.split(/\{(\w+)\}/);
  const source = parts.map((part, at) => (at % 2 ? `(?<${part}>${KINDS[part] || '.+?'})` : escaped(part))).join('');
  return { key, expression: new RegExp(`^${source}$`) };
}

export class Sayings {
  // Patterns by the keys of their texts. Most sentences have no blank and are found at once.
  constructor(patterns) {
    const all = Object.entries(patterns);
    this.whole = new Map(all.filter(([, pattern]) => !pattern.includes('{')).map(([key, pattern]) => [pattern, key]));
    this.patterns = all.filter(([, pattern]) => pattern.includes('{')).map(compiled);
  }

  recognized(text) {
    if (this.whole.has(text)) return { key: this.whole.get(text), values: {} };
    for (const { key, expression } of this.patterns) {
      const found = expression.exec(text);
      if (found) return { key, values: { ...found.groups } };
    }
    return null;
  }

  // The sentence as `say(key, values)` has it; values may be sentences, and several may be strung together or stand on
  // lines of their own. What is not known stays as it is.
  translated(text, say) {
    if (text.includes('\n')) return text.split('\n').map((line) => this.line(line, say)).join('\n');
    const known = this.recognized(text);
    if (!known) return this.strung(text, say) ?? text;
    const values = Object.fromEntries(Object.entries(known.values).map(([name, value]) => [name, VERBATIM.includes(name) ? value : this.translated(value, say)]));
    return say(known.key, values);
  }

  line(line, say) {
    const words = line.trimStart();
    return line.slice(0, line.length - words.length) + this.translated(words, say);
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
