// One run: what it learns, what it takes, what it says, and what can be done with it.
import { follow, get, post, runPath, server } from '/api.js';
import { EVALUATION, PALE, SMOOTH, chart } from '/charts.js';
import { announce, complaint, h, replace, table } from '/dom.js';
import { bytes, count, parameters, percent, plain, seconds, when } from '/format.js';
import { arenaMap, hull } from '/memory.js';
import { badge, progress, score } from '/page-runs.js';
import { has, said, t } from '/words.js';

// It is at work, or will be.
const ACTIVE = ['running', 'starting', 'queued', 'stopping'];
const LOOK_MS = 1500;
const DRAW_MS = 250;
// Beside the loss; what else a run tells is about speed and the machine, these first.
const LEARNING = ['lr', 'norm', 'scale'];
const CURVES = ['samples_per_s', 'tokens_per_s', 'data_samples_per_s', 'stall_ms', 'ms'];
const HIDDEN = new Set(['loss', 'epoch', 'remaining_s', 'planned_peak_bytes', 'measured_peak_bytes', 'time', 'unix_ms', 'unix_s', 'samples', 'total_bytes', 'host_total_bytes', 'free_bytes']);
// On a CPU the device's memory is the machine's.
const SAME_ON_CPU = 'used_bytes';

export async function open(main, [id]) {
  const page = new RunPage(main, id);
  await page.begin();
  return () => page.close();
}

class RunPage {
  constructor(main, id) {
    Object.assign(this, { main, id, charts: new Map(), dirty: true, log: { next: undefined, text: '' } });
    const section = (title, ...children) => h('section', { class: 'panel' }, h('h2', {}, title), ...children);
    this.head = h('div', { class: 'head' });
    this.reason = h('div', { class: 'gone' });
    this.refused = h('div', { class: 'gone' });
    this.trouble = h('div', { class: 'gone' });
    this.tiles = h('dl', { class: 'tiles' });
    this.lossPlace = h('div', { class: 'chart' });
    this.learning = h('div', { class: 'charts' });
    this.machine = h('div', { class: 'charts' });
    this.memory = h('div', { class: 'panel-part' }, h('p', { class: 'hint' }, t('loading')));
    this.logPlace = h('pre', { class: 'log', tabindex: 0, 'aria-label': t('run.log') });
    this.samples = h('div', { class: 'panel-part' });
    this.texting = h('section', { class: 'panel', hidden: true }, h('h2', {}, t('run.samples')), this.samples);
    this.checkpoints = h('div', { class: 'panel-part' });
    this.recipe = h('pre', { class: 'log', tabindex: 0, 'aria-label': t('run.recipe') });
    const map = h('div', { class: 'panel-part' });
    this.logScale = h('input', { type: 'checkbox', onchange: () => this.lossChart?.setLog(this.logScale.checked) });
    this.parts = [this.head, this.refused, this.trouble, this.reason, this.tiles,
      h('section', { class: 'panel' }, h('div', { class: 'head' }, h('h2', {}, t('run.learning')), h('label', { class: 'row hint' }, this.logScale, t('run.log_scale'))), this.lossPlace, this.learning),
      h('div', { class: 'two' },
        section(t('run.memory'), this.memory, h('details', { ontoggle: async (event) => { if (event.target.open && !map.childElementCount) await this.fill(map, async () => arenaMap(await get(runPath(id, '/plan')))); } }, h('summary', {}, t('run.map')), map)),
        section(t('run.log'), this.logPlace)),
      section(t('run.machine'), this.machine),
      h('div', { class: 'two' }, section(t('run.use'), this.uses()), section(t('run.checkpoints'), this.checkpoints)),
      this.texting,
      h('section', { class: 'panel' }, h('details', { ontoggle: (event) => event.target.open && this.showRecipe() }, h('summary', {}, t('run.recipe')), this.recipe))];
  }

