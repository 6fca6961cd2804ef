// Reads and changes single keys of a recipe's text and leaves the rest, comments too, as it is.

// The end of a value that starts at `from`: strings, lists and inline tables are passed over whole.
function valueEnd(text, from, stops) {
  let depth = 0;
  for (let at = from; at < text.length; at += 1) {
    const c = text[at];
    if (c === '"' || c === "'") {
      const close = text.startsWith(c.repeat(3), at) ? c.repeat(3) : c;
      at += close.length;
      while (at < text.length && !text.startsWith(close, at)) at += c === '"' && text[at] === '\\' ? 2 : 1;
      at += close.length - 1;
    } else if (c === '[' || c === '{') depth += 1;
    else if (depth === 0 && stops.includes(c)) return at;
    else if (c === ']' || c === '}') depth -= 1;
    else if (c === '#' && depth === 0) return at;
  }
  return text.length;
}

const trimmed = (text, from, to) => { while (to > from && /\s/.test(text[to - 1])) to -= 1; return [from, to]; };
const bare = (name) => name.trim().replace(/^["']|["']$/g, '');

// Every `key = value` of the text with its table and the place of its value.
function entries(text) {
  const found = [];
  let table = '';
  let at = 0;
  while (at < text.length) {
    const end = text.indexOf('\n', at) < 0 ? text.length : text.indexOf('\n', at);
    const line = text.slice(at, end);
    const header = line.match(/^\s*\[\s*([^\]\[]+?)\s*\]/);
    const pair = line.match(/^\s*([A-Za-z0-9_."'-]+)\s*=\s*/);
    if (header) { table = header[1].split('.').map(bare).join('.'); found.push({ table, header: true, end }); at = end + 1; continue; }
    if (!pair) { at = end + 1; continue; }
    const start = at + pair[0].length;
    const stop = valueEnd(text, start, '\n');
    const [from, to] = trimmed(text, start, stop);
    const key = pair[1].split('.').map(bare).join('.');
    found.push({ table, key: table ? `${table}.${key}` : key, from, to });
    const next = text.indexOf('\n', stop);
    at = next < 0 ? text.length : next + 1;
  }
  return found;
}

// The pairs inside `{ a = 1, b = "x" }`, by place.
function inline(text, from, to, prefix) {
  const found = [];
  let at = from + 1;
  while (at < to - 1) {
    const pair = text.slice(at, to - 1).match(/^[\s,]*([A-Za-z0-9_."'-]+)\s*=\s*/);
    if (!pair) break;
    const start = at + pair[0].length;
    const stop = Math.min(valueEnd(text, start, ',}'), to - 1);
    const [first, last] = trimmed(text, start, stop);
    found.push({ key: `${prefix}.${bare(pair[1])}`, from: first, to: last });
    at = stop;
  }
  return found;
}

function place(text, key) {
  for (const entry of entries(text)) {
    if (entry.key === key) return entry;
    if (entry.key && key.startsWith(`${entry.key}.`) && text[entry.from] === '{') {
      const inner = inline(text, entry.from, entry.to, entry.key);
      return inner.find((pair) => pair.key === key) || { inside: entry, empty: inner.length === 0 };
    }
  }
  return null;
}

export function read(text, key) {
  const found = place(text, key);
  return found && found.from !== undefined ? text.slice(found.from, found.to) : undefined;
}

// A value as TOML writes it.
export function write(value) {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (Array.isArray(value)) return `[${value.map(write).join(', ')}]`;
  if (value && typeof value === 'object') return `{ ${Object.entries(value).map(([name, of]) => `${name} = ${write(of)}`).join(', ')} }`;
  return JSON.stringify(String(value));
}

// What somebody typed: a TOML value where it is one, otherwise a string.
export function typed(text) {
  const value = text.trim();
  return /^(true|false|[-+]?[0-9][0-9_]*(\.[0-9]+)?([eE][-+]?[0-9]+)?|".*"|'.*'|\[.*\]|\{.*\})$/s.test(value) ? value : JSON.stringify(value);
}

// The text with a key set to a value that is already written as TOML.
export function set(text, key, value) {
  const found = place(text, key);
  if (found && found.from !== undefined) return text.slice(0, found.from) + value + text.slice(found.to);
  const name = key.slice(key.lastIndexOf('.') + 1);
  if (found && found.inside) {
    const at = found.inside.to - 1;
    const [, before] = trimmed(text, found.inside.from, at);
    return `${text.slice(0, before)}${found.empty ? '' : ','} ${name} = ${value} ${text.slice(at)}`;
  }
  return add(text, key.includes('.') ? key.slice(0, key.lastIndexOf('.')) : '', name, value);
}

// A new line at the end of its table, or a new table at the end of the text.
function add(text, table, name, value) {
  const all = entries(text);
  const header = all.find((entry) => entry.header && entry.table === table);
  const line = `${name} = ${value}`;
  if (table === '') return `${line}\n${text}`;
  if (!header) {
    const outer = table.includes('.') ? all.find((entry) => entry.header && entry.table === table.split('.')[0]) : null;
    if (outer) return add(text, table.split('.')[0], `${table.split('.').slice(1).join('.')}.${name}`, value);
    return `${text.replace(/\s*$/, '\n')}\n[${table}]\n${line}\n`;
  }
  const own = all.filter((entry) => entry.table === table && !entry.header);
  const last = own.length ? own[own.length - 1].to : header.end;
  const end = text.indexOf('\n', last) < 0 ? text.length : text.indexOf('\n', last);
  return `${text.slice(0, end)}\n${line}${text.slice(end)}`;
}

// The text without a key that stands on a line of its own.
export function unset(text, key) {
  const found = entries(text).find((entry) => entry.key === key);
  if (!found) return text;
  const from = text.lastIndexOf('\n', found.from) + 1;
  const end = text.indexOf('\n', found.to) < 0 ? text.length : text.indexOf('\n', found.to) + 1;
  return text.slice(0, from) + text.slice(end);
}
