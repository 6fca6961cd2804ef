// The queue: what runs, what waits, and when it will run.
import { post, runPath, server, watched } from '/api.js';
import { complaint, h, renew, replace, table } from '/dom.js';
import { bytes, clock, when } from '/format.js';
import { badge } from '/page-runs.js';
import { t } from '/words.js';

const EVERY_MS = 2000;

export async function open(main) {
  const refused = h('div', { class: 'gone' });
  const place = h('section', { class: 'panel' }, h('p', { class: 'hint' }, t('loading')));
  replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, t('nav.queue')), h('p', { class: 'lead' }, t('queue.lead')))), refused, place);
  const queue = await watched('/queue', EVERY_MS, (jobs) => renew(place, jobs.length ? list(jobs, stop) : h('p', { class: 'hint' }, t('queue.none'))), (error) => replace(place, complaint(error)));
  // What is refused stays in sight until something else is asked.
  async function stop(job, button) {
    button.disabled = true;
    replace(refused);
    try { await post(runPath(job.id, '/stop')); await queue.look(); } catch (error) { button.disabled = false; replace(refused, complaint(error)); }
  }
  return queue.close;
}

function list(jobs, stop) {
  const button = (job) => h('button', { type: 'button', class: 'danger', 'data-key': `stop ${job.id}`, onclick: (event) => stop(job, event.target) }, job.state === 'queued' ? t('queue.leave') : t('run.stop'));
  return table(t('queue.caption'), [
    { name: t('runs.name'), cell: (job) => h('a', { href: `#/run/${encodeURIComponent(job.id)}`, 'data-key': `open ${job.id}` }, job.id) }, { name: t('runs.state'), cell: (job) => badge(job.state === 'queued' ? 'queued' : 'running') },
    { name: t('run.device'), cell: (job) => job.device }, { name: t('queue.bytes'), number: true, cell: (job) => bytes(job.bytes) },
    { name: t('queue.start'), cell: (job) => (job.state === 'queued' ? clock(job.expected_start) : when(job.began)) }, { name: t('queue.end'), cell: (job) => clock(job.expected_end) }, { unseen: t('queue.actions'), cell: (job) => !server.read_only && button(job) },
  ], jobs);
}
