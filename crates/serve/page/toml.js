// Reads and changes single keys of a recipe's text and leaves the rest, comments too, byte for byte as it is. Keys are
// written as TOML writes them: `train.optimizer.lr`, `search."train.epochs"`. A text that is being typed may be broken
// anywhere: what cannot be read is passed over.

const lineEnd = (text, at) => { const end = text.indexOf('\n', at); return end < 0 ? text.length : end; };

// The place after blanks.
function pastBlanks(text, from, blank) {
  let at = from;
  while (at < text.length && blank.includes(text[at])) at += 1;
  return at;
}

// The place after blanks, line ends and comments.
function past(text, from) {
  for (let at = from; ;) {
    at = pastBlanks(text, at, ' \t\r\n\uFEFF');
    if (text[at] !== '#') return at;
    at = lineEnd(text, at);
  }
}

// Where a string that starts at `from` ends. One that is never closed ends with its line, or with the text.
function stringEnd(text, from) {
  const quote = text[from];
  const long = text.startsWith(quote.repeat(3), from);
  const close = long ? quote.repeat(3) : quote;
  let at = from + close.length;
  while (at < text.length && !text.startsWith(close, at)) {
    if (!long && text[at] === '\n') return at;
    at += quote === '"' && text[at] === '\\' ? 2 : 1;
  }
  at += close.length;
  // Up to two quotes may stand before those that close.
  while (long && text[at] === quote) at += 1;
  return Math.min(at, text.length);
}

// The end of a value that starts at `from`: strings, lists, tables and the comments inside them are passed over whole.
// Outside of all brackets one of `stops`, or a comment, is no part of it.
function valueEnd(text, from, stops, opened = 0) {
  let depth = opened;
  let end = from;
  for (let at = from; at < text.length;) {
    const c = text[at];
    if (depth === 0 && (c === '#' || stops.includes(c))) break;
    if (c === '#') { at = lineEnd(text, at); continue; }
    if ('[{'.includes(c)) depth += 1;
    if (']}'.includes(c)) depth = Math.max(0, depth - 1);
    at = '"\''.includes(c) ? stringEnd(text, at) : at + 1;
    if (!' \t\r\n'.includes(c)) end = at;
  }
  return end;
}

function bareEnd(text, from) {
  const bare = /[A-Za-z0-9_-]+/y;
  bare.lastIndex = from;
  return from + (bare.exec(text)?.[0].length ?? 0);
}

function unquoted(written) {
  if (written[0] === '"') { try { return JSON.parse(written); } catch { /* an escape that only TOML knows */ } }
  return written.slice(1, -1);
}

// `a."b.c" . d` from a place on: its parts, and what comes after it. Nothing where no key stands there.
function keyAt(text, from) {
  const parts = [];
  for (let at = from; ;) {
    at = pastBlanks(text, at, ' \t');
    const isQuoted = text[at] === '"' || text[at] === "'";
    const to = isQuoted ? stringEnd(text, at) : bareEnd(text, at);
    if (to === at) return null;
    parts.push(isQuoted ? unquoted(text.slice(at, to)) : text.slice(at, to));
    const next = pastBlanks(text, to, ' \t');
    if (text[next] !== '.') return { parts, next };
    at = next + 1;
  }
}

// A header, `[a.b]` or `[[a.b]]`. Tables of a list have their number in their path, which no key names: they are not told
// apart by one.
function headerAt(text, from, lists) {
  const [open, close] = text.startsWith('[[', from) ? ['[[', ']]'] : ['[', ']'];
  const key = keyAt(text, from + open.length);
  if (!key || !text.startsWith(close, key.next)) return null;
  const path = numbered(key.parts, lists);
  if (open === '[[') {
    lists.set(path.join('\0'), (lists.get(path.join('\0')) ?? -1) + 1);
    path.push(lists.get(path.join('\0')));
  }
  return { isHeader: true, path, from, to: key.next + close.length };
}

