// Memory as pictures: the hull under its load line, and the arena as a map of buffers over time.
import { freshId, h, replace } from '/dom.js';
import { bytes } from '/format.js';
import { t } from '/words.js';

export const COMPONENTS = ['weights', 'optimizer', 'gradients', 'inputs', 'activations', 'attention_scores', 'workspace'];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const color = (component) => css(`--c-${component}`);

// Bytes by component inside a budget.
export function hull({ breakdown = {}, reserve = 0, gaps = 0, budget }) {
  const parts = COMPONENTS.map((name) => [name, breakdown[name] || 0]).filter(([, size]) => size > 0);
  const planned = parts.reduce((sum, [, size]) => sum + size, 0) + reserve + gaps;
  // A line far out at sea would leave nothing to see of the ship.
  const near = budget && budget < 8 * planned;
  const scale = Math.max(planned, near ? budget : 0) * 1.04 || 1;
  const share = (size) => 100 * size / scale;
  const line = h('b', {});
  if (near) line.style.left = `${share(budget)}%`;
  const label = t('hull.label', { planned: bytes(planned), budget: bytes(budget) });
  const bar = h('div', { class: 'hull', role: 'img', 'aria-label': label },
    reserve > 0 && h('i', { 'width%': share(reserve), color: css('--faint') }),
    parts.map(([name, size]) => h('i', { 'width%': share(size), color: color(name) })),
    gaps > 0 && h('i', { 'width%': share(gaps), color: css('--line') }), near && line);
  const entry = (text, size, fill) => h('li', {}, h('span', { class: 'swatch', color: fill }), `${text} ${bytes(size)}`);
  return h('div', { class: 'panel-part' }, bar, h('ul', { class: 'legend' },
    reserve > 0 && entry(t('component.reserve'), reserve, css('--faint')),
    parts.map(([name, size]) => entry(t(`component.${name}`), size, color(name))),
    gaps > planned / 50 && entry(t('component.gaps'), gaps, css('--line')),
    budget && (near ? entry(t('component.budget'), budget, css('--load')) : h('li', { class: 'hint' }, t('hull.far', { budget: bytes(budget) })))));
}

// The map: x is time in ticks, y the address; every rectangle is a buffer.
export function arenaMap(timeline) {
  const canvas = h('canvas', { class: 'map', tabindex: 0, role: 'img', 'aria-label': t('map.label', { arena: bytes(timeline.arena_bytes) }) });
  const note = h('p', { class: 'map-note hint', id: freshId(), 'aria-live': 'polite' }, t('map.hint'));
  canvas.setAttribute('aria-describedby', note.id);
  const ticks = timeline.phases.reduce((sum, phase) => sum + phase.ticks, 0) || 1;
  const all = rectangles(timeline, ticks);
  const state = { all, ticks, timeline, canvas, note, at: null };
  const paint = () => draw(state);
  new ResizeObserver(paint).observe(canvas);
  canvas.addEventListener('mousemove', (event) => point(state, event.offsetX / canvas.clientWidth, 1 - event.offsetY / canvas.clientHeight));
  canvas.addEventListener('mouseleave', () => { state.at = null; replace(note, t('map.hint')); paint(); });
  canvas.addEventListener('keydown', (event) => keys(state, event));
  return h('div', {}, canvas, note, phases(timeline));
}

function rectangles(timeline, ticks) {
  const residents = timeline.residents.map((buffer) => ({ ...buffer, from: 0, to: ticks, phase: '' }));
  let start = 0;
  const temporaries = timeline.phases.flatMap((phase) => {
    const from = start;
    start += phase.ticks;
    return phase.buffers.map((buffer) => ({ ...buffer, from: from + buffer.first, to: from + buffer.last + 1, phase: phase.name }));
  });
  return [...residents, ...temporaries];
}

function draw({ all, ticks, timeline, canvas, at }) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio];
  if (!width || !height) return;
  [canvas.width, canvas.height] = [width, height];
  const paint = canvas.getContext('2d');
  const fills = Object.fromEntries(COMPONENTS.map((name) => [name, color(name)]));
  for (const buffer of all) {
    const x = width * buffer.from / ticks;
    const y = height * (1 - (buffer.offset + buffer.bytes) / timeline.arena_bytes);
    paint.globalAlpha = !at || at === buffer ? 0.9 : 0.35;
    paint.fillStyle = fills[buffer.component] || '#888';
    paint.fillRect(x, y, Math.max(width * (buffer.to - buffer.from) / ticks, 0.6), Math.max(height * buffer.bytes / timeline.arena_bytes, 0.6));
  }
  paint.globalAlpha = 1;
  let start = 0;
  paint.strokeStyle = css('--ink');
  for (const phase of timeline.phases.slice(0, -1)) {
    start += phase.ticks;
    paint.strokeRect(width * start / ticks, -2, 0, height + 4);
  }
}

function point(state, x, y) {
  const tick = Math.floor(x * state.ticks);
  const address = y * state.timeline.arena_bytes;
  const hit = state.all.findLast((b) => b.from <= tick && tick < b.to && b.offset <= address && address < b.offset + b.bytes);
  if (hit === state.at) return;
  state.at = hit || null;
  if (hit) describe(state, hit); else replace(state.note, t('map.free'));
  draw(state);
}

// With the keyboard: the buffers by size.
function keys(state, event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  state.sorted ??= [...state.all].sort((a, b) => b.bytes - a.bytes);
  const next = state.at ? state.sorted.indexOf(state.at) + step : 0;
  state.at = state.sorted[(next + state.sorted.length) % state.sorted.length];
  describe(state, state.at);
  draw(state);
}

function describe({ note }, buffer) {
  const life = buffer.phase ? t('map.life', { phase: buffer.phase, first: buffer.first, last: buffer.last }) : t('map.resident');
  replace(note, h('strong', { class: 'mono' }, buffer.name), ` · ${t(`component.${buffer.component}`)} · ${bytes(buffer.bytes)} · ${life}`);
}

function phases(timeline) {
  const names = timeline.phases.map((phase) => `${phase.name}${phase.repeat > 1 ? ` × ${phase.repeat}` : ''} (${phase.ticks})`);
  return h('p', { class: 'hint' }, t('map.phases', { phases: names.join(' → ') }), timeline.unlisted ? ` ${t('map.unlisted', { count: timeline.unlisted })}` : '');
}