  async begin() {
    this.run = await get(runPath(this.id));
    this.show();
    replace(this.main, this.parts);
    this.look();
    this.timers = [setInterval(() => this.look(), LOOK_MS), setInterval(() => this.draw(), DRAW_MS)];
  }

  close() {
    this.closed = true;
    this.timers?.forEach(clearInterval);
    this.stop?.();
    this.charts.forEach((entry) => entry.drawn.destroy());
    this.lossChart?.destroy();
  }

  // History first, then what happens while it is at work; a run that has no folder yet is asked for again.
  async load() {
    try {
      const curves = await get(runPath(this.id, '/curves?points=6000'));
      if (this.closed) return;
      Object.assign(this, { steps: curves.steps, evaluations: curves.evaluations, devices: curves.devices, texts: curves.samples });
      this.dirty = true;
      this.stop?.();
      this.followed = this.isActive();
      this.stop = this.followed ? follow(this.id, curves.offset, (event) => this.hear(event), () => this.startOver()) : undefined;
      this.showSamples();
      this.draw();
    } catch (error) {
      if (error.status !== 404) throw error;
      this.steps = null;
    }
  }

  // Another file: what was seen of the one before does not count.
  startOver() {
    this.steps = null;
    this.look();
  }

  isActive() { return ACTIVE.includes(this.run.state); }

  hear(event) {
    const table = { step: this.steps, evaluation: this.evaluations, device: this.devices }[event.event];
    if (table) append(table, event);
    if (event.event === 'step') Object.assign(this.run, { step: event.step, loss: event.loss, samples_per_s: event.samples_per_s, remaining_s: event.remaining_s, measured_peak_bytes: event.measured_peak_bytes, epoch: event.epoch });
    if (event.event === 'resumed') [this.steps, this.evaluations, this.devices].forEach((each) => cut(each, event.step + 1));
    if (event.event === 'sample') { this.texts.push(event); this.showSamples(); }
    if (event.event === 'evaluation' || event.event === 'finished') this.look();
    this.dirty = true;
  }

  async look() {
    if (this.looking || this.closed) return;
    this.looking = true;
    try {
      const before = this.run?.state;
      this.run = await get(runPath(this.id));
      if (this.closed) return;
      // Who has come to rest is read once more to the end, and not listened to any longer.
      const isUnread = !this.steps && this.run.state !== 'queued';
      if (isUnread || (this.steps && this.followed !== this.isActive())) await this.load();
      if (this.closed) return;
      this.show();
      replace(this.trouble);
      if (before !== this.run.state) { announce(`${this.id}: ${t(`state.${this.run.state}`)}`); this.showCheckpoints(); this.showMemory(); }
      if (!this.seen || this.run.step - this.seen > 20) { this.seen = this.run.step; this.showCheckpoints(); this.showMemory(); }
      await this.readLog();
    } catch (error) {
      // That the server is away stands above.
      if (error.status) replace(this.trouble, complaint(error));
    } finally {
      this.looking = false;
    }
  }