// A table under a list is one of its last table.
function numbered(parts, lists) {
  return parts.reduce((path, part, at) => {
    const number = lists.get([...path, part].join('\0'));
    return [...path, part, ...(number !== undefined && at < parts.length - 1 ? [number] : [])];
  }, []);
}

// `key = value` from a place on, and where its value is.
function pairAt(text, from, table, stops) {
  const key = keyAt(text, from);
  if (!key || text[key.next] !== '=') return null;
  const start = pastBlanks(text, key.next + 1, ' \t');
  return { path: [...table, ...key.parts], table, from, start, to: valueEnd(text, start, stops) };
}

// Every header and pair of the text, in order.
function entries(text) {
  const [found, lists] = [[], new Map()];
  let table = [];
  for (let at = past(text, 0); at < text.length;) {
    const entry = text[at] === '[' ? headerAt(text, at, lists) : pairAt(text, at, table, '\n');
    if (entry?.isHeader) table = entry.path;
    if (entry) found.push(entry);
    at = past(text, lineEnd(text, entry ? entry.to : at));
  }
  return found;
}

// The pairs of an inline table.
function inside(text, { path, start, to }) {
  const found = [];
  for (let at = past(text, start + 1); at < to - 1;) {
    const pair = pairAt(text, at, path, ',}\n');
    if (!pair) break;
    found.push(pair);
    at = past(text, pair.to);
    if (text[at] === ',') at = past(text, at + 1);
  }
  return found;
}

const begins = (path, parts) => parts.length <= path.length && parts.every((part, at) => part === path[at]);
const parsed = (key) => keyAt(key, 0)?.parts ?? [key];
const shown = (parts) => parts.map((part) => (/^[A-Za-z0-9_-]+$/.test(part) ? part : string(part))).join('.');

// What stands at a key: its own pair, the inline table that holds it or would, or a value in its way that is no table.
// `among` are the entries beside it.
function find(document, parts, among = entries(document), holder = null) {
  const onTheWay = among.find((entry) => !entry.isHeader && begins(parts, entry.path));
  if (!onTheWay) return { among, holder };
  if (onTheWay.path.length === parts.length) return { own: onTheWay, among, holder };
  if (document[onTheWay.start] !== '{') return { blocked: onTheWay, among, holder };
  return find(document, parts, inside(document, onTheWay), onTheWay);
}

export function read(document, key) {
  const { own } = find(document, parsed(key));
  return own && document.slice(own.start, own.to);
}

// A string as TOML writes it.
const string = (value) => JSON.stringify(value.toWellFormed?.() ?? value).replaceAll('\x7f', '\\u007f');

// A value as TOML writes it.
export function write(value) {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (Array.isArray(value)) return `[${value.map(write).join(', ')}]`;
  if (value && typeof value === 'object') return `{ ${Object.entries(value).map(([name, of]) => `${shown([name])} = ${write(of)}`).join(', ')} }`;
  return string(String(value));
}

// What somebody typed: a TOML value where it is one, otherwise a string.
export function typed(written) {
  const value = written.trim();
  const isScalar = /^(true|false|[-+]?(0|[1-9][0-9]*(_[0-9]+)*)(\.[0-9]+)?([eE][-+]?[0-9]+)?)$/.test(value);
  return isScalar || isWhole(value) ? value : string(value);
}

const ANY = { includes: () => true };

// Whether one string, list or inline table, from its opening to its closing, is all there is.
function isWhole(value) {
  if (/^("([^"\\\n]|\\.)*"|'[^'\n]*')$/.test(value)) return true;
  const close = { '[': ']', '{': '}' }[value[0]];
  return value.length > 1 && value.at(-1) === close && valueEnd(value, 1, ANY, 1) === value.length;
}

const replaced = (document, from, to, by) => document.slice(0, from) + by + document.slice(to);

