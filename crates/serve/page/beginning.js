// A training that begins with files of the data folder: what there is, and a recipe that is proposed for it.
import { post } from '/api.js';
import { h, replace } from '/dom.js';
import { bytes } from '/format.js';
import { said, t } from '/words.js';

// Choosing among what lies in the data folder, and a recipe for it.
export function beginning({ files, cut }, taken) {
  const options = (none, kinds) => [h('option', { value: '' }, t(none)), ...files.filter((file) => kinds.includes(file.kind)).map((file) => h('option', { value: file.path }, file.bytes === undefined ? file.path : `${file.path} · ${bytes(file.bytes)}`))];
  const data = h('select', {}, options('files.data.none', ['data', 'images']));
  const checkpoint = h('select', {}, options('files.checkpoint.none', ['checkpoint']));
  const out = h('div', { 'aria-live': 'polite' });
  const button = h('button', { type: 'button', disabled: true, onclick: () => propose() }, t('files.propose'));
  const chosen = () => { button.disabled = !data.value && !checkpoint.value; };
  [data, checkpoint].forEach((select) => select.addEventListener('change', chosen));
  async function propose() {
    const beginningWith = Object.fromEntries(Object.entries({ data: data.value, checkpoint: checkpoint.value }).filter(([, path]) => path));
    button.disabled = true;
    replace(out, h('p', { class: 'hint' }, t('loading')));
    try {
      const proposal = await post('/plan/proposal', beginningWith);
      replace(out, h('p', { class: 'notice good' }, t('files.proposed', proposal)));
      taken(proposal, stem(data.value || checkpoint.value));
    } catch (error) { replace(out, h('p', { class: 'notice bad' }, [said(error.message), said(error.hint)].filter(Boolean).join('\n'))); }
    chosen();
  }
  const form = [h('p', { class: 'hint' }, t('files.hint'), cut ? ` ${t('files.cut')}` : ''), h('div', { class: 'form' }, h('label', { class: 'field' }, t('files.data'), data), h('label', { class: 'field' }, t('files.checkpoint'), checkpoint)), h('div', { class: 'row' }, button), out];
  return h('details', { class: 'begin' }, h('summary', {}, t('files.begin')), files.length ? h('div', { class: 'panel-part' }, form) : h('p', { class: 'hint' }, t('files.none')));
}

// `texts/train.csv` → `train`; a run is not called by what starts with a dot.
const stem = (path) => path.split('/').pop().replace(/\.[^.]*$/, '').replace(/^\.+/, '') || 'recipe';