  show() {
    const { run } = this;
    const active = this.isActive();
    const key = `${run.state} ${run.resumable}`;
    if (this.headKey !== key) {
      this.headKey = key;
      const stop = h('button', { class: 'danger', type: 'button', disabled: run.state === 'stopping', onclick: () => this.act('/stop', stop) }, t('run.stop'));
      const resume = h('button', { class: 'main', type: 'button', onclick: () => this.act('/resume', resume) }, t('run.resume'));
      const compare = h('a', { class: 'button', href: `#/compare?run=${encodeURIComponent(this.id)}` }, t('run.compare'));
      replace(this.head, h('div', {}, h('div', { class: 'row wrap' }, h('h1', {}, this.id), badge(run.state)), h('p', { class: 'hint' }, when(run.created))), h('div', { class: 'row' }, compare, !server.read_only && active && stop, !server.read_only && run.resumable && resume));
    }
    this.showReason(run, active);
    const tile = (name, value, small) => h('div', { class: 'tile' }, h('dt', {}, name), h('dd', {}, value, small ? h('small', {}, small) : ''));
    const best = run.best || {};
    replace(this.tiles,
      h('div', { class: 'tile' }, h('dt', {}, t('runs.step')), h('dd', {}, h('span', { class: 'step' }, count(run.step)), progress(run))),
      tile(t('metric.loss'), plain(run.smoothed_loss ?? run.loss), run.epoch !== undefined ? t('run.epoch', { epoch: count(run.epoch + 1) }) : ''),
      tile(t('runs.best'), score(run.best), best.step ? t('run.at', { step: count(best.step) }) : ''),
      tile(t('metric.samples_per_s'), plain(run.samples_per_s, 0), run.effective_batch ? t('run.batch', { batch: count(run.effective_batch) }) : ''),
      tile(run.state === 'running' ? t('runs.left') : t('run.took'), seconds(run.state === 'running' ? run.remaining_s : run.seconds)),
      tile(t('run.measured'), bytes(run.measured_peak_bytes), t('run.planned', { bytes: bytes(run.planned_peak_bytes) })),
      tile(t('run.device'), run.device || '–', run.parameters ? `${parameters(run.parameters)} ${t('plan.parameters')}` : ''));
  }

  // The same words stay in place: they may be selected.
  showReason({ reason, note }, isActive) {
    const text = said(reason ?? (isActive ? note : undefined)) ?? '';
    if (text === this.reason.textContent) return;
    replace(this.reason, text ? h('p', { class: reason ? 'notice bad' : 'notice' }, text) : '');
  }

  async act(what, button) {
    button.disabled = true;
    replace(this.refused);
    try { await post(runPath(this.id, what)); this.headKey = ''; await this.look(); } catch (error) { button.disabled = false; replace(this.refused, complaint(error)); }
  }

  draw() {
    if (!this.dirty || !this.steps || document.hidden) return;
    this.dirty = false;
    const evaluated = new Map(this.evaluations.step.map((step, at) => [step, this.evaluations.columns.loss?.[at] ?? null]));
    const all = [...new Set([...this.steps.step, ...this.evaluations.step])].sort((a, b) => a - b);
    const at = new Map(this.steps.step.map((step, index) => [step, index]));
    const training = all.map((step) => (at.has(step) ? this.steps.columns.loss?.[at.get(step)] ?? null : null));
    const data = [all, training, smooth(training), all.map((step) => evaluated.get(step) ?? null)];
    const lines = [{ label: t('metric.loss'), color: PALE }, { label: t('run.smooth'), color: SMOOTH }, { label: t('run.evaluation'), color: EVALUATION, points: true }];
    if (!this.lossChart) this.lossChart = chart(this.lossPlace, t('run.loss.label', { id: this.id }), lines, data, { height: 280 });
    else this.lossChart.setData(data);
    this.drawOthers();
  }

  drawOthers() {
    const told = (table) => Object.keys(table.columns).filter((name) => !HIDDEN.has(name) && table.columns[name].some((value) => value !== null));
    const steps = told(this.steps);
    const place = (name) => (LEARNING.includes(name) ? this.learning : this.machine);
    [...new Set([...LEARNING, ...CURVES, ...steps])].filter((name) => steps.includes(name)).forEach((name) => this.curve(place(name), name, this.steps, name));
    told(this.evaluations).filter((name) => !['ms', 'loss'].includes(name)).forEach((name) => this.curve(this.learning, `evaluation.${name}`, this.evaluations, name, true));
    const onCpu = (this.run.device || '').startsWith('cpu');
    told(this.devices).filter((name) => !(onCpu && name === SAME_ON_CPU)).forEach((name) => this.curve(this.machine, `device.${name}`, this.devices, name));
  }

