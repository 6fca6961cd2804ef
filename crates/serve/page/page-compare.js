// Runs over each other: their curves, and only the settings in which they differ.
import { back, get } from '/api.js';
import { chart, joined, lineColor } from '/charts.js';
import { complaint, h, replace, table } from '/dom.js';
import { bytes, count, plain, seconds } from '/format.js';
import { badge, score } from '/page-runs.js';
import { smooth, title } from '/page-run.js';
import { t } from '/words.js';

const MOST = 12;
const LISTED = 60;
const LONGEST_LABEL = 36;

export async function open(main, _rest, query) {
  const asked = new Set(query.getAll('run'));
  const runs = await get('/runs');
  const comparison = new Comparison(runs);
  const choose = (id, on) => {
    if (on) asked.add(id); else asked.delete(id);
    // The list stays open and as it is: the address changes, and what is below.
    history.replaceState(null, '', `#/compare?${[...asked].map((name) => `run=${encodeURIComponent(name)}`).join('&')}`);
    comparison.show([...asked]);
  };
  replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, t('nav.compare')), h('p', { class: 'lead' }, t('compare.lead')))), h('section', { class: 'panel' }, h('details', { open: asked.size < 2 }, h('summary', {}, t('compare.pick')), picker(runs, asked, choose))), comparison.notices, comparison.place);
  comparison.show([...asked]);
  return () => comparison.close();
}

class Comparison {
  constructor(runs) {
    Object.assign(this, { runs, turn: 0, drawn: [], notices: h('div', { class: 'panel-part' }), place: h('div', { class: 'panel-part' }) });
  }

  close() {
    this.turn += 1;
    this.clear();
  }

  clear() {
    this.drawn.forEach((each) => each.destroy());
    this.drawn = [];
  }

  // What waits for its first step has nothing to show yet; one that is taken up again has.
  waits(id) { return this.runs.some((run) => run.id === id && ['queued', 'starting'].includes(run.state) && !run.step); }

  // Of choices that follow each other fast, the last one is drawn.
  async show(asked) {
    this.turn += 1;
    const mine = this.turn;
    try {
      const { notices, answer } = await this.answer(asked);
      if (mine !== this.turn) return;
      this.clear();
      replace(this.notices, notices);
      replace(this.place);
      if (answer.runs.length) this.drawn = show(this.place, answer);
    } catch (error) {
      if (mine !== this.turn) return;
      replace(this.notices, complaint(error));
      if (error.status === 0) { await back(); if (mine === this.turn) this.show(asked); }
    }
  }

  async answer(asked) {
    if (asked.some((id) => this.waits(id))) this.runs = await get('/runs');
    const waiting = asked.filter((id) => this.waits(id));
    const answer = await compared(asked.filter((id) => !waiting.includes(id)).slice(0, MOST));
    const most = asked.length > MOST ? notice(t('compare.most', { most: MOST }), 'warn') : '';
    return { answer, notices: [most, waiting.map((id) => notice(t('compare.waits', { id }))), answer.unknown.map((id) => notice(t('compare.gone', { id }), 'warn'))] };
  }
}

// The runs that there are; where none of them is, that is what is said.
async function compared(chosen) {
  if (!chosen.length) return { unknown: [], runs: [] };
  try { return await get(`/compare?${chosen.map((id) => `run=${encodeURIComponent(id)}`).join('&')}`); } catch (error) {
    if (error.status !== 404) throw error;
    return { unknown: chosen, runs: [] };
  }
}

const notice = (text, kind = '') => h('p', { class: `notice ${kind}` }, text);

