// Studies of the search, as they grow: what was tried, what is best, and which settings matter.
import { watched } from '/api.js';
import { BEST, PALE, chart, joined, lineColor, roomy } from '/charts.js';
import { complaint, h, renew, replace, table } from '/dom.js';
import { count, percent, plain, seconds } from '/format.js';
import { has, said, t } from '/words.js';

const EVERY_MS = 3000;
const MOST_CURVES = 60;
const BADGES = { complete: 'good', fail: 'bad', pruned: 'warn', paused: 'queued', running: 'running', waiting: 'queued' };
const state = (name) => (has(`trial.${name}`) ? t(`trial.${name}`) : name);
const objective = (name) => (has(`metric.${name}`) ? t(`metric.${name}`) : name);
const value = (number, name) => (number === null || number === undefined ? '–' : name === 'accuracy' ? percent(number) : plain(number));

export async function open(main, [name]) {
  const place = h('div', { class: 'panel-part' });
  replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, name || t('nav.studies')), h('p', { class: 'lead' }, name ? h('a', { href: '#/studies' }, t('studies.all')) : t('studies.lead')))), place);
  const page = name ? new StudyPage(place) : new ListPage(place);
  const path = name ? `/studies/${encodeURIComponent(name)}` : '/studies';
  const watch = await watched(path, EVERY_MS, (answer) => page.show(answer), (error) => page.fail(error));
  return () => { watch.close(); page.close(); };
}

function counts(of) {
  return h('span', { class: 'row wrap' }, Object.entries(of).map(([name, number]) => h('span', { class: `badge ${BADGES[name] || ''}` }, `${state(name)} ${count(number)}`)));
}

class ListPage {
  constructor(main) {
    this.place = h('section', { class: 'panel' });
    replace(main, this.place, h('p', { class: 'hint' }, t('studies.elsewhere')));
  }

  close() {}
  fail(error) { replace(this.place, complaint(error)); }

  show(studies) {
    const best = (row) => row.best.slice(0, 3).map((trial) => trial.values.map((number, at) => value(number, row.objectives[at])).join(' · ')).join(', ') || '–';
    renew(this.place, studies.length ? table(t('studies.caption'), [
      { name: t('runs.name'), cell: (row) => (row.problem ? h('span', { class: 'hint' }, `${row.name}: ${row.problem}`) : h('a', { href: `#/studies/${encodeURIComponent(row.name)}`, 'data-key': `open ${row.name}` }, row.name)) },
      { name: t('studies.objective'), cell: (row) => row.objectives.map(objective).join(', ') },
      { name: t('studies.trials'), cell: (row) => counts(row.counts) },
      { name: t('runs.best'), number: true, cell: best },
      { name: t('run.took'), number: true, cell: (row) => seconds(row.seconds) },
    ], studies) : h('div', { class: 'empty' }, h('h2', {}, t('studies.none')), h('p', { class: 'lead' }, t('studies.none.lead')), h('code', {}, 'plimsoll tune RECIPE --trials 40')));
  }
}

// Charts by name: one that is there gets the new numbers, and is drawn anew only where its lines are others.
class Pictures {
  constructor() { this.kept = new Map(); }

  // What is not drawn by `work` is not there any longer.
  round(work) {
    this.left = new Set(this.kept.keys());
    work();
    this.left.forEach((name) => this.drop(name));
  }

  draw(name, parent, heading, title, lines, data, options) {
    this.left.delete(name);
    const shape = JSON.stringify([title, lines, options]);
    const known = this.kept.get(name);
    if (known?.shape === shape) { known.drawn.setData(data); return; }
    if (known) this.drop(name);
    const place = h('div', { class: 'chart small' });
    const box = h('div', {}, heading, place);
    parent.append(box);
    this.kept.set(name, { shape, box, drawn: chart(place, title, lines, data, options) });
  }

  drop(name) {
    const { box, drawn } = this.kept.get(name);
    drawn.destroy();
    box.remove();
    this.kept.delete(name);
  }

  clear() { [...this.kept.keys()].forEach((name) => this.drop(name)); }
}

class StudyPage {
  constructor(place) {
    const section = (title, ...children) => h('section', { class: 'panel' }, h('h2', {}, title), ...children);
    // The objective that is shown where there are several.
    Object.assign(this, { place, shown: 0, charts: new Pictures(), tiles: h('dl', { class: 'tiles' }), choice: h('div', { class: 'form gone' }), history: h('div', {}), fronts: h('div', {}), curves: h('div', {}), settings: h('div', { class: 'charts' }), weights: h('ul', { class: 'weights' }), rows: h('div', { class: 'panel-part' }) });
    this.front = section(t('studies.front'), h('p', { class: 'hint' }, t('studies.front.hint')), this.fronts);
    this.learning = section(t('studies.curves'), h('p', { class: 'hint' }, t('studies.curves.hint')), this.curves);
    this.importance = section(t('studies.importance'), h('p', { class: 'hint' }, t('studies.importance.hint')), this.weights);
    this.slices = section(t('studies.slices'), this.settings);
    this.sections = [this.tiles, this.choice, this.front, section(t('studies.history'), this.history), this.importance, this.slices, this.learning, section(t('studies.trials'), this.rows)];
  }

  close() { this.charts.clear(); }
  fail(error) { replace(this.place, complaint(error)); }

  show(study) {
    if (!this.tiles.isConnected) replace(this.place, this.sections);
    this.showTiles(study);
    this.showChoice(study);
    this.showImportance(study);
    this.charts.round(() => { this.showFront(study); this.showHistory(study); this.showSlices(study); this.showCurves(study); });
    this.showTrials(study);
  }

