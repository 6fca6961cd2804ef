// A new training: a form and a text that are two views of one recipe, and the planner's answer while either changes.
import { get, latest, post, server } from '/api.js';
import { beginning } from '/beginning.js';
import { announce, h, replace, table } from '/dom.js';
import { bytes, count, parameters, plain, seconds } from '/format.js';
import { arenaMap, hull } from '/memory.js';
import { AllSettings } from '/settings.js';
import { recipeCommand } from '/shell.js';
import { Slider } from '/slider.js';
import { largestOnCards, onCards, twoBatches } from '/tables.js';
import * as toml from '/toml.js';
import { has, said, saying, t } from '/words.js';

const PAUSE_MS = 40;
const LONGEST_NAME = 100;
// What the form shows first, with the API's field of the same matter: it says keys and bounds. A slider may end before
// them, where people seldom go.
const SLIDERS = [
  { name: 'batch', field: 'batch_size', log: true },
  { name: 'length', field: 'sequence_length', low: 8, high: 1024, log: true },
  { name: 'heads', field: 'attention_heads', high: 32, log: true },
  { name: 'epochs', field: 'epochs', high: 50 },
  { name: 'rate', field: 'learning_rate', low: 1e-6, high: 1e-1, log: true, real: true },
];
const BATCH = 'train.effective_batch';
const CUT = 'memory.micro_batch';
const BUDGET = 'memory.budget';
// Sliders whose every stop is another plan.
const FORESEEN = ['batch', 'length'];
const LEVERS = ['micro_batch', 'precision', 'recompute', 'attention', 'optimizer_state', 'offload'];
const WORDS = { precision: ['auto', 'f32', 'tf32', 'bf16-mixed', 'fp16-mixed', 'bf16'], recompute: ['auto', 'none', 'cheap', 'some', 'layers'], attention: ['auto', 'materialized', 'fused'], optimizer_state: ['auto', 'f32', 'bf16', '8bit'], offload: ['auto', 'none', 'optimizer', 'activations'] };

// `kept` is what the form held when the page was drawn last at this address: in another language it is the same form.
export async function open(main, _rest, query, kept) {
  const [recipes, machine, cards, keys, fields, files, presets] = await Promise.all(['/recipes', '/devices', '/catalog', '/keys', '/fields', '/files', '/presets'].map((path) => get(path)));
  const form = new Form(main, { recipes, machine, cards, keys, fields, files, presets });
  if (kept?.address === location.hash) form.restore(kept);
  else form.openWith(query.get('recipe') || 'quickstart', query.get('device'));
  return Object.assign(() => form.close(), { keep: () => form.kept() });
}

class Form {
  constructor(main, facts) {
    Object.assign(this, facts, { settings: {}, timer: 0, beginnings: 0, address: location.hash });
    this.name = 'recipe';
    this.build(main);
    this.question = latest(({ input }) => post('/plan', input), (answer, about) => this.isAbout(about) && this.answered(answer, about.input), (error, about) => this.isAbout(about) && this.failed(error));
  }

  close() { clearTimeout(this.timer); clearTimeout(this.largestTimer); this.closed = true; }

  // An answer about a recipe that was there before another was chosen is nobody's.
  isAbout({ beginning }) { return !this.closed && beginning === this.beginnings; }

  openWith(recipe, device) {
    if (device) this.device.value = device;
    this.choose(recipe);
  }

  kept() {
    const { name, base, address } = this;
    return { name, base, address, text: this.text.value, pick: this.pick.value, device: this.device.value };
  }

  restore({ name, base, text, pick, device }) {
    this.name = name;
    this.pick.value = pick;
    this.device.value = device;
    this.beginWith(text);
    this.base = base;
  }

