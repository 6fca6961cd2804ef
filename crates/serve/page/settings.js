// All settings of a recipe, one field each: what the planner filled in, and what may stand there.
import { h, replace } from '/dom.js';
import * as toml from '/toml.js';
import { said, t } from '/words.js';

const MOST = 150;

export class AllSettings {
  // `edit` is called with a key and what was typed for it, which may be nothing.
  constructor(keys, edit) {
    Object.assign(this, { keys: keys.filter((key) => key.key !== 'dir'), edit, settings: {}, fields: new Map() });
    this.list = h('div', { class: 'form' });
    this.more = h('p', { class: 'hint' });
    this.search = h('input', { type: 'search', placeholder: t('new.search'), 'aria-label': t('new.search'), oninput: () => this.refresh() });
    this.element = h('details', { ontoggle: () => this.refresh() }, h('summary', {}, t('new.all')), this.search, this.list, this.more);
  }

  show(settings) {
    this.settings = settings;
    this.refresh();
  }

  refresh() {
    if (!this.element.open) return;
    const found = this.keys.filter((key) => this.applies(key) && this.isSearched(key));
    this.arrange(found.slice(0, MOST).map((key) => this.field(key)));
    this.more.textContent = found.length > MOST ? t('new.more', { count: found.length - MOST }) : '';
  }

  applies(key) {
    const { 'model.family': family, 'train.task': task } = this.settings;
    return key.uses.some((use) => (use.families.includes(family) || !family) && (use.tasks.includes(task) || !task));
  }

  isSearched(key) { return `${key.key} ${key.about} ${said(key.about)}`.toLowerCase().includes(this.search.value.toLowerCase()); }

  // What is being typed stays as it is.
  field(key) {
    const field = this.fields.get(key.key) ?? this.made(key);
    const value = this.settings[key.key];
    if (document.activeElement !== field.input) field.input.value = value === undefined ? '' : typeof value === 'object' ? toml.write(value) : String(value);
    return field.element;
  }

  made(key) {
    const input = h('input', { spellcheck: false, placeholder: said(key.unset || ''), onchange: () => this.edit(key.key, input.value.trim()) });
    const types = [...new Set(key.uses.map((use) => use.type))].map(said).join('; ');
    const field = { input, element: h('label', { class: 'field' }, h('span', { class: 'mono' }, key.key), input, h('span', { class: 'hint' }, `${said(key.about)} (${types})`)) };
    this.fields.set(key.key, field);
    return field;
  }

  // An element that is put in its place again loses the focus.
  arrange(elements) {
    const isSame = elements.length === this.list.children.length && elements.every((element, at) => element === this.list.children[at]);
    if (isSame) return;
    const focused = document.activeElement;
    replace(this.list, elements);
    if (this.list.contains(focused)) focused.focus();
  }
}