  curve(parent, key, table, name, points) {
    const data = [table.step, table.columns[name]];
    const known = this.charts.get(key);
    if (known) { known.drawn.setData(data); return; }
    const label = points ? `${t('run.evaluation')}: ${title(name)}` : title(name);
    const place = h('div', { class: 'chart small' });
    const note = h('span', { class: 'value' });
    parent.append(h('div', {}, h('h3', { class: 'curve-name' }, label, note), place));
    const format = name.endsWith('_bytes') ? bytes : name === 'accuracy' ? percent : plain;
    this.charts.set(key, { drawn: chart(place, label, [{ label, points, color: points ? EVALUATION : undefined }], data, { height: 160, format, note }) });
  }

  async showMemory() {
    if (this.plan === undefined && this.run.planned_peak_bytes) {
      this.plan = null;
      this.plan = await get(runPath(this.id, '/plan')).catch(() => null);
    }
    const { run, plan } = this;
    const columns = plan?.phases.flatMap((phase) => phase.columns) || [];
    const total = (row) => row.reduce((sum, value) => sum + value, 0);
    const peak = columns.reduce((best, row) => (total(row) > total(best) ? row : best), columns[0] || []);
    const breakdown = plan ? Object.fromEntries(plan.components.map((name, at) => [name, peak[at]])) : {};
    const gaps = plan ? plan.arena_bytes - total(peak) : 0;
    const rows = [[t('run.planned.name'), run.planned_peak_bytes], [t('run.measured'), run.measured_peak_bytes], [t('component.budget'), run.budget_bytes]];
    replace(this.memory, plan ? hull({ breakdown, reserve: plan.reserve_bytes, gaps, budget: run.budget_bytes }) : '',
      table(t('run.memory'), [{ name: t('run.what'), cell: ([name]) => name }, { name: t('cards.memory'), number: true, cell: ([, size]) => bytes(size) }, { name: t('run.bytes'), number: true, cell: ([, size]) => count(size) }], rows, () => ({}), { quiet: true }));
  }

  async readLog() {
    try {
      const part = await get(runPath(this.id, `/log${this.log.next === undefined ? '' : `?from=${this.log.next}`}`));
      if (part.next === this.log.next) return;
      this.log = { next: part.next, text: (this.log.text + part.text).slice(-60000) };
    } catch (error) {
      if (error.status !== 404 || this.log.text) return;
      this.log.text = t('run.no_log');
    }
    const atEnd = this.logPlace.scrollHeight - this.logPlace.scrollTop - this.logPlace.clientHeight < 30;
    this.logPlace.textContent = this.log.text;
    if (atEnd) this.logPlace.scrollTop = this.logPlace.scrollHeight;
  }

  showSamples() {
    const texts = (this.texts || []).slice(-8).reverse();
    this.texting.hidden = texts.length === 0;
    replace(this.samples, texts.map((text) => h('div', { class: 'panel-part' }, h('h3', {}, t('run.at', { step: count(text.step) })), h('p', { class: 'sample' }, h('strong', {}, text.prompt), text.text))));
  }

  async showCheckpoints() {
    const found = await get(runPath(this.id, '/checkpoints')).catch(() => []);
    replace(this.checkpoints, found.length ? table(t('run.checkpoints'), [{ name: t('runs.step'), number: true, cell: (row) => count(row.step) }, { name: t('cards.memory'), number: true, cell: (row) => bytes(row.bytes) }, { name: t('runs.when'), cell: (row) => when(row.written) }], found, () => ({}), { quiet: true }) : h('p', { class: 'hint' }, t('run.no_checkpoints')));
  }

  async showRecipe() { await this.fill(this.recipe, async () => get(runPath(this.id, '/recipe'))); }

  async fill(place, make) {
    replace(place, t('loading'));
    try { replace(place, await make()); } catch (error) { replace(place, complaint(error)); }
  }

