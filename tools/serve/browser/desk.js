// A server with folders of its own, and a browser that looks at it.
import { spawn } from 'node:child_process';
import { appendFileSync, cpSync, existsSync, mkdtempSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { chromium } from 'playwright-core';

const BROWSERS = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
export const PROGRAM = process.env.PLIMSOLL;
if (!PROGRAM || !existsSync(PROGRAM)) throw new Error('PLIMSOLL names the binary to test: tools/serve/browser-tests sets it');

const desks = new Set();
// Whatever a test left behind.
export async function endAll() { for (const desk of [...desks]) await desk.end(); }

export class Desk {
  constructor(flags = []) {
    this.folder = mkdtempSync(join(tmpdir(), 'plimsoll-page-'));
    this.runs = join(this.folder, 'runs');
    mkdirSync(join(this.folder, 'data'));
    this.flags = flags;
    desks.add(this);
  }

  // The same port after a restart, so that the page finds it again.
  async start(port = this.port ?? 0) {
    const flags = ['serve', '--port', String(port), '--runs', this.runs, '--data', join(this.folder, 'data'), '--studies', join(this.folder, 'studies'), ...this.flags];
    this.server = spawn(PROGRAM, flags, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, HOME: this.folder } });
    this.errors = '';
    this.server.stderr.on('data', (text) => { this.errors += text; });
    this.link = await new Promise((resolve, reject) => {
      let text = '';
      this.server.stdout.on('data', (part) => { text += part; if (text.includes('\n')) resolve(text.trim()); });
      this.server.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${this.errors}`)));
    });
    this.port = Number(new URL(this.link).port);
    this.home = `http://127.0.0.1:${this.port}/`;
  }

  kill(signal = 'SIGKILL') {
    return new Promise((resolve) => { this.server.once('exit', resolve); this.server.kill(signal); });
  }

  async api(path, body) {
    const options = body ? { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) } : {};
    const response = await fetch(`${this.home}api/v1${path}`, options);
    return response.json();
  }

  // Runs that are over, so that pages have something to show.
  seed(count = 3, name = 'seed') {
    mkdirSync(this.runs, { recursive: true });
    for (let n = 1; n <= count; n += 1) {
      const folder = join(this.runs, name === 'seed' ? `seed-${n}` : name);
      mkdirSync(folder);
      writeFileSync(join(folder, 'recipe.toml'), `[train]\neffective_batch = ${32 * n}\n`);
      writeFileSync(join(folder, 'events.jsonl'), story(n).map((event) => `${JSON.stringify(event)}\n`).join(''));
    }
  }

  // One more step of a run.
  grow(run, step) {
    const line = readFileSync(join(this.runs, run, 'events.jsonl'), 'utf8').split('\n')[1];
    appendFileSync(join(this.runs, run, 'events.jsonl'), `${JSON.stringify({ ...JSON.parse(line), step })}\n`);
  }

  // More events of a run, and its log.
  tell(run, events, log) {
    appendFileSync(join(this.runs, run, 'events.jsonl'), events.map((event) => `${JSON.stringify(event)}\n`).join(''));
    const folder = join(this.runs, '.serve', run);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'log.txt'), log);
  }

  // A file of the data folder.
  data(path, text) {
    const file = join(this.folder, 'data', path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }

  copyRun(from, to) { cpSync(join(this.runs, from), join(this.runs, to), { recursive: true }); }
  files(...path) { const folder = join(this.runs, ...path); return existsSync(folder) ? readdirSync(folder) : []; }

  // The journal of a search, as `plimsoll tune` and Optuna write it.
  study(name, trials = 12) {
    const folder = join(this.folder, 'studies', name);
    mkdirSync(folder, { recursive: true });
    const lines = [{ op_code: 0, worker_id: 'w', study_name: name, directions: [2] }, { op_code: 3, worker_id: 'w', study_id: 0, system_attr: { 'study:metric_names': ['accuracy'] } }, ...Array.from({ length: trials }, (_, at) => trial(at))];
    writeFileSync(join(folder, 'journal.log'), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  }

  // One more trial ends.
  growStudy(name) { appendFileSync(join(this.folder, 'studies', name, 'journal.log'), `${JSON.stringify(trial(12))}\n`); }

  // A search with two objectives, whose trials tell of themselves on the way.
  studyOfTwo(name, names = {}) {
    const { objectives = ['accuracy', 'seconds'], param } = names;
    const folder = join(this.folder, 'studies', 'of-two');
    mkdirSync(folder, { recursive: true });
    const lines = [{ op_code: 0, worker_id: 'w', study_name: name, directions: [2, 1] }, { op_code: 3, worker_id: 'w', study_id: 0, system_attr: { 'study:metric_names': objectives } }, ...Array.from({ length: 24 }, (_, at) => trialOfTwo(at, param))];
    writeFileSync(join(folder, 'journal.log'), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  }

  growStudyOfTwo() { appendFileSync(join(this.folder, 'studies', 'of-two', 'journal.log'), `${JSON.stringify(trialOfTwo(24))}\n`); }

  // Nothing of a test that failed may stand in the way of the next.
  async quiet() {
    const runs = await this.api('/runs').catch(() => []);
    for (const run of runs) if (['running', 'starting', 'queued', 'stopping'].includes(run.state)) await this.api(`/runs/${encodeURIComponent(run.id)}/stop`, { now: true }).catch(() => {});
  }

  async end() {
    desks.delete(this);
    if (this.server && this.server.exitCode === null && this.server.signalCode === null) await this.kill('SIGTERM');
    // Trainings outlive their server; each is named in its own folder.
    for (const run of this.files()) {
      const lock = join(this.runs, run, 'run.lock');
      const pid = existsSync(lock) ? Number.parseInt(readFileSync(lock, 'utf8'), 10) : 0;
      if (pid > 0 && isOurs(pid, this.folder)) process.kill(pid, 'SIGKILL');
    }
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

// Numbers of processes are given out again: only one that was called with our folder is ours.
function isOurs(pid, folder) {
  try { return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(folder); } catch { return false; }
}

function trial(at) {
  const second = (n) => `2026-11-16T11:${String(10 + Math.floor(n / 60)).padStart(2, '0')}:${String(n % 60).padStart(2, '0')}.000000+00:00`;
  const lr = 1e-4 * 10 ** (2 * ((at * 0.37) % 1));
  const [lower, upper] = [1e-4, 1e-2];
  return { op_code: 4, worker_id: 'w', study_id: 0, datetime_start: second(7 * at), datetime_complete: second(7 * at + 6), state: 1, value: 0.9 - 0.05 * Math.abs(Math.log10(lr) + 3) - 0.002 * (at % 3), values: null,
    distributions: { 'train.optimizer.lr': JSON.stringify({ name: 'FloatDistribution', attributes: { step: null, low: lower, high: upper, log: true } }), 'train.effective_batch': JSON.stringify({ name: 'CategoricalDistribution', attributes: { choices: [16, 32, 64] } }) },
    params: { 'train.optimizer.lr': lr, 'train.effective_batch': at % 3 }, user_attrs: {}, system_attrs: {}, intermediate_values: {} };
}

// The larger the rate, the more exact; the larger the batch, the quicker.
function trialOfTwo(at, param = 'train.optimizer.lr') {
  const one = trial(at);
  const [lr, batch] = [one.params['train.optimizer.lr'], one.params['train.effective_batch']];
  const accuracy = 0.5 + 0.1 * Math.log10(lr / 1e-4) - 0.02 * batch;
  const renamed = (table) => ({ ...table, [param]: table['train.optimizer.lr'], ...(param === 'train.optimizer.lr' ? {} : { 'train.optimizer.lr': undefined }) });
  return { ...one, value: null, values: [accuracy, 90 - 30 * batch + at % 5], params: renamed(one.params), distributions: renamed(one.distributions), intermediate_values: { 1: accuracy - 0.2, 2: accuracy - 0.1, 3: accuracy } };
}

function story(n) {
  const steps = Array.from({ length: 300 }, (_, at) => ({ event: 'step', step: at + 1, epoch: Math.floor(at / 100), loss: 1.1 / (1 + at / (20 * n)) + 0.05 * Math.abs(Math.sin(at)), norm: 1, lr: 1e-3, ms: 70, samples_per_s: 800, stall_ms: 0.1, remaining_s: 300 - at, planned_peak_bytes: 74951680, measured_peak_bytes: 74951680 }));
  return [{ event: 'started', version: '0.1.0', recipe: 'seed', recipe_hash: '', device: 'cpu', budget_bytes: 2e10, planned_peak_bytes: 74951680, parameters: 371000, effective_batch: 32 * n, micro_batch: 32 * n, accumulation: 1, steps: 300, steps_per_epoch: 100, train_samples: 6400, validation_samples: 1000, best_accuracy: 0.95, best_loss: 0.1 }, ...steps,
    { event: 'evaluation', step: 300, epoch: 2, loss: 0.2 + n / 100, accuracy: 0.93, samples: 1000, ms: 20, best: true },
    { event: 'finished', end: 'completed', steps: 300, epochs: 3, final: null, best: null, planned_peak_bytes: 74951680, measured_peak_bytes: 74951680, host_peak_bytes: 1e7, samples_per_s: 800, seconds: 24 }];
}

export async function browser() {
  const executablePath = BROWSERS.find((path) => path && existsSync(path));
  if (!executablePath) throw new Error('no Chromium: apt-get install chromium, or name one with CHROMIUM=');
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
}
