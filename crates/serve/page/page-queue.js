// The queue: what runs, what waits, and when it will run.
import { get, post, runPath, server } from '/api.js';
import { h, replace, table } from '/dom.js';
import { bytes, clock, when } from '/format.js';
import { badge } from '/page-runs.js';
import { t } from '/words.js';

export async function open(main) {
  const place = h('section', { class: 'panel' }, h('p', { class: 'hint' }, t('loading')));
  replace(main, h('div', { class: 'head' }, h('div', {}, h('h1', {}, t('nav.queue')), h('p', { class: 'lead' }, t('queue.lead')))), place);
  let previous = '';
  async function refresh() {
    try {
      const jobs = await get('/queue');
      const text = JSON.stringify(jobs);
      if (text !== previous) { previous = text; replace(place, jobs.length ? list(jobs) : h('p', { class: 'hint' }, t('queue.none'))); }
    } catch { /* the banner says so */ }
  }
  function list(jobs) {
    const stop = (job) => h('button', { type: 'button', class: 'danger', onclick: async (event) => { event.target.disabled = true; await post(runPath(job.id, '/stop')).catch(() => {}); refresh(); } }, job.state === 'queued' ? t('queue.leave') : t('run.stop'));
    return table(t('queue.caption'), [
      { name: t('runs.name'), cell: (job) => h('a', { href: `#/run/${encodeURIComponent(job.id)}` }, job.id) }, { name: t('runs.state'), cell: (job) => badge(job.state === 'queued' ? 'queued' : 'running') },
      { name: t('run.device'), cell: (job) => job.device }, { name: t('queue.bytes'), number: true, cell: (job) => bytes(job.bytes) },
      { name: t('queue.start'), cell: (job) => (job.state === 'queued' ? clock(job.expected_start) : when(job.began)) }, { name: t('queue.end'), cell: (job) => clock(job.expected_end) }, { unseen: t('queue.actions'), cell: (job) => !server.read_only && stop(job) },
    ], jobs);
  }
  await refresh();
  const timer = setInterval(refresh, 2000);
  return () => clearInterval(timer);
}
