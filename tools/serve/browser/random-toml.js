// Random documents, with everywhere what trips up those who read TOML by its lines: comments and brackets inside of
// values, tables in each of their three forms, keys in quotes.

// Numbers from a seed (mulberry32).
export function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = Math.imul(state ^ (state >>> 15), state | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
  const below = (most) => Math.floor(next() * most);
  return { below, chance: (share) => next() < share, pick: (list) => list[below(list.length)] };
}

const NAMES = ['a', 'b', 'lr', 'name', 'train', 'x-1', 'a.b', 'with space', 'quo"te', 'a]', '#', 'é'];
const writtenName = (of, name) => (/^[\w-]+$/.test(name) && !of.chance(0.1) ? name : JSON.stringify(name));

export class Writer {
  constructor(of) { Object.assign(this, { of, comments: 0, newline: of.chance(0.15) ? '\r\n' : '\n' }); }

  comment() { this.comments += 1; return `# c${this.comments}; [x] = "{ ' ]`; }
  blanks() { return this.of.pick(['', '', ' ', '  ', '\t']); }
  gap() { return this.of.chance(0.3) ? this.newline : this.of.chance(0.3) ? `  ${this.comment()}${this.newline}` : ''; }

  scalar() {
    return this.of.pick(['1', '-7', '1e-3', '0.25', 'true', 'false', '""', "''", '"plain"', '"# no comment"', '"] } , ="', '"a\\"b\\\\"', "'raw \\ # ]'",
      `"""one # no comment${this.newline}[two] = "2" """`, `'''${this.newline}raw = ' ] '''`, '"""ends with ""quotes"""""']);
  }

  value(depth = 0) {
    if (depth > 2 || this.of.chance(0.6)) return this.scalar();
    return this.of.chance(0.5) ? this.list(depth) : this.inline(depth);
  }

  list(depth) {
    const items = Array.from({ length: this.of.below(4) }, () => this.gap() + this.blanks() + this.value(depth + 1) + this.blanks() + this.gap());
    const trailing = items.length && this.of.chance(0.3) ? `,${this.gap()}` : '';
    return `[${items.join(',')}${trailing}]`;
  }

  names(most) { return [...new Set(Array.from({ length: this.of.below(most + 1) }, () => this.of.pick(NAMES)))]; }

  // A table on one line; values in it may span several.
  inline(depth) {
    const pairs = this.names(3).map((name) => `${writtenName(this.of, name)}${this.blanks()}=${this.blanks()}${this.value(depth + 1)}`);
    return `{${this.blanks()}${pairs.join(`${this.blanks()},${this.blanks()}`)}${this.blanks()}}`;
  }

  line(text) {
    const before = this.of.chance(0.25) ? `${this.blanks()}${this.comment()}${this.newline}` : this.of.chance(0.15) ? this.newline : '';
    return `${before}${this.blanks()}${text}${this.of.chance(0.3) ? `  ${this.comment()}` : this.blanks()}${this.newline}`;
  }

  pair(prefix, name) { return this.line(`${[...prefix, name].map((part) => writtenName(this.of, part)).join(this.of.pick(['.', '.', ' . ']))}${this.blanks()}=${this.blanks()}${this.value()}`); }

  // Pairs of a table, some of them in tables that dots begin.
  pairs(names, prefix = []) {
    return names.map((name) => (prefix.length < 2 && this.of.chance(0.2) ? this.pairs(this.names(2), [...prefix, name]) : this.pair(prefix, name))).join('');
  }

  tables(path, depth) {
    const header = (parts) => this.line(`[${this.blanks()}${parts.map((part) => writtenName(this.of, part)).join('.')}${this.blanks()}]`);
    return this.names(3).map((name) => {
      const [own, parts] = [this.names(4), [...path, name]];
      const under = depth < 2 ? this.tables(parts, depth + 1) : '';
      // Tables under it have names that its own pairs do not.
      const written = own.length || this.of.chance(0.5) ? header(parts) + this.pairs(own.map((each) => `p${each}`)) : '';
      return this.of.chance(0.8) ? written + under : under + written;
    }).join('');
  }

  listed() { return Array.from({ length: this.of.below(3) }, () => `${this.line('[[listed]]')}${this.pairs(this.names(3))}`).join(''); }

  document() {
    const text = this.pairs(this.names(3).map((name) => `r${name}`)) + this.tables([], 0) + this.listed();
    return this.of.chance(0.2) ? text.replace(/\r?\n$/, '') : text;
  }
}

// The paths of everything in a tree, tables among them.
export function paths(tree, path = []) {
  const isTable = (value) => value && typeof value === 'object' && !Array.isArray(value);
  return Object.entries(tree).flatMap(([name, value]) => [[...path, name], ...(isTable(value) ? paths(value, [...path, name]) : [])]);
}
