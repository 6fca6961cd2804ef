// The doctor: an out-of-memory error goes in, what it means and what helps comes out.
import { get, post } from '/api.js';
import { h, replace, table } from '/dom.js';
import { bytes, count } from '/format.js';
import { said, t } from '/words.js';

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
    try { replace(out, answer(await post('/advise', { ...(text.value.trim() ? { text: text.value } : {}), ...(question ? { question } : {}) }))); } catch (error) { replace(out, h('p', { class: 'notice bad', role: 'alert' }, [said(error.message), said(error.hint)].filter(Boolean).join('\n'))); }
    button.disabled = false;
  } }, t('doctor.ask'));
  replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, t('nav.doctor')), h('p', { class: 'lead' }, t('doctor.lead')))), h('section', { class: 'panel' }, h('label', { class: 'field' }, t('doctor.text'), text), h('div', { class: 'form' }, h('label', { class: 'field' }, t('doctor.recipe'), recipe), h('label', { class: 'field' }, t('cards.card'), card)), h('div', {}, button)), out);
}

const section = (title, ...parts) => h('section', { class: 'panel' }, h('h2', {}, title), ...parts);
const list = (items) => h('ul', {}, items.map((item) => h('li', {}, said(item))));
const fits = (row) => h('span', { class: `badge ${row.fits ? 'good' : 'bad'}` }, row.fits ? t('ladder.fits') : t('ladder.not'));
const batch = (row) => `${row.per_device_train_batch_size} × ${row.gradient_accumulation_steps}`;
const words = (name, cell) => ({ name: t(name), cell: (row) => said(cell(row)) });

function answer({ error, mismatch, pytorch, plimsoll, cards }) {
  return [
    error && reading(error),
    mismatch ? h('p', { class: 'notice warn' }, said(mismatch)) : '',
    pytorch && settings(pytorch),
    plimsoll && section(t('doctor.plimsoll'), h('p', {}, t('doctor.plimsoll.words', { verdict: plimsoll.fits ? t('ladder.fits') : t('ladder.not'), batch: `${plimsoll.micro_batch} × ${plimsoll.accumulation}`, peak: bytes(plimsoll.planned_peak_bytes) }))),
    cards?.length ? section(t('doctor.cards'), table(t('doctor.cards'), [{ name: t('cards.card'), cell: (row) => row.device }, { name: t('cards.verdict'), cell: fits }, { name: t('plan.batch'), number: true, cell: batch }, { name: t('runs.peak'), number: true, cell: (row) => bytes(row.card_bytes) }], cards, () => ({}), { quiet: true })) : '',
  ];
}

function reading(error) {
  const numbers = ['total_bytes', 'allocated_bytes', 'unallocated_bytes', 'free_bytes', 'process_bytes'].filter((name) => error[name] !== null && error[name] !== undefined);
  const tile = (name, value) => h('div', { class: 'tile' }, h('dt', {}, name), h('dd', {}, bytes(value)));
  const cause = (each) => h('div', { class: 'panel-part' }, h('p', {}, h('span', { class: 'badge warn' }, t(`doctor.${each.likely}`)), ' ', h('strong', {}, said(each.why))), list(each.actions || []));
  return section(t('doctor.error'),
    h('dl', { class: 'tiles' }, error.asked ? tile(t('doctor.asked'), error.asked.bytes) : '', numbers.map((name) => tile(t(`doctor.${name}`), error[name]))),
    (error.causes || []).map(cause),
    error.tensors?.length ? tensors(error.tensors) : '',
    error.remedies?.length ? h('details', {}, h('summary', {}, t('doctor.remedies')), remedies(error.remedies)) : '');
}

function tensors(found) {
  return table(t('doctor.tensors'), [
    words('run.what', (row) => row.what), { name: t('runs.name'), cell: (row) => h('span', { class: 'mono' }, row.name) }, { name: t('doctor.shape'), cell: (row) => row.shape.join(' × ') },
    { name: t('plan.precision'), cell: (row) => row.precision }, { name: t('plan.batch'), number: true, cell: (row) => count(row.batch) }, { name: t('field.length'), number: true, cell: (row) => count(row.length) }, { name: t('doctor.places'), number: true, cell: (row) => count(row.places) },
  ], found.slice(0, 20));
}

const BADGES = { helps: 'good', sometimes: 'warn', no: 'bad', harms: 'bad' };

function remedies(judged) {
  return table(t('doctor.remedies'), [words('doctor.remedy', (row) => row.name), { name: t('cards.verdict'), cell: (row) => h('span', { class: `badge ${BADGES[row.verdict]}` }, t(`doctor.${row.verdict}`)) }, words('plan.why', (row) => row.reason)], judged, () => ({}), { quiet: true });
}

function settings(advice) {
  return section(t('doctor.pytorch'),
    h('p', {}, fits(advice), ` ${said(advice.device)}: ${bytes(advice.card_bytes)}`),
    table(t('doctor.pytorch'), [{ name: t('compare.key'), cell: (row) => h('span', { class: 'mono' }, said(row.name)) }, { name: t('studies.value'), cell: (row) => row.value }, words('cards.memory', (row) => row.memory), words('doctor.speed', (row) => row.speed), words('run.learning', (row) => row.learning)], advice.settings || [], () => ({}), { quiet: true }),
    advice.code ? h('pre', { class: 'log', tabindex: 0, 'aria-label': t('doctor.code') }, advice.code) : '', list(advice.notes || []), advice.ways_out?.length ? ways(advice.ways_out) : '');
}

function ways(found) {
  return table(t('doctor.ways'), [{ name: t('doctor.way'), cell: (row) => h('span', { class: 'mono' }, row.what) }, { name: t('cards.verdict'), cell: fits }, { name: t('runs.peak'), number: true, cell: (row) => bytes(row.card_bytes) }, words('run.learning', (row) => row.learning)], found);
}
