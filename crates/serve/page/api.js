// The server, asked. A failure carries what the server said: field, cause, hint.
import { t } from '/words.js';

const ROOT = '/api/v1';
// What the server says about itself.
export const server = { read_only: false, version: '' };

export class Failure extends Error {
  constructor(problem, status) {
    super(problem.error || t('error.unknown'));
    this.status = status;
    this.field = problem.field;
    this.hint = problem.hint;
    this.findings = problem.findings || [];
  }
}

const AGAIN_MS = 1000;
const listeners = new Set();
let asking = null;
export function onConnection(listener) { listeners.add(listener); }

// Away once, it is asked until it is back, whatever the page asks.
function reached(isReached) {
  if (isReached) { clearTimeout(asking); asking = null; } else asking ??= setTimeout(askAgain, AGAIN_MS);
  listeners.forEach((listener) => listener(isReached));
}

async function askAgain() {
  asking = null;
  await get('/server').catch(() => null);
}

// Until the server answers.
export const back = () => new Promise((resolve) => {
  const listener = (isReached) => { if (isReached) { listeners.delete(listener); resolve(); } };
  onConnection(listener);
});

// What the network did not bring, the whole of it or the rest.
function missing(error) {
  if (error.name === 'AbortError') throw error;
  reached(false);
  throw new Failure({ error: t('error.away') }, 0);
}

async function ask(path, options) {
  const response = await fetch(ROOT + path, { credentials: 'same-origin', ...options }).catch(missing);
  reached(true);
  // A wrong token is the form's to tell: it must not be drawn anew.
  if (response.status === 401 && path !== '/sign-in') window.dispatchEvent(new Event('sign-in'));
  if (!response.ok) throw new Failure(await response.json().catch(() => ({})), response.status);
  if (response.status === 204) return null;
  const kind = response.headers.get('content-type') || '';
  return (kind.includes('json') ? response.json() : response.text()).catch(missing);
}

export const get = (path, signal) => ask(path, { signal });
export const post = (path, body = {}, signal) =>
  ask(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal });
export const runPath = (id, rest = '') => `/runs/${encodeURIComponent(id)}${rest}`;

// Only the latest question counts: one is on its way, the newest waits, the rest are forgotten. What was asked while the
// server was away is asked again when it is back.
export function latest(question, answered, failed) {
  let running = false;
  let waiting = null;
  async function go(input) {
    if (running) { waiting = [input]; return; }
    running = true;
    try { answered(await question(input), input); } catch (error) {
      if (error.name !== 'AbortError') failed(error, input);
      if (error.status === 0) { await back(); waiting ??= [input]; }
    }
    running = false;
    if (waiting) { const [next] = waiting; waiting = null; go(next); }
  }
  return go;
}

// Asks again and again until it is closed, and shows what has changed. An error is shown where there is nothing else yet.
export async function watched(path, everyMs, show, failed, stamp = () => '') {
  let previous = null;
  let isClosed = false;
  async function look() {
    const answer = await get(path).catch((error) => { if (!isClosed && previous === null) failed(error); });
    const text = JSON.stringify(answer) + stamp();
    if (isClosed || answer === undefined || text === previous) return;
    previous = text;
    show(answer);
  }
  await look();
  const timer = setInterval(look, everyMs);
  return { look, close() { isClosed = true; clearInterval(timer); } };
}

const SOONEST_MS = 1500;
const LATEST_MS = 30000;

// A run's events from a place on, while somebody looks; the browser comes back by itself, and we do where it gives up.
export function follow(id, from, hear, startOver) {
  let source = null;
  let place = from;
  let wait = SOONEST_MS;
  let timer;
  function open() {
    source = new EventSource(`${ROOT}${runPath(id, '/events')}?from=${place}`);
    source.onopen = () => { wait = SOONEST_MS; reached(true); };
    source.onmessage = (message) => { place = message.lastEventId || place; hear(JSON.parse(message.data)); };
    source.addEventListener('start-over', () => { place = 0; startOver(); });
    source.onerror = () => {
      // Whether the server is away or has refused this, its answer to something else tells.
      get('/server').catch(() => null);
      if (source?.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(open, wait);
      wait = Math.min(2 * wait, LATEST_MS);
    };
  }
  function close() { clearTimeout(timer); source?.close(); source = null; }
  // A page that nobody sees holds no connection.
  function turned() { close(); if (!document.hidden) open(); }
  document.addEventListener('visibilitychange', turned);
  turned();
  return () => { document.removeEventListener('visibilitychange', turned); close(); };
}