// The document with a key set to a value that is already written as TOML. A value in its way becomes a table.
export function set(document, key, value) {
  const parts = parsed(key);
  const { own, blocked } = find(document, parts);
  if (own) return replaced(document, own.start, own.to, value);
  if (blocked) return replaced(document, blocked.start, blocked.to, `{ ${shown(parts.slice(blocked.path.length))} = ${value} }`);
  const cleared = unset(document, key);
  const { among, holder } = find(cleared, parts);
  return holder ? addInside(cleared, holder, among, parts, value) : add(cleared, among, parts, value);
}

function addInside(document, holder, pairs, parts, value) {
  const pair = `${shown(parts.slice(holder.path.length))} = ${value}`;
  const last = pairs.at(-1);
  if (last) return replaced(document, last.to, last.to, `, ${pair}`);
  return replaced(document, holder.start + 1, pastBlanks(document, holder.start + 1, ' \t'), ` ${pair} `);
}

const endOfLine = (document) => (document.includes('\r\n') ? '\r\n' : '\n');

// A line under the one that `at` is in.
function addLine(document, at, line) {
  const [end, newline] = [lineEnd(document, at), endOfLine(document)];
  return end === document.length ? `${document}${newline}${line}` : replaced(document, end + 1, end + 1, line + newline);
}

// In the table that is nearest to the key, or in a new one at the end.
function add(document, all, parts, value) {
  const near = nearest(all, parts);
  if (near) return addLine(document, near.entry.to, `${shown(parts.slice(near.table))} = ${value}`);
  const [line, newline] = [`${shown(parts.slice(-1))} = ${value}`, endOfLine(document)];
  if (parts.length === 1) { const top = document.startsWith('\uFEFF') ? 1 : 0; return replaced(document, top, top, line + newline); }
  const gap = document === '' ? '' : document.endsWith('\n') ? newline : newline.repeat(2);
  return `${document}${gap}[${shown(parts.slice(0, -1))}]${newline}${line}${newline}`;
}

// The entry after which a key belongs: the last of the deepest table that a header or dotted keys have begun for it.
function nearest(all, parts) {
  let best = null;
  let table = [];
  for (const entry of all) {
    if (entry.isHeader) table = entry.path;
    const depth = entry.isHeader ? entry.path.length : shared(entry.path.slice(0, -1), parts.slice(0, -1));
    const reaches = begins(parts.slice(0, -1), entry.isHeader ? entry.path : table) && depth >= table.length;
    if (reaches && depth >= (best?.depth ?? 0)) best = { entry, depth, table: table.length };
  }
  return best && isFree(all, parts, best) ? best : null;
}

const shared = (one, other) => { let at = 0; while (at < one.length && one[at] === other[at]) at += 1; return at; };

// Dotted keys may not go on with a table that headers have begun; and at the root they would stand far from their like.
function isFree(all, parts, { depth, table }) {
  if (parts.length - table === 1) return true;
  if (depth === 0) return false;
  return !all.some((entry) => entry.isHeader && entry.path.length > depth && begins(entry.path, parts.slice(0, depth + 1)));
}

// The document without a key and all that is under it.
export function unset(document, key) {
  const parts = parsed(key);
  const { own, among, holder } = find(document, parts);
  // The last one first: pairs would be another table's without their header.
  const gone = own ?? among.findLast((entry) => begins(entry.path, parts));
  if (!gone) return document;
  return unset(holder ? cutPair(document, among, gone) : cutLines(document, gone), key);
}

function cutLines(document, { from, to }) {
  return replaced(document, document.lastIndexOf('\n', from) + 1, lineEnd(document, to) + 1, '');
}

// With the comma before it, or after it where it is the first.
function cutPair(document, pairs, pair) {
  const at = pairs.indexOf(pair);
  if (at > 0) return replaced(document, pairs[at - 1].to, pair.to, '');
  return replaced(document, pair.from, pairs[1]?.from ?? pastBlanks(document, pair.to, ' \t'), '');
}
