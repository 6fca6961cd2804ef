// A training that begins with files of the data folder or with a known model: what there is, and a recipe for it.
import { post } from '/api.js';
import { h, replace } from '/dom.js';
import { bytes, parameters } from '/format.js';
import * as toml from '/toml.js';
import { said, t } from '/words.js';

const option = (value, text) => h('option', { value }, text);

class Beginning {
  constructor({ files, presets, families }, taken) {
    Object.assign(this, { presets, taken, asked: 0 });
    const ofKind = (...kinds) => files.filter((file) => kinds.includes(file.kind)).map((file) => option(file.path, file.bytes === undefined ? file.path : `${file.path} · ${bytes(file.bytes)}`));
    const select = (none, options) => h('select', { onchange: () => this.chosen() }, option('', t(none)), options);
    this.data = select('files.data.none', ofKind('data', 'images'));
    this.checkpoint = select('files.checkpoint.none', ofKind('checkpoint'));
    this.family = select('files.family.none', families.map((name) => option(name, name)));
    this.preset = select('files.preset.none', []);
    this.out = h('div', { 'aria-live': 'polite' });
    this.button = h('button', { type: 'button', disabled: true, onclick: () => this.propose() }, t('files.propose'));
    this.offerPresets();
  }

  // Of the family that was chosen, or of every one.
  offerPresets() {
    const { value } = this.preset;
    const offered = this.presets.filter((preset) => !this.family.value || preset.family === this.family.value);
    replace(this.preset, this.preset.options[0], offered.map(({ name, parameters: size }) => option(name, `${name} · ${parameters(size)}`)));
    this.preset.value = offered.some((preset) => preset.name === value) ? value : '';
  }

  // A checkpoint has sizes of its own.
  chosen() {
    this.offerPresets();
    this.preset.disabled = this.checkpoint.value !== '';
    this.button.disabled = Object.keys(this.question().wanted).length === 0;
  }

  // What to ask for, and the preset that is to stand in the answer.
  question() {
    const preset = this.checkpoint.value ? undefined : this.presets.find(({ name }) => name === this.preset.value);
    const wanted = { data: this.data.value, checkpoint: this.checkpoint.value, family: this.family.value || preset?.family };
    return { preset: preset?.name, wanted: Object.fromEntries(Object.entries(wanted).filter(([, value]) => value)) };
  }

  // Of several questions the last one counts; its answer is named by what was chosen when it was asked.
  async propose() {
    const { wanted, preset } = this.question();
    const number = this.asked += 1;
    replace(this.out, h('p', { class: 'hint' }, t('loading')));
    try {
      const proposal = await post('/plan/proposal', wanted);
      if (number !== this.asked) return;
      replace(this.out, h('p', { class: 'notice good' }, t('files.proposed', proposal)));
      const recipe = preset ? toml.set(proposal.recipe, 'model.preset', toml.write(preset)) : proposal.recipe;
      this.taken(recipe, stem(wanted.data || wanted.checkpoint || preset || wanted.family));
    } catch (error) {
      if (number === this.asked) replace(this.out, h('p', { class: 'notice bad' }, [said(error.message), said(error.hint)].filter(Boolean).join('\n')));
    }
  }
}

// Choosing among what lies in the data folder and among known models, and a recipe for it.
export function beginning(facts, taken) {
  const form = new Beginning(facts, taken);
  const field = (name, input) => h('label', { class: 'field' }, t(name), input);
  const isCut = facts.cut ? ` ${t('files.cut')}` : '';
  return h('details', { class: 'begin' }, h('summary', {}, t('files.begin')), h('div', { class: 'panel-part' },
    h('p', { class: 'hint' }, facts.files.length ? t('files.hint') : t('files.none'), isCut),
    h('div', { class: 'form' }, field('files.data', form.data), field('files.checkpoint', form.checkpoint), field('files.family', form.family), field('files.preset', form.preset)),
    h('div', { class: 'row' }, form.button), form.out));
}

// `texts/train.csv` → `train`; a run is not called by what starts with a dot.
const stem = (path) => path.split('/').pop().replace(/\.[^.]*$/, '').replace(/^\.+/, '') || 'recipe';
