// Plans beside each other: of two batch sizes, and of every card of the catalog.
import { post } from '/api.js';
import { h, table } from '/dom.js';
import { bytes, plain, seconds } from '/format.js';
import { COMPONENTS } from '/memory.js';
import { t } from '/words.js';

const fits = (row) => h('span', { class: `badge ${row.fits ? 'good' : 'bad'}` }, row.fits ? t('ladder.fits') : t('ladder.not'));
const number = (name, cell) => ({ name, number: true, cell });

// The recipe on every card.
export async function onCards(input) {
  const rows = await post('/cards', input);
  return table(t('cards.caption'), [
    { name: t('cards.card'), cell: (row) => row.card }, number(t('cards.memory'), (row) => bytes(row.total_bytes)), { name: t('cards.verdict'), cell: fits },
    number(t('runs.peak'), (row) => bytes(row.planned_peak_bytes)), number(t('plan.batch'), (row) => (row.micro_batch ? `${row.micro_batch} × ${row.accumulation}` : '–')), number(t('metric.samples_per_s'), (row) => plain(row.samples_per_s, 0)),
  ], rows);
}

// The largest batch of every card, whatever the recipe's own is.
export async function largestOnCards(input) {
  const rows = await post('/cards/largest', input);
  const batch = (name) => [number(t(`cards.${name}`), (row) => (row[name] ? String(row[name].batch) : '–')), number(t('metric.samples_per_s'), (row) => plain(row[name]?.samples_per_s, 0))];
  return table(t('cards.largest.caption'), [{ name: t('cards.card'), cell: (row) => row.card }, number(t('component.budget'), (row) => bytes(row.budget_bytes)), { name: t('plan.precision'), cell: (row) => row.precision }, ...batch('full_speed'), ...batch('most')], rows);
}

// Component by component, the batch as it is and twice as large.
export async function twoBatches({ ahead: _, ...input }, batch) {
  const plans = await Promise.all([batch, 2 * batch].map((size) => post('/plan', { ...input, set: [`train.effective_batch=${size}`] })));
  const peak = (plan) => plan.arena_bytes + plan.reserve_bytes;
  const row = (name, cell) => ({ name, cells: plans.map(cell) });
  const rows = [
    ...COMPONENTS.filter((name) => plans.some((plan) => plan.breakdown[name])).map((name) => row(t(`component.${name}`), (plan) => bytes(plan.breakdown[name]))),
    row(t('component.reserve'), (plan) => bytes(plan.reserve_bytes)), row(t('run.planned.name'), (plan) => bytes(peak(plan))), row(t('cards.verdict'), fits),
    row(t('plan.batch'), (plan) => `${plan.micro_batch} × ${plan.accumulation}`), row(t('plan.step'), (plan) => seconds(plan.predicted_step_ms / 1000)), row(t('metric.samples_per_s'), (plan) => plain(plan.samples_per_s, 0)),
  ];
  return table(t('sizes.caption'), [{ name: t('run.what'), cell: (each) => each.name }, ...plans.map((plan, at) => number(t('run.batch', { batch: plan.effective_batch }), (each) => each.cells[at]))], rows);
}