  showChoice(study) {
    if (study.objectives.length < 2) return;
    const select = h('select', { 'data-key': 'objective', onchange: () => { this.shown = Number(select.value); this.show(study); } }, study.objectives.map((name, at) => h('option', { value: at, selected: at === this.shown }, objective(name))));
    renew(this.choice, h('label', { class: 'field' }, t('studies.shown'), select));
  }

  // The objective that is shown against another one, up to where none is better in all of them.
  showFront(study) {
    this.front.hidden = study.objectives.length < 2;
    if (this.front.hidden) return;
    const [up, along] = [this.shown, this.shown === 0 ? 1 : 0];
    const done = study.trials.filter((trial) => [up, along].every((at) => Number.isFinite(trial.values?.[at]))).sort((one, other) => one.values[along] - other.values[along]);
    const of = (isFront) => done.map((trial) => (study.best.includes(trial.number) === isFront ? trial.values[up] : null));
    const [name, against] = [objective(study.objectives[up]), objective(study.objectives[along])];
    const lines = [{ label: t('studies.behind'), color: PALE, points: true, bare: true }, { label: t('studies.on_front'), color: BEST, points: true, bare: true }];
    this.charts.draw('front', this.fronts, '', t('studies.front.label', { name, against }), lines, roomy([done.map((trial) => trial.values[along]), of(false), of(true)]), { height: 300, format: (number) => value(number, study.objectives[up]), along: against });
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

  // Every trial, and the best so far.
  showHistory(study) {
    const name = study.objectives[this.shown];
    const better = study.directions[this.shown] === 'maximize' ? Math.max : Math.min;
    const values = study.trials.map((trial) => trial.values?.[this.shown] ?? null);
    let best = null;
    const sofar = values.map((number) => { if (number !== null) best = best === null ? number : better(best, number); return best; });
    const lines = [{ label: objective(name), color: lineColor(0), points: true, bare: true }, { label: t('runs.best'), color: BEST }];
    this.charts.draw('history', this.history, '', `${t('studies.history')}: ${objective(name)}`, lines, [study.trials.map((trial) => trial.number), values, sofar], { height: 260, format: (number) => value(number, name), along: t('studies.trial') });
  }

  // What trials told on the way; those that were laid aside end early.
  showCurves(study) {
    const told = (trial) => Object.keys(trial.intermediate).map(Number).sort((one, other) => one - other);
    const isBest = (trial) => study.best.includes(trial.number);
    const others = study.trials.filter((trial) => told(trial).length > 1 && !isBest(trial)).slice(-MOST_CURVES);
    const trials = [...others, ...study.trials.filter((trial) => told(trial).length > 1 && isBest(trial)).slice(0, MOST_CURVES)];
    this.learning.hidden = trials.length === 0;
    if (this.learning.hidden) return;
    const lines = trials.map((trial) => ({ label: `${t('studies.trial')} ${trial.number}`, color: isBest(trial) ? BEST : PALE }));
    const tables = trials.map((trial) => [told(trial), told(trial).map((step) => trial.intermediate[step])]);
    this.charts.draw('curves', this.curves, '', t('studies.curves'), lines, joined(tables), { height: 260, format: (number) => value(number, study.objectives[0]), along: t('studies.evaluation'), legend: false });
  }

  showImportance(study) {
    const shares = study.importances_by_objective?.[this.shown] ?? study.importances;
    const rows = Object.entries(shares).sort(([, a], [, b]) => b - a);
    this.importance.hidden = rows.length === 0;
    replace(this.weights, rows.map(([name, share]) => h('li', {}, h('span', { class: 'mono' }, name), h('div', { class: 'bar', role: 'img', 'aria-label': percent(share) }, h('div', { 'width%': 100 * share })), h('span', {}, percent(share)))));
  }

  // Each number that was drawn against what came of it.
  showSlices(study) {
    const name = study.objectives[this.shown];
    const result = (trial) => trial.values?.[this.shown];
    const done = study.trials.filter((trial) => Number.isFinite(result(trial)));
    const numbers = [...new Set(done.flatMap((trial) => Object.keys(trial.params)))].filter((key) => done.every((trial) => trial.params[key] === undefined || typeof trial.params[key] === 'number'));
    this.slices.hidden = done.length < 3 || numbers.length === 0;
    if (this.slices.hidden) return;
    numbers.forEach((key) => {
      const points = done.filter((trial) => key in trial.params).map((trial) => [trial.params[key], result(trial)]).sort((a, b) => a[0] - b[0]);
      const along = points.map(([x]) => x);
      const farApart = isFarApart(along);
      const lines = [{ label: objective(name), color: lineColor(0), points: true, bare: true }];
      this.charts.draw(`slice ${key}`, this.settings, h('h3', { class: 'mono' }, key), `${key}: ${objective(name)}`, lines, roomy([along, points.map(([, y]) => y)], farApart), { height: 170, format: (number) => value(number, name), along: key, farApart });
    });
  }

  showTrials(study) {
    const names = [...new Set(study.trials.flatMap((trial) => Object.keys(trial.params)))];
    const isBest = (trial) => study.best.includes(trial.number);
    const words = (trial) => ['pruned_because', 'failure', 'refused', 'diverged', 'adapted'].map((key) => trial.user_attrs?.[key]).filter((text) => typeof text === 'string').map((text) => said(text.split('\n')[0])).join('; ');
    const shown = (of) => (typeof of === 'number' ? plain(of) : of === undefined ? '–' : String(of));
    renew(this.rows, table(t('studies.trials'), [
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
