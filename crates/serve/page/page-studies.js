// Studies of the search, as they grow.
import { get } from '/api.js';
import { chart } from '/charts.js';
import { h, replace, table } from '/dom.js';
import { plain } from '/format.js';
import { t } from '/words.js';

export async function open(main, [name]) {
  replace(main, h('div', { class: 'head' }, h('h1', {}, name || t('nav.studies'))));
  const place = h('div', { class: 'panel-part' });
  main.append(place);
  let drawn;
  async function refresh() {
    const wanted = name ? await get(`/studies/${encodeURIComponent(name)}`) : await get('/studies');
    drawn?.destroy();
    drawn = name ? study(place, wanted) : list(place, wanted);
  }
  await refresh();
  const timer = setInterval(() => refresh().catch(() => {}), 5000);
  return () => { clearInterval(timer); drawn?.destroy(); };
}

function list(place, studies) {
  const counts = (row) => Object.entries(row.counts).map(([state, count]) => `${state} ${count}`).join(', ');
  replace(place, h('section', { class: 'panel' }, studies.length ? table(t('studies.caption'), [{ name: t('runs.name'), cell: (row) => h('a', { href: `#/studies/${encodeURIComponent(row.name)}` }, row.name) }, { name: t('studies.trials'), cell: counts }, { name: t('runs.best'), cell: (row) => row.best.join(', ') }], studies) : h('p', { class: 'hint' }, t('studies.none'))));
}

function study(place, facts) {
  const trials = facts.trials || [];
  const values = trials.map((trial) => trial.values?.[0] ?? null);
  const better = facts.directions?.[0] === 'maximize' ? Math.max : Math.min;
  let best = null;
  const sofar = values.map((value) => { if (value !== null) best = best === null ? value : better(best, value); return best; });
  const curve = h('div', { class: 'chart' });
  const names = [...new Set(trials.flatMap((trial) => Object.keys(trial.params || {})))];
  const isBest = (trial) => (facts.best || []).includes(trial.number);
  replace(place, h('section', { class: 'panel' }, h('h2', {}, t('studies.history')), curve), h('section', { class: 'panel' }, table(t('studies.trials'), [
    { name: '#', number: true, cell: (trial) => String(trial.number) }, { name: t('runs.state'), cell: (trial) => h('span', { class: `badge ${isBest(trial) ? 'good' : ''}` }, trial.state) }, { name: t('studies.value'), number: true, cell: (trial) => (trial.values || []).map((value) => plain(value)).join(', ') || '–' },
    ...names.map((key) => ({ name: key, cell: (trial) => String(trial.params?.[key] ?? '–') })),
  ], trials)));
  return chart(curve, t('studies.history'), [{ label: t('studies.value'), points: true }, { label: t('runs.best') }], [trials.map((trial) => trial.number), values, sofar], { height: 260 });
}
