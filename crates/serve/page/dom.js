// Elements without markup in strings: whatever text comes from data stays text.
import { said } from '/words.js';

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = value;
    else if (name === 'width%') element.style.width = `${Math.max(0, Math.min(100, value))}%`;
    else if (name === 'color') element.style.background = value;
    else if (name in element && !['list', 'form', 'type', 'width', 'height'].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
}

// New content in the place of old: what had the focus has it again, by its `data-key`.
export function renew(element, ...children) {
  const active = document.activeElement;
  const alike = () => [...element.querySelectorAll(`[data-key="${CSS.escape(active.dataset.key)}"]`)];
  const at = element.contains(active) && active.dataset.key ? alike().indexOf(active) : -1;
  replace(element, ...children);
  if (at >= 0) alike()[at]?.focus({ preventScroll: true });
}

// What went wrong, as the server says it.
export const complaint = (error) => h('p', { class: 'notice bad', role: 'alert' }, [said(error.message), said(error.hint)].filter(Boolean).join('\n'));

// A table from columns {name, cell, number, unseen}; on phones each row becomes a card. A quiet caption is for who does not
// see the heading above it.
export function table(caption, columns, rows, rowProps = () => ({}), { quiet = false } = {}) {
  const head = columns.map((column) => h('th', { scope: 'col', class: column.number ? 'n' : undefined }, column.unseen ? h('span', { class: 'quiet' }, column.unseen) : column.name));
  const body = rows.map((row) => h('tr', rowProps(row), columns.map((column) =>
    h('td', { class: column.number ? 'n' : undefined, 'data-name': column.name || '' }, column.cell(row)))));
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption, 'data-key': 'table' },
    h('table', { class: 'cards-on-phone' }, h('caption', {}, quiet ? h('span', { class: 'quiet' }, caption) : caption), h('thead', {}, h('tr', {}, head)), h('tbody', {}, body)));
}

// Says something to screen readers, once.
export function announce(text) {
  document.getElementById('says').textContent = text;
}

let lastId = 0;
export const freshId = () => `i${++lastId}`;
