// Studies of the search, as they grow: what was tried, what is best, and which settings matter.
import { get } from '/api.js';
import { chart } from '/charts.js';
import { h, replace, table } from '/dom.js';
import { count, percent, plain, seconds } from '/format.js';
import { has, said, t } from '/words.js';

const EVERY_MS = 3000;
const BADGES = { complete: 'good', fail: 'bad', pruned: 'warn', paused: 'queued', running: 'running', waiting: 'queued' };
const state = (name) => (has(`trial.${name}`) ? t(`trial.${name}`) : name);
const objective = (name) => (has(`metric.${name}`) ? t(`metric.${name}`) : name);
const value = (number, name) => (number === null || number === undefined ? '–' : name === 'accuracy' ? percent(number) : plain(number));

export async function open(main, [name]) {
  const place = h('div', { class: 'panel-part' });
  replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, name || t('nav.studies')), h('p', { class: 'lead' }, name ? h('a', { href: '#/studies' }, t('studies.all')) : t('studies.lead')))), place);
  const page = name ? new StudyPage(place) : new ListPage(place);
  const path = name ? `/studies/${encodeURIComponent(name)}` : '/studies';
  let previous = '';
  async function refresh() {
    const answer = await get(path);
    const text = JSON.stringify(answer);
    if (text !== previous) { previous = text; page.show(answer); }
  }
  await refresh();
  const timer = setInterval(() => refresh().catch(() => { /* the banner says so */ }), EVERY_MS);
  return () => { clearInterval(timer); page.close(); };
}

function counts(of) {
  return h('span', { class: 'row wrap' }, Object.entries(of).map(([name, number]) => h('span', { class: `badge ${BADGES[name] || ''}` }, `${state(name)} ${count(number)}`)));
}

class ListPage {
  constructor(place) { this.place = place; }
  close() {}

  show(studies) {
    const best = (row) => row.best.slice(0, 3).map((trial) => trial.values.map((number, at) => value(number, row.objectives[at])).join(' · ')).join(', ') || '–';
    replace(this.place, h('section', { class: 'panel' }, studies.length ? table(t('studies.caption'), [
      { name: t('runs.name'), cell: (row) => (row.problem ? h('span', { class: 'hint' }, `${row.name}: ${row.problem}`) : h('a', { href: `#/studies/${encodeURIComponent(row.name)}` }, row.name)) },
      { name: t('studies.objective'), cell: (row) => row.objectives.map(objective).join(', ') },
      { name: t('studies.trials'), cell: (row) => counts(row.counts) },
      { name: t('runs.best'), number: true, cell: best },
      { name: t('run.took'), number: true, cell: (row) => seconds(row.seconds) },
    ], studies) : h('div', { class: 'empty' }, h('h2', {}, t('studies.none')), h('p', { class: 'lead' }, t('studies.none.lead')), h('code', {}, 'plimsoll tune RECIPE --trials 40'))));
  }
}

class StudyPage {
  constructor(place) {
    Object.assign(this, { place, charts: [], tiles: h('dl', { class: 'tiles' }), pictures: h('div', { class: 'panel-part' }), settings: h('div', { class: 'charts' }), weights: h('ul', { class: 'weights' }), rows: h('div', { class: 'panel-part' }) });
    this.importance = h('section', { class: 'panel' }, h('h2', {}, t('studies.importance')), h('p', { class: 'hint' }, t('studies.importance.hint')), this.weights);
    this.slices = h('section', { class: 'panel' }, h('h2', {}, t('studies.slices')), this.settings);
    replace(place, this.tiles, h('section', { class: 'panel' }, h('h2', {}, t('studies.history')), this.pictures), this.importance, this.slices, h('section', { class: 'panel' }, h('h2', {}, t('studies.trials')), this.rows));
  }

  close() { this.charts.forEach((each) => each.destroy()); this.charts = []; }

  show(study) {
    this.close();
    this.showTiles(study);
    this.showHistory(study);
    this.showImportance(study);
    this.showSlices(study);
    this.showTrials(study);
  }