  build(main) {
    const option = (value, text = value) => h('option', { value }, text);
    this.pick = h('select', { id: 'recipe-pick', onchange: () => this.choose(this.pick.value) }, this.recipes.map((recipe) => option(recipe.name, recipe.built_in ? recipe.name : `${recipe.name} · ${t('new.yours')}`)));
    const here = ['auto', 'cpu', ...this.machine.gpus.map((gpu) => `cuda:${gpu.ordinal}`)];
    this.device = h('select', { onchange: () => this.ask() }, h('optgroup', { label: t('new.here') }, here.map((name) => option(name, t('new.device', { name })))), h('optgroup', { label: t('new.catalog') }, this.cards.map((card) => option(card.name, `${card.name} · ${bytes(card.total_bytes)}`))));
    this.budget = h('input', { placeholder: 'auto', 'aria-describedby': 'budget-hint', oninput: () => this.limit(this.budget.value.trim()), spellcheck: false });
    this.sliders = SLIDERS.map((slider) => this.slider(slider));
    this.parts = h('input', { inputMode: 'numeric', placeholder: t('new.auto'), 'data-field': 'accumulation', onchange: () => this.cut(this.parts.value.trim()) });
    this.partsHint = h('span', { class: 'hint' });
    this.levers = LEVERS.map((name) => this.lever(name));
    this.text = h('textarea', { rows: 22, spellcheck: false, autocapitalize: 'off', 'aria-label': t('new.text'), oninput: () => this.askSoon() });
    this.all = new AllSettings(this.keys, (key, value) => this.change(value === '' ? toml.unset(this.text.value, key) : toml.set(this.text.value, key, toml.typed(value))));
    this.verdict = h('div', { class: 'verdict', role: 'status' }, t('loading'));
    this.detail = h('div', { class: 'panel-part' });
    this.problem = h('div', { role: 'alert' });
    this.start = h('button', { class: 'main', type: 'button', disabled: true, onclick: () => this.begin() }, t('new.start'));
    this.copy = h('button', { type: 'button', onclick: () => this.copied() }, t('new.copy'));
    const settings = h('section', { class: 'panel' },
      h('div', { class: 'form' }, h('label', { class: 'field' }, t('new.recipe'), this.pick), h('label', { class: 'field' }, t('new.on'), this.device), h('label', { class: 'field' }, t('new.budget'), this.budget, h('span', { class: 'hint', id: 'budget-hint' }, t('new.budget.hint')))),
      beginning({ ...this.files, presets: this.presets, families: [...new Set(this.keys.flatMap((key) => key.uses).flatMap((use) => use.families))] }, (recipe, name) => this.take(recipe, name)),
      this.sliders.map((slider) => slider.element),
      h('label', { class: 'field' }, t('field.accumulation'), this.parts, this.partsHint),
      h('details', {}, h('summary', {}, t('new.levers')), h('p', { class: 'hint' }, t('new.levers.hint')), h('div', { class: 'form' }, this.levers.map((lever) => lever.element))),
      this.all.element,
      h('details', {}, h('summary', {}, t('new.text')), h('p', { class: 'hint' }, t('new.text.hint')), this.text));
    const answer = h('section', { class: 'panel stick', tabindex: 0, 'aria-label': t('new.answer') }, this.verdict, this.problem, this.detail);
    const buttons = h('div', { class: 'row' }, this.copy, server.read_only ? h('span', { class: 'badge warn' }, t('read_only')) : this.start);
    replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, t('nav.new')), h('p', { class: 'lead' }, t('new.lead'))), buttons), h('div', { class: 'two' }, settings, answer));
  }

  slider({ name, field, ...own }) {
    const { keys, minimum, maximum } = this.fields.find((each) => each.name === field);
    const slider = { name, keys, low: minimum, high: maximum, ...own };
    return new Slider({ ...slider, field }, (value) => this.slid(this.keyOf(slider), value));
  }

  // Where the batch was cut into parts, another one is, too.
  slid(key, value) {
    let text = toml.set(this.text.value, key, String(value));
    const parts = this.isCut ? Number(this.parts.value) : 0;
    if (key === BATCH && parts > 0) text = toml.set(text, CUT, String(Math.ceil(value / parts)));
    this.change(text);
  }

  // Gradient accumulation: into how many parts the batch is cut.
  cut(written) {
    const [parts, batch] = [Number(written), Number(this.settings[BATCH])];
    const isSound = Number.isInteger(parts) && parts >= 1 && parts <= batch;
    this.parts.setAttribute('aria-invalid', String(written !== '' && !isSound));
    this.isCut = isSound;
    if (written === '') this.change(toml.unset(this.text.value, CUT));
    else if (isSound) this.edit(CUT, String(Math.ceil(batch / parts)));
    else this.partsHint.textContent = t('new.fields', { low: 1, high: count(batch) });
  }

  // The budget is a key of the recipe, like all else.
  limit(written) {
    this.change(written === '' ? toml.unset(this.text.value, BUDGET) : toml.set(this.text.value, BUDGET, toml.typed(written)));
  }

  showBudget() {
    const written = toml.read(this.text.value, BUDGET);
    if (document.activeElement !== this.budget) this.budget.value = written === undefined ? '' : unquoted(written);
  }

  // A recipe that was proposed.
  take(recipe, name) {
    this.name = name;
    this.pick.value = '';
    this.beginWith(recipe);
  }

  beginWith(text) {
    this.beginnings += 1;
    this.base = null;
    this.isCut = false;
    // How far another recipe's batch could go is no answer about this one.
    clearTimeout(this.largestTimer);
    Object.assign(this, { largestAbout: '', largestBatch: undefined, room: undefined });
    this.preview(text);
    this.change(text);
  }

  lever(name) {
    const key = `memory.${name}`;
    const set = (value) => { if (key === CUT) this.isCut = false; if (value === 'auto' || value === '') this.change(toml.unset(this.text.value, key)); else this.edit(key, /^[0-9]+$/.test(value) ? value : JSON.stringify(value)); };
    // While a list is read, what it offers is planned.
    const touch = () => { lever.movedAt = performance.now(); this.foresee(); };
    const input = WORDS[name] ? h('select', { onfocus: touch, onchange: () => set(input.value) }, WORDS[name].map((word) => h('option', { value: word }, word === 'auto' ? t('new.auto') : word))) : h('input', { placeholder: t('new.auto'), inputMode: 'numeric', onchange: () => set(input.value.trim()) });
    const next = () => (WORDS[name] || []).filter((word) => word !== input.value).map((word) => JSON.stringify(word));
    const lever = { name, key, input, next, movedAt: 0, element: h('label', { class: 'field' }, t(`lever.${name}`), input, h('span', { class: 'hint' }, t(`lever.${name}.hint`))) };
    return lever;
  }

  choose(name) {
    const recipe = this.recipes.find((entry) => entry.name === name) || this.recipes[0];
    this.name = recipe.name;
    this.pick.value = recipe.name;
    this.beginWith(recipe.text);
  }

  // What the text itself says, until the planner has filled in the rest.
  preview(text) {
    this.settings = {};
    this.text.value = text;
    this.showBudget();
    for (const slider of this.sliders) {
      const key = slider.slider.keys.find((each) => Number.isFinite(Number(toml.read(text, each))));
      if (key) this.settings[key] = Number(toml.read(text, key));
      slider.show(key ? this.settings[key] : null, '');
    }
  }

  keyOf(slider) { return slider.keys.find((key) => key in this.settings) || slider.keys[0]; }
  edit(key, value) { this.change(toml.set(this.text.value, key, value)); }
  change(text) { this.text.value = text; this.askSoon(); }
  // A hand that keeps moving is answered all the same: what it came to meanwhile is asked.
  askSoon() { this.timer ||= setTimeout(() => { this.timer = 0; this.ask(); }, PAUSE_MS); }

  input(quick) { return { recipe: this.text.value, name: runName(this.name), device: this.device.value, quick }; }

  ask() { this.verdict.classList.add('busy'); this.question({ beginning: this.beginnings, input: { ...this.input(true), ahead: this.ahead() } }); }

  foresee() { post('/plan', { ...this.input(true), ahead: this.ahead() }).catch(() => null); }

  // Where the sliders that move memory and the levers that were touched may go next, the last one's first: the server
  // plans it while nobody waits.
  ahead() {
    const sliders = this.sliders.filter((slider) => FORESEEN.includes(slider.slider.name) && !slider.element.hidden && this.keyOf(slider.slider) in this.settings);
    const moved = [...sliders.map((slider) => ({ of: slider, key: this.keyOf(slider.slider) })), ...this.levers.filter((lever) => lever.movedAt).map((lever) => ({ of: lever, key: lever.key }))];
    moved.sort((one, other) => other.of.movedAt - one.of.movedAt);
    return moved.flatMap(({ of, key }) => of.next().map((value) => `${key}=${value}`)).slice(0, 16);
  }

  answered(plan, input) {
    this.plan = plan;
    this.settings = plan.settings;
    const isCurrent = input.recipe === this.text.value;
    // What changes mean for learning is told against the recipe as it was chosen.
    if (isCurrent) this.base ??= { ...plan };
    replace(this.problem);
    this.text.setAttribute('aria-invalid', 'false');
    this.start.disabled = !plan.fits || !this.runsHere() || Boolean(plan.unready);
    if (plan.unready && this.runsHere()) this.showFindings([plan.unready]);
    this.showVerdict(plan);
    // An answer to what was asked before must not move the sliders back under a hand.
    if (isCurrent) this.showForm();
    this.showDetail(plan, input);
    this.askLargest(input);
  }

  // How far the batch could go here: asked once for every recipe and device, not for every batch.
  askLargest(input) {
    const about = JSON.stringify([toml.unset(input.recipe, BATCH), input.device]);
    if (about === this.largestAbout) return;
    this.largestAbout = about;
    this.largestBatch = undefined;
    clearTimeout(this.largestTimer);
    this.largestTimer = setTimeout(async () => {
      const answer = await post('/plan/largest', input).catch(() => null);
      if (!answer || about !== this.largestAbout || this.closed) return;
      this.largestBatch = answer;
      // Where not even the smallest fits, the slider still leads down.
      this.room = { maximum: answer.largest_batch ?? answer.tried_up_to };
      this.showForm();
    }, 500);
  }

  runsHere() { return ['auto', 'cpu'].includes(this.device.value) || this.device.value.startsWith('cuda'); }

  failed(error) {
    this.start.disabled = true;
    this.verdict.classList.remove('busy');
    this.verdict.className = 'verdict bad';
    replace(this.verdict, h('div', {}, h('strong', {}, t(error.status === 422 ? 'new.wrong' : 'new.unanswered')), error.field ? h('code', {}, error.field) : ''));
    this.showFindings(error.findings.length ? error.findings : [{ error: error.message, hint: error.hint }]);
    this.text.setAttribute('aria-invalid', 'true');
  }

  showFindings(findings) {
    const words = (finding) => [finding.line ? t('new.line', { line: finding.line }) : '', finding.field, said(finding.error), said(finding.allowed), said(finding.hint)].filter(Boolean).join('\n');
    replace(this.problem, findings.map((finding) => h('p', { class: 'notice bad' }, words(finding))));
  }

  showVerdict(plan) {
    const isStuck = plan.fits && this.runsHere() && plan.unready;
    this.verdict.className = `verdict ${!plan.fits ? 'bad' : isStuck ? 'warn' : 'good'}`;
    const heading = () => (this.runsHere() ? t('new.ready', { batch: count(plan.effective_batch) }) : t('new.would', { device: plan.device }));
    const peak = plan.arena_bytes + plan.reserve_bytes;
    const words = plan.fits ? t('new.fits', { peak: bytes(peak), budget: bytes(plan.budget_bytes), batch: plan.effective_batch }) : t('new.not', { peak: bytes(plan.smallest_budget_bytes), budget: bytes(plan.budget_bytes) });
    replace(this.verdict, h('div', {}, h('strong', {}, !plan.fits ? t('new.too_much') : isStuck ? t('new.unready') : heading()), h('span', {}, words)));
  }

  showForm() {
    for (const slider of this.sliders) {
      const key = this.keyOf(slider.slider);
      const value = this.settings[key];
      // How far the batch goes is known until it is asked anew.
      slider.reach(reach(slider.usualScale, slider.slider.name === 'batch' ? this.room : this.plan.bounds[slider.slider.field]));
      slider.show(key in this.settings ? Number(value) : null, this.learning(slider.slider.name));
    }
    const { micro_batch: micro, accumulation } = this.plan;
    if (document.activeElement !== this.parts) this.parts.value = toml.read(this.text.value, CUT) === undefined ? '' : String(accumulation);
    this.parts.setAttribute('aria-invalid', 'false');
    this.partsHint.textContent = t('field.accumulation.hint', { micro: count(micro), parts: count(accumulation) });
    for (const lever of this.levers) {
      const written = toml.read(this.text.value, lever.key);
      if (document.activeElement !== lever.input) lever.input.value = written === undefined ? (WORDS[lever.name] ? 'auto' : '') : unquoted(written);
    }
    this.showBudget();
    this.all.show(this.settings);
  }

  // What a change against the recipe means for learning.
  learning(name) {
    const [now, before] = [this.plan, this.base];
    if (!before) return '';
    const room = name === 'batch' && this.largestBatch ? largestWords(this.largestBatch) : '';
    if (room && now.effective_batch === before.effective_batch) return room;
    if (name === 'batch' && now.effective_batch !== before.effective_batch) {
      const ratio = now.effective_batch / before.effective_batch;
      const rate = Number(this.settings['train.optimizer.lr']);
      const factor = this.settings['train.optimizer.name'] === 'sgd' ? ratio : Math.sqrt(ratio);
      return t(ratio > 1 ? 'learn.batch.up' : 'learn.batch.down', { ratio: plain(ratio > 1 ? ratio : 1 / ratio, 2), rate: plain(rate * factor) });
    }
    const key = this.keyOf(this.sliders.find(({ slider }) => slider.name === name).slider);
    return name !== 'batch' && String(before.settings[key]) !== String(this.settings[key]) ? t(`learn.${name}`) : '';
  }

  showDetail(plan, input) {
    const tile = (name, value, small) => h('div', { class: 'tile' }, h('dt', {}, name), h('dd', {}, value, small ? h('small', {}, small) : ''));
    const facts = h('dl', { class: 'tiles' },
      tile(t('plan.batch'), `${plan.micro_batch} × ${plan.accumulation}`, t('plan.batch.hint')),
      tile(t('plan.step'), seconds(plan.predicted_step_ms / 1000), `${plain(plan.samples_per_s, 0)} ${t('metric.samples_per_s')}`),
      tile(t('plan.epoch'), seconds(plan.epoch_seconds), plan.steps_per_epoch ? t('plan.steps', { count: count(plan.steps_per_epoch) }) : t('plan.unknown')),
      tile(t('plan.run'), seconds(plan.run_seconds), plan.steps ? t('plan.steps', { count: count(plan.steps) }) : ''),
      tile(t('plan.precision'), plan.precision, `${t('lever.attention')}: ${plan.attention}`),
      tile(t('plan.parameters'), parameters(plan.parameters), `${t('lever.recompute')}: ${plan.recompute}`));
    const decisions = table(t('plan.decisions'), [
      { name: t('plan.lever'), cell: (row) => (has(`lever.${row.lever}`) ? t(`lever.${row.lever}`) : row.lever) }, { name: t('plan.choice'), cell: (row) => row.choice },
      { name: t('plan.saves'), number: true, cell: (row) => (row.saved_bytes ? bytes(row.saved_bytes) : '–') }, { name: t('plan.why'), cell: (row) => said(row.reason) },
    ], plan.decisions);
    const picture = hull({ breakdown: plan.breakdown, reserve: plan.reserve_bytes, gaps: plan.arena_bytes - plan.live_peak_bytes, budget: plan.budget_bytes });
    this.extra ??= h('div', { class: 'panel-part' });
    replace(this.detail, picture, plan.fits ? facts : '', this.ways(plan), plan.fits ? h('details', { open: this.open?.decisions, ontoggle: (e) => { (this.open ??= {}).decisions = e.target.open; } }, h('summary', {}, t('plan.decisions')), decisions) : '', ...['largest', 'sizes', 'cards', 'batches', 'map'].map((name) => this.lazy(name, input)));
  }

  // The ladder is asked for where nothing fits; each rung is one click.
  ways(plan) {
    if (plan.fits) return '';
    const place = h('div', { class: 'panel-part' }, h('h2', {}, t('ladder.title')), h('p', { class: 'hint' }, t('loading')));
    clearTimeout(this.ladderTimer);
    this.ladderTimer = setTimeout(async () => {
      try {
        const full = await post('/plan', this.input(false));
        if (this.plan === plan) replace(place, h('h2', {}, t('ladder.title')), this.ladder(full));
      } catch (error) { replace(place, h('p', { class: 'notice bad' }, said(error.message))); }
    }, 250);
    return place;
  }

  ladder(plan) {
    const rungs = (plan.ladder || []).map((rung) => h('li', {},
      h('span', { class: `badge ${rung.fits ? 'good' : 'bad'}` }, rung.fits ? t('ladder.fits') : t('ladder.not')),
      h('div', { class: 'grow' }, h('strong', {}, said(rung.change)), h('div', { class: 'hint' }, [rung.planned_peak_bytes ? bytes(rung.planned_peak_bytes) : '', rung.predicted_step_ms ? seconds(rung.predicted_step_ms / 1000) : '', rung.changes_learning ? t('ladder.learning') : t('ladder.same'), said(rung.adjust)].filter(Boolean).join(' · '))),
      h('button', { type: 'button', onclick: () => this.climb(rung) }, t('ladder.take'))));
    // Rungs that fit come again as hints.
    const hints = (plan.hints || []).filter((hint) => !saying(hint)?.startsWith('said.rung.'));
    return [h('ul', { class: 'rungs' }, rungs), h('ul', { class: 'hint' }, hints.map((hint) => h('li', {}, said(hint))))];
  }

  climb(rung) {
    let text = this.text.value;
    for (const setting of rung.set) {
      const at = setting.indexOf('=');
      const [key, value] = [setting.slice(0, at), setting.slice(at + 1)];
      text = value === 'auto' ? toml.unset(text, key) : toml.set(text, key, toml.typed(value));
    }
    this.change(text);
    announce(t('ladder.taken', { change: said(rung.change) }));
  }

  // What takes many plans is asked for when it is opened, and again when the recipe changes while it is.
  lazy(name, input) {
    const place = h('div', { class: 'panel-part' });
    const fill = async () => {
      replace(place, h('p', { class: 'hint' }, t('loading')));
      try { const filled = await this[name](input); if (place.isConnected) replace(place, filled); } catch (error) { replace(place, h('p', { class: 'notice bad' }, said(error.message))); }
    };
    const wasOpen = this.open?.[name];
    const box = h('details', { open: wasOpen, ontoggle: () => { const now = box.open; if (now !== Boolean(this.open?.[name])) { (this.open ??= {})[name] = now; if (now) fill(); } } }, h('summary', {}, t(`new.${name}`)), place);
    if (wasOpen) { clearTimeout(this[`timer-${name}`]); this[`timer-${name}`] = setTimeout(fill, 300); }
    return box;
  }

  async largest(input) {
    return h('p', {}, largestWords(await post('/plan/largest', input)));
  }

  cards(input) { return onCards(input); }
  batches(input) { return largestOnCards(input); }
  sizes(input) { return twoBatches(input, this.plan.effective_batch); }

  async map(input) { return arenaMap(await post('/plan/timeline', input)); }

  async copied() {
    // A card of the catalog is planned for; nothing trains on it here.
    const command = recipeCommand({ verb: this.runsHere() ? 'train' : 'plan', text: this.text.value, name: this.name, device: this.device.value });
    try { await navigator.clipboard.writeText(command); this.copy.textContent = t('new.copied'); announce(t('new.copied')); setTimeout(() => { this.copy.textContent = t('new.copy'); }, 1500); } catch { replace(this.problem, h('pre', { class: 'log' }, command)); }
  }

  async begin() {
    this.start.disabled = true;
    try {
      const { id } = await post('/runs', this.input(false));
      location.hash = `#/run/${encodeURIComponent(id)}`;
    } catch (error) {
      this.start.disabled = false;
      this.showFindings(error.findings.length ? error.findings : [{ error: error.message, hint: error.hint }]);
    }
  }
}

function largestWords({ largest_batch: batch, at_once: whole, tried_up_to: tried }) {
  if (batch === null) return t('largest.none');
  const room = batch === tried ? t('largest.all', { batch }) : t('largest.some', { batch });
  if (whole === batch) return `${room} ${t('largest.whole')}`;
  return `${t('largest.recommended', { from: whole, to: batch })} ${room}`;
}

// A scale as it usually is, within what the model allows.
function reach({ low, high }, bounds = {}) {
  return { stops: bounds.values, high: Math.min(high, bounds.maximum ?? high), low };
}

const unquoted = (written) => written.replace(/^["']|["']$/g, '');

// A file's name may be longer than a run's, whose number follows it.
function runName(name) {
  let cut = name;
  while (new TextEncoder().encode(cut).length > LONGEST_NAME) cut = [...cut].slice(0, -1).join('');
  return cut;
}