// All runs to choose from: those that are chosen first, then those that a search finds.
function picker(runs, chosen, choose) {
  const place = h('div', { class: 'picks', role: 'group', 'aria-label': t('compare.pick') });
  const search = h('input', { type: 'search', placeholder: t('runs.search'), 'aria-label': t('runs.search'), oninput: () => list() });
  const box = (id) => h('label', { class: 'row hint', title: id }, h('input', { type: 'checkbox', value: id, checked: chosen.has(id), onchange: (event) => choose(id, event.target.checked) }), h('span', {}, id));
  function list() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = runs.map((run) => run.id).filter((id) => !chosen.has(id) && words.every((word) => id.toLowerCase().includes(word)));
    const hidden = found.length - LISTED;
    replace(place, [...chosen, ...found.slice(0, LISTED)].map(box), hidden > 0 ? h('p', { class: 'hint' }, t('compare.hidden', { count: count(hidden) })) : '');
  }
  list();
  return h('div', { class: 'panel-part' }, search, place);
}

// Both ends of a long name: runs of one recipe differ in their last letters.
function short(id) {
  const letters = [...id];
  return letters.length <= LONGEST_LABEL ? id : [...letters.slice(0, LONGEST_LABEL - 13), '…', ...letters.slice(-12)].join('');
}

function show(place, { settings, runs, curves }) {
  const name = (run, at) => h('span', { class: 'row', title: run.id }, h('span', { class: 'swatch', color: `var(${lineColor(at)})` }), h('a', { href: `#/run/${encodeURIComponent(run.id)}` }, short(run.id)));
  const facts = table(t('compare.runs'), [
    { name: t('runs.name'), cell: ({ run, at }) => name(run, at) }, { name: t('runs.state'), cell: ({ run }) => badge(run.state) },
    { name: t('runs.best'), number: true, cell: ({ run }) => score(run.best) }, { name: t('metric.loss'), number: true, cell: ({ run }) => plain(run.smoothed_loss ?? run.loss) },
    { name: t('metric.samples_per_s'), number: true, cell: ({ run }) => plain(run.samples_per_s, 0) }, { name: t('runs.peak'), number: true, cell: ({ run }) => bytes(run.measured_peak_bytes) }, { name: t('run.took'), number: true, cell: ({ run }) => seconds(run.seconds) },
  ], runs.map((run, at) => ({ run, at })));
  const shown = (value) => (value === null ? '–' : typeof value === 'object' ? JSON.stringify(value) : String(value));
  const differ = Object.keys(settings).length ? table(t('compare.settings'), [{ name: t('compare.key'), cell: (key) => h('span', { class: 'mono' }, key) }, ...runs.map((run, at) => ({ name: short(run.id), cell: (key) => shown(settings[key][at]) }))], Object.keys(settings), () => ({}), { quiet: true }) : h('p', { class: 'hint' }, t('compare.same'));
  const charts = h('div', { class: 'charts' });
  replace(place, h('section', { class: 'panel' }, facts), h('section', { class: 'panel' }, h('h2', {}, t('compare.settings')), differ), h('section', { class: 'panel' }, h('h2', {}, t('run.learning')), charts));
  return draw(charts, runs, curves);
}

function draw(charts, runs, curves) {
  const drawn = [];
  const add = (label, tables, points, wide) => {
    const place = h('div', { class: 'chart' });
    charts.append(h('div', { class: wide ? 'wide' : undefined }, h('h3', {}, label), place));
    drawn.push(chart(place, label, runs.map((run, at) => ({ label: short(run.id), color: lineColor(at), points })), joined(tables), { height: wide ? 300 : 200 }));
  };
  const column = (table, name, change = (values) => values) => [table.step, change(table.columns[name] || table.step.map(() => null))];
  add(`${t('metric.loss')} (${t('run.smooth')})`, curves.map((each) => column(each.steps, 'loss', smooth)), false, true);
  const scores = [...new Set(curves.flatMap((each) => Object.keys(each.evaluations.columns)))].filter((name) => ['loss', 'accuracy', 'f1', 'pearson', 'spearman'].includes(name));
  scores.forEach((name) => add(`${t('run.evaluation')}: ${title(name)}`, curves.map((each) => column(each.evaluations, name)), true));
  ['lr', 'norm', 'samples_per_s'].forEach((name) => add(title(name), curves.map((each) => column(each.steps, name))));
  return drawn;
}