  showTiles(study) {
    const best = study.trials.find((trial) => trial.number === study.best[0]);
    const tile = (name, text, small) => h('div', { class: 'tile' }, h('dt', {}, name), h('dd', {}, text, small ? h('small', {}, small) : ''));
    const values = (best?.values || []).map((number, at) => value(number, study.objectives[at])).join(' · ');
    replace(this.tiles,
      tile(t('runs.best'), values || '–', best ? t('studies.in_trial', { number: best.number }) : ''),
      tile(t('studies.objective'), study.objectives.map(objective).join(', '), study.directions.map((way) => t(`studies.${way}`)).join(', ')),
      tile(t('studies.trials'), count(study.trials.length), Object.entries(study.counts).map(([name, number]) => `${state(name)} ${number}`).join(', ')),
      tile(t('run.took'), seconds(study.seconds)));
  }

  // One picture for each objective: every trial, and the best so far.
  showHistory(study) {
    replace(this.pictures);
    study.objectives.forEach((name, at) => {
      const better = study.directions[at] === 'maximize' ? Math.max : Math.min;
      const values = study.trials.map((trial) => trial.values?.[at] ?? null);
      let best = null;
      const sofar = values.map((number) => { if (number !== null) best = best === null ? number : better(best, number); return best; });
      const place = h('div', { class: 'chart' });
      this.pictures.append(place);
      const lines = [{ label: objective(name), points: true, bare: true }, { label: t('runs.best'), color: '#009e73' }];
      this.charts.push(chart(place, `${t('studies.history')}: ${objective(name)}`, lines, [study.trials.map((trial) => trial.number), values, sofar], { height: 260, format: (number) => value(number, name), along: t('studies.trial') }));
    });
  }

  showImportance({ importances }) {
    const rows = Object.entries(importances).sort(([, a], [, b]) => b - a);
    this.importance.hidden = rows.length === 0;
    replace(this.weights, rows.map(([name, share]) => h('li', {}, h('span', { class: 'mono' }, name), h('div', { class: 'bar', role: 'img', 'aria-label': percent(share) }, h('div', { 'width%': 100 * share })), h('span', {}, percent(share)))));
  }

  // Each number that was drawn against what came of it.
  showSlices(study) {
    const done = study.trials.filter((trial) => Number.isFinite(trial.values?.[0]));
    const names = [...new Set(done.flatMap((trial) => Object.keys(trial.params)))].filter((name) => done.every((trial) => trial.params[name] === undefined || typeof trial.params[name] === 'number'));
    this.slices.hidden = done.length < 3 || names.length === 0;
    replace(this.settings);
    if (this.slices.hidden) return;
    names.forEach((name) => {
      const points = done.filter((trial) => name in trial.params).map((trial) => [trial.params[name], trial.values[0]]).sort((a, b) => a[0] - b[0]);
      const place = h('div', { class: 'chart small' });
      this.settings.append(h('div', {}, h('h3', { class: 'mono' }, name), place));
      const format = (number) => value(number, study.objectives[0]);
      this.charts.push(chart(place, name, [{ label: objective(study.objectives[0]), points: true, bare: true }], [points.map(([x]) => x), points.map(([, y]) => y)], { height: 170, format, along: name, farApart: isFarApart(points.map(([x]) => x)) }));
    });
  }

  showTrials(study) {
    const names = [...new Set(study.trials.flatMap((trial) => Object.keys(trial.params)))];
    const isBest = (trial) => study.best.includes(trial.number);
    const words = (trial) => ['pruned_because', 'failure', 'refused', 'diverged', 'adapted'].map((key) => trial.user_attrs?.[key]).filter((text) => typeof text === 'string').map((text) => said(text.split('\n')[0])).join('; ');
    const shown = (of) => (typeof of === 'number' ? plain(of) : of === undefined ? '–' : String(of));
    replace(this.rows, table(t('studies.trials'), [
      { name: '#', number: true, cell: (trial) => String(trial.number) },
      { name: t('runs.state'), cell: (trial) => h('span', { class: `badge ${BADGES[trial.state] || ''}`, title: words(trial) || undefined }, isBest(trial) ? t('studies.best') : state(trial.state)) },
      ...study.objectives.map((name, at) => ({ name: objective(name), number: true, cell: (trial) => value(trial.values?.[at], name) })),
      ...names.map((key) => ({ name: key, number: true, cell: (trial) => shown(trial.params[key]) })),
      { name: t('run.took'), number: true, cell: (trial) => seconds(trial.seconds) },
    ], [...study.trials].reverse().slice(0, 500), (trial) => ({ class: isBest(trial) ? 'best' : undefined }), { quiet: true }));
  }
}

// Numbers over more than two decades are seen by ratio.
const isFarApart = (numbers) => numbers.length > 0 && numbers[0] > 0 && numbers[numbers.length - 1] / numbers[0] > 50;