  uses() {
    if (server.read_only) return h('p', { class: 'hint' }, t('read_only'));
    const out = h('div', { class: 'panel-part', 'aria-live': 'polite' });
    const run = (button, work) => async () => { button.disabled = true; await this.fill(out, work); button.disabled = false; };
    const exporting = h('button', { type: 'button' }, t('run.export'));
    exporting.addEventListener('click', run(exporting, async () => this.exported(await post(runPath(this.id, '/export')))));
    const prompt = h('textarea', { rows: 2, 'aria-label': t('run.prompt'), placeholder: t('run.prompt') });
    const writing = h('button', { type: 'button' }, t('run.generate'));
    writing.addEventListener('click', run(writing, async () => { const answer = await post(runPath(this.id, '/generate'), { prompt: prompt.value, tokens: 120 }); return h('p', { class: 'sample' }, h('strong', {}, answer.prompt), answer.text); }));
    const rows = h('textarea', { rows: 3, 'aria-label': t('run.rows'), placeholder: t('run.rows') });
    const file = h('select', { onchange: () => { rows.disabled = file.value !== ''; } }, h('option', { value: '' }, t('run.file.none')));
    const predicting = h('button', { type: 'button' }, t('run.predict'));
    predicting.addEventListener('click', run(predicting, async () => predicted(await post(runPath(this.id, '/predict'), file.value ? { file: file.value } : { rows: rows.value }))));
    // The list is read where it is looked for.
    const asking = h('details', { ontoggle: () => asking.open && file.options.length === 1 && offer(file) }, h('summary', {}, t('run.predict')), h('div', { class: 'panel-part' }, h('label', { class: 'field' }, t('run.file'), file), rows, h('div', { class: 'row' }, predicting)));
    return [h('div', { class: 'row' }, exporting, h('span', { class: 'hint' }, t('run.export.hint'))), h('details', {}, h('summary', {}, t('run.generate')), h('div', { class: 'panel-part' }, prompt, writing)), asking, out];
  }

  exported(answer) {
    const link = (file) => h('a', { href: `/api/v1${runPath(this.id, `/export/${encodeURIComponent(file.name)}`)}`, download: file.name }, file.name);
    return h('div', { class: 'notice good' }, h('p', {}, t('run.exported', { reader: answer.loads_in })), h('ul', {}, answer.files.map((file) => h('li', {}, link(file), ` · ${bytes(file.bytes)}`))));
  }
}

const MOST_ANSWERS = 200;

function predicted({ predictions, cut, note }) {
  const shown = predictions.slice(0, MOST_ANSWERS).map((row) => JSON.stringify(row)).join('\n');
  const more = cut || predictions.length > MOST_ANSWERS ? h('p', { class: 'hint' }, t('run.cut')) : '';
  return h('div', { class: 'panel-part' }, note ? h('p', { class: 'notice warn' }, said(note)) : '', h('pre', { class: 'log' }, shown), more);
}

// What lies in the data folder and can be asked about.
async function offer(select) {
  const { files } = await get('/files').catch(() => ({ files: [] }));
  const rows = files.filter((file) => file.kind !== 'checkpoint');
  select.append(...rows.map((file) => h('option', { value: file.path }, file.path)));
}

export function title(name) { return has(`metric.${name}`) ? t(`metric.${name}`) : name.replaceAll('_', ' '); }

function cut(table, step) {
  if (!table) return;
  while (table.step.length && table.step[table.step.length - 1] >= step) { table.step.pop(); Object.values(table.columns).forEach((column) => column.pop()); }
}

function append(table, event) {
  cut(table, event.step);
  const rows = table.step.length;
  table.step.push(event.step);
  for (const [name, value] of Object.entries(event)) {
    if (name === 'step' || name === 'event' || (typeof value !== 'number' && value !== null)) continue;
    table.columns[name] ??= Array(rows).fill(null);
    table.columns[name].push(value);
  }
  Object.values(table.columns).forEach((column) => { while (column.length <= rows) column.push(null); });
}

// A running mean that starts at once and forgets slowly.
export function smooth(values) {
  let mean = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = 0.95 * mean + 0.05 * value;
    weight = 0.95 * weight + 0.05;
    return mean / weight;
  });
}
