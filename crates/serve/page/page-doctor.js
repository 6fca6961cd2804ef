// The doctor: an out-of-memory error goes in, what it means and what helps comes out.
import { get, post } from '/api.js';
import { h, replace, table } from '/dom.js';
import { bytes } from '/format.js';
import { t } from '/words.js';

export async function open(main) {
  const recipes = await get('/recipes');
  const cards = await get('/catalog');
  const text = h('textarea', { rows: 9, placeholder: t('doctor.placeholder'), 'aria-label': t('doctor.text') });
  const recipe = h('select', {}, h('option', { value: '' }, t('doctor.no_recipe')), recipes.map((entry) => h('option', { value: entry.name }, entry.name)));
  const card = h('select', {}, h('option', { value: 'auto' }, t('doctor.any')), cards.map((entry) => h('option', { value: entry.name }, entry.name)));
  const out = h('div', { class: 'panel-part', 'aria-live': 'polite' });
  const button = h('button', { class: 'main', onclick: async () => {
    button.disabled = true;
    replace(out, h('p', { class: 'hint' }, t('loading')));
    const chosen = recipes.find((entry) => entry.name === recipe.value);
    const question = chosen && { recipe: chosen.text, name: chosen.name, device: card.value };
    try { replace(out, answer(await post('/advise', { ...(text.value.trim() ? { text: text.value } : {}), ...(question ? { question } : {}) }))); } catch (error) { replace(out, h('p', { class: 'notice bad', role: 'alert' }, [error.message, error.hint].filter(Boolean).join('\n'))); }
    button.disabled = false;
  } }, t('doctor.ask'));
  replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, t('nav.doctor')), h('p', { class: 'lead' }, t('doctor.lead')))), h('section', { class: 'panel' }, h('label', { class: 'field' }, t('doctor.text'), text), h('div', { class: 'form' }, h('label', { class: 'field' }, t('doctor.recipe'), recipe), h('label', { class: 'field' }, t('cards.card'), card)), h('div', {}, button)), out);
}

const words = (value) => (typeof value === 'string' ? value : Object.entries(value).filter(([, part]) => typeof part === 'string' || typeof part === 'number').map(([, part]) => part).join(' · '));

function answer({ error, pytorch, plimsoll, cards }) {
  const section = (title, ...parts) => h('section', { class: 'panel' }, h('h2', {}, title), ...parts);
  const list = (items) => h('ul', {}, items.map((item) => h('li', {}, words(item))));
  return [
    error && section(t('doctor.error'), list(error.causes || []), error.tensors?.length ? table(t('doctor.tensors'), [{ name: t('runs.name'), cell: (row) => row.name || words(row) }, { name: t('cards.memory'), number: true, cell: (row) => (row.bytes ? bytes(row.bytes) : '–') }], error.tensors.slice(0, 20)) : '', error.remedies?.length ? h('details', {}, h('summary', {}, t('doctor.remedies')), list(error.remedies)) : ''),
    pytorch && section(t('doctor.pytorch'), settings(pytorch)),
    plimsoll && section(t('doctor.plimsoll'), h('p', {}, t('doctor.plimsoll.words', { verdict: plimsoll.fits ? t('ladder.fits') : t('ladder.not'), batch: `${plimsoll.micro_batch} × ${plimsoll.accumulation}`, peak: bytes(plimsoll.planned_peak_bytes) }))),
    cards?.length ? section(t('doctor.cards'), table(t('doctor.cards'), [{ name: t('cards.card'), cell: (row) => row.device || row.card || '' }, { name: t('cards.verdict'), cell: (row) => h('span', { class: `badge ${row.fits ? 'good' : 'bad'}` }, row.fits ? t('ladder.fits') : t('ladder.not')) }, { name: t('runs.peak'), number: true, cell: (row) => bytes(row.card_bytes) }], cards)) : '',
  ];
}

// Plain facts as rows, code as code.
function settings(advice) {
  const simple = Object.entries(advice).filter(([, value]) => ['string', 'number', 'boolean'].includes(typeof value));
  const shown = (name, value) => (name.endsWith('_bytes') ? bytes(value) : String(value));
  return [table(t('doctor.pytorch'), [{ name: t('compare.key'), cell: ([name]) => h('span', { class: 'mono' }, name) }, { name: t('studies.value'), cell: ([name, value]) => (String(value).includes('\n') ? h('pre', { class: 'log' }, value) : shown(name, value)) }], simple)];
}
