// This machine: what it has, who holds it; and the cards that plans can be made for.
import { get, watched } from '/api.js';
import { complaint, h, renew, replace, table } from '/dom.js';
import { bytes, plain } from '/format.js';
import { t } from '/words.js';

const EVERY_MS = 3000;

export async function open(main) {
  const place = h('div', { class: 'two' });
  const head = h('div', { class: 'head' }, h('h1', {}, t('nav.devices')));
  replace(main, head, h('p', { class: 'hint' }, t('loading')));
  const cards = await get('/catalog');
  const show = (machine) => renew(place, cpu(machine), machine.gpus.map(gpu), machine.missing ? h('p', { class: 'notice' }, machine.missing) : '');
  const watch = await watched('/devices', EVERY_MS, show, (error) => replace(place, complaint(error)));
  // At once: what comes later would push the rest down.
  replace(main, head, place, catalog(cards));
  return watch.close;
}

const catalog = (cards) => h('section', { class: 'panel' }, h('h2', {}, t('devices.catalog')), table(t('devices.catalog.lead'), [
  { name: t('cards.card'), cell: (card) => h('a', { href: `#/new?device=${encodeURIComponent(card.name)}` }, card.name) }, { name: t('cards.memory'), number: true, cell: (card) => bytes(card.total_bytes) },
  { name: t('devices.bandwidth'), number: true, cell: (card) => `${plain(card.bandwidth_gb_per_s, 0)} GB/s` }, { name: 'f32', number: true, cell: (card) => `${plain(card.f32_tflops, 1)} TFLOP/s` }, { name: '16 bit', number: true, cell: (card) => `${plain(card.f16_tflops, 1)} TFLOP/s` },
], cards));

function device(name, total, free, holders, facts) {
  const used = total ? 100 * (total - free) / total : 0;
  return h('section', { class: 'panel' }, h('h2', {}, name), h('div', { class: 'bar', role: 'progressbar', 'aria-label': t('devices.used'), 'aria-valuenow': Math.round(used), 'aria-valuemin': 0, 'aria-valuemax': 100 }, h('div', { 'width%': used })),
    h('p', {}, t('devices.free', { free: bytes(free), total: bytes(total) }), facts ? ` · ${facts}` : ''),
    holders?.length ? table(t('devices.holders'), [{ name: t('devices.process'), cell: (holder) => holder.name }, { name: 'pid', number: true, cell: (holder) => String(holder.pid) }, { name: t('cards.memory'), number: true, cell: (holder) => bytes(holder.bytes) }], holders.slice(0, 12)) : h('p', { class: 'hint' }, t('devices.nobody')));
}

const cpu = ({ cpu: facts }) => device(facts.name, facts.total_bytes, facts.available_bytes, facts.holders, t('devices.threads', { count: facts.threads }));
const gpu = (facts) => device(`cuda:${facts.ordinal} · ${facts.name}`, facts.total_bytes, facts.free_bytes, facts.holders, [facts.utilization !== null && facts.utilization !== undefined ? t('devices.busy', { percent: facts.utilization }) : '', facts.watts ? `${plain(facts.watts, 0)} W` : '', facts.celsius ? `${facts.celsius} °C` : ''].filter(Boolean).join(', '));
