// All runs: what they are at, and which to compare.
import { server, watched } from '/api.js';
import { complaint, h, renew, replace, table } from '/dom.js';
import { ago, bytes, count, percent, plain, seconds } from '/format.js';
import { t } from '/words.js';

const EVERY_MS = 2000;
// Rows that are shown at first, and with every "more".
const AT_A_TIME = 1000;
// How long ago something was is said anew.
const AGO_MS = 20000;

export function badge(state) { return h('span', { class: `badge ${state}` }, t(`state.${state}`)); }
export function progress(run) {
  const done = run.steps ? Math.min(100, 100 * run.step / run.steps) : 0;
  const label = t('runs.progress', { step: count(run.step), steps: count(run.steps) });
  return h('div', { title: label }, h('div', { class: 'bar', role: 'progressbar', 'aria-label': label, 'aria-valuenow': Math.round(done), 'aria-valuemin': 0, 'aria-valuemax': 100 }, h('div', { 'width%': done })), h('span', { class: 'hint' }, label));
}
export function score(of) {
  if (!of) return '–';
  if (of.accuracy !== undefined) return percent(of.accuracy);
  return `${t('metric.loss')} ${plain(of.loss)}`;
}

export async function open(main) {
  const chosen = new Set();
  const search = h('input', { type: 'search', placeholder: t('runs.search'), 'aria-label': t('runs.search') });
  const compare = h('a', { class: 'button', href: '#/compare' }, t('runs.compare', { count: 0 }));
  const place = h('div', { class: 'panel' }, h('p', { class: 'hint' }, t('loading')));
  let runs = [];
  let most = AT_A_TIME;
  const update = () => { renew(place, runs.length ? list() : nothing()); };
  const choose = (id, on) => {
    if (on) chosen.add(id); else chosen.delete(id);
    compare.textContent = t('runs.compare', { count: chosen.size });
    compare.href = `#/compare?${[...chosen].map((name) => `run=${encodeURIComponent(name)}`).join('&')}`;
  };
  search.addEventListener('input', update);
  replace(main, h('div', { class: 'head' }, h('h1', {}, t('nav.runs')), h('div', { class: 'row' }, search, compare, !server.read_only && h('a', { class: 'button main', href: '#/new' }, t('runs.new')))), place);

  function nothing() {
    return h('div', { class: 'empty' }, h('img', { src: '/icon.svg', alt: '', width: 72, height: 72 }), h('h2', {}, t('runs.none')), h('p', { class: 'lead' }, t('runs.none.lead')), !server.read_only && h('a', { class: 'button main', href: '#/new?recipe=quickstart' }, t('runs.quickstart')));
  }
  function list() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => `${run.id} ${run.recipe || ''} ${run.state} ${t(`state.${run.state}`)} ${run.device || ''}`.toLowerCase();
    const found = runs.filter((run) => words.every((word) => text(run).includes(word)));
    const shown = found.slice(0, most);
    const left = found.length - shown.length;
    const more = left > 0 && h('button', { type: 'button', 'data-key': 'more', onclick: () => { most += AT_A_TIME; update(); } }, t('runs.more', { count: Math.min(left, AT_A_TIME) }));
    const box = (run) => h('input', { type: 'checkbox', checked: chosen.has(run.id), 'data-key': `choose ${run.id}`, 'aria-label': t('runs.choose', { id: run.id }), onchange: (event) => choose(run.id, event.target.checked) });
    return [table(t('runs.caption', { count: found.length }), [
      { unseen: t('runs.chosen'), cell: box },
      { name: t('runs.name'), cell: (run) => h('a', { href: `#/run/${encodeURIComponent(run.id)}`, 'data-key': `open ${run.id}` }, run.id) },
      { name: t('runs.state'), cell: (run) => badge(run.state) },
      { name: t('runs.step'), cell: progress },
      { name: t('metric.loss'), number: true, cell: (run) => plain(run.smoothed_loss ?? run.loss) },
      { name: t('runs.best'), number: true, cell: (run) => score(run.best) },
      { name: t('metric.samples_per_s'), number: true, cell: (run) => plain(run.samples_per_s, 0) },
      { name: t('runs.peak'), number: true, cell: (run) => bytes(run.measured_peak_bytes ?? run.planned_peak_bytes) },
      { name: t('runs.left'), number: true, cell: (run) => (run.state === 'running' ? seconds(run.remaining_s) : run.seconds ? seconds(run.seconds) : '–') },
      { name: t('runs.when'), cell: (run) => ago(run.updated) },
    ], shown, () => ({ class: 'link' })), more];
  }
  const watch = await watched('/runs', EVERY_MS, (answer) => { runs = answer; update(); }, (error) => replace(place, complaint(error)), () => Math.floor(Date.now() / AGO_MS));
  return watch.close;
}
