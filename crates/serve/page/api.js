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

let lost = 0;
const listeners = new Set();
export function onConnection(listener) { listeners.add(listener); }
function reached(isReached) {
  lost = isReached ? 0 : lost + 1;
  listeners.forEach((listener) => listener(lost === 0));
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(ROOT + path, { credentials: 'same-origin', ...options });
  } catch (error) {
    if (error.name !== 'AbortError') reached(false);
    throw error.name === 'AbortError' ? error : new Failure({ error: t('error.away') }, 0);
  }
  reached(true);
  // A wrong token is the form's to tell: it must not be drawn anew.
  if (response.status === 401 && path !== '/sign-in') window.dispatchEvent(new Event('sign-in'));
  if (!response.ok) throw new Failure(await response.json().catch(() => ({})), response.status);
  if (response.status === 204) return null;
  const kind = response.headers.get('content-type') || '';
  return kind.includes('json') ? response.json() : response.text();
}

export const get = (path, signal) => ask(path, { signal });
export const post = (path, body = {}, signal) =>
  ask(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal });
export const runPath = (id, rest = '') => `/runs/${encodeURIComponent(id)}${rest}`;

// Only the latest question counts: one is on its way, the newest waits, the rest are forgotten.
export function latest(question, answered, failed) {
  let running = false;
  let waiting = null;
  async function go(input) {
    if (running) { waiting = [input]; return; }
    running = true;
    try { answered(await question(input), input); } catch (error) { if (error.name !== 'AbortError') failed(error, input); }
    running = false;
    if (waiting) { const [next] = waiting; waiting = null; go(next); }
  }
  return go;
}

// A run's events from a place on; the browser comes back by itself, and we do where it gives up.
export function follow(id, from, hear, startOver) {
  let source;
  let place = from;
  let closed = false;
  let timer;
  function open() {
    source = new EventSource(`${ROOT}${runPath(id, '/events')}?from=${place}`);
    source.onopen = () => reached(true);
    source.onmessage = (message) => { place = message.lastEventId || place; hear(JSON.parse(message.data)); };
    source.addEventListener('start-over', () => { place = 0; startOver(); });
    source.onerror = () => {
      reached(false);
      if (source.readyState === EventSource.CLOSED && !closed) timer = setTimeout(open, 1500);
    };
  }
  open();
  return () => { closed = true; clearTimeout(timer); source.close(); };
}
