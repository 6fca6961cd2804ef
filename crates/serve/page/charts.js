// Curves by uPlot: thin lines, a light grid, colours that follow the theme.
import uPlot from '/uplot/uPlot.js';
import { plain } from '/format.js';
import { t } from '/words.js';

// Colours are named by the theme's variables: each theme has its own, and a chart follows it.
const CURVES = 12;
export const lineColor = (index) => `--curve-${index % CURVES}`;
export const SMOOTH = lineColor(0);
export const EVALUATION = lineColor(1);
export const BEST = lineColor(2);
export const PALE = '--curve-pale';
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const drawn = new Set();
const watcher = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  const chart = target.chart;
  if (chart && target.clientWidth > 0 && Math.abs(chart.width - target.clientWidth) > 1) chart.setSize({ width: target.clientWidth, height: chart.height });
}));

function axes(log, format) {
  const grid = { stroke: css('--line'), width: 1 };
  const common = { stroke: css('--faint'), font: '12px system-ui, sans-serif', grid, ticks: { ...grid, size: 4 } };
  return [
    { ...common, space: 70, size: 32, values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : plain(tick))) },
    { ...common, size: 66, values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : format(tick))), ...(log ? { space: 22 } : {}) },
  ];
}

// series: [{label, color, dash, points, bare}], data: [x, ...ys]; a chart redraws itself when the theme changes.
// Several curves have a legend where they are not too many; the value of a single one under the cursor goes to `note`.
export function chart(place, title, series, data, { log = false, height = 230, format = plain, note = null, along = t('runs.step'), farApart = false, legend = series.length > 1 } = {}) {
  const holder = { place, title, series, data, options: { log, height, format, note, along, farApart, legend }, plot: null };
  build(holder);
  drawn.add(holder);
  return {
    setData(next) { holder.data = next; refill(holder); },
    setLog(next) { holder.options.log = next; build(holder); },
    destroy() { drawn.delete(holder); watcher.unobserve(place); holder.plot?.destroy(); place.chart = null; },
  };
}

// From where to where it goes: its columns may grow before they are drawn.
const reach = ([along]) => [along[0], along[along.length - 1]];

// What is looked at closely stays where it is while more comes.
function refill(holder) {
  const { plot, data, drawnReach: [from, to] } = holder;
  const { min, max } = plot.scales.x;
  const isZoomed = from !== undefined && min !== null && (min > from || max < to);
  plot.setData(data, !isZoomed);
  if (isZoomed) plot.redraw();
  holder.drawnReach = reach(data);
}

function build(holder) {
  const { place, title, series, data, options } = holder;
  holder.plot?.destroy();
  const color = (line, index) => css(line.color || lineColor(index));
  const lines = series.map((line, index) => ({
    label: line.label, stroke: color(line, index), width: line.bare ? 0 : line.points ? 2 : 1.5, dash: line.dash,
    spanGaps: true, points: { show: Boolean(line.points), size: 7, ...(line.bare ? { fill: color(line, index), width: 0 } : {}) }, value: (_, value) => (value === null || value === undefined ? '' : options.format(value)),
  }));
  place.setAttribute('role', 'img');
  place.setAttribute('aria-label', title);
  place.replaceChildren();
  holder.plot = new uPlot({
    width: Math.max(place.clientWidth, 240), height: options.height,
    scales: { x: { time: false, ...(options.farApart ? { distr: 3 } : {}) }, y: options.log ? { distr: 3 } : {} },
    axes: axes(options.log, options.format),
    cursor: { drag: { x: true, y: false }, focus: { prox: 24 } },
    // What has no line has a mark all the same.
    legend: { show: options.legend, markers: { stroke: (_, at) => lines[at - 1]?.stroke } },
    hooks: options.note ? { setCursor: [(plot) => point(plot, options)], setData: [(plot) => point(plot, options)] } : {},
    series: [{ label: options.along, value: (_, value) => (value === null ? '' : plain(value)) }, ...lines],
  }, data, place);
  holder.drawnReach = reach(data);
  place.chart = holder.plot;
  watcher.observe(place);
}

// What is under the cursor, else the latest.
function point(plot, { note, format }) {
  const [steps, values] = plot.data;
  const at = plot.cursor.idx ?? values?.findLastIndex((value) => value !== null && value !== undefined) ?? -1;
  const value = values?.[at];
  note.textContent = value === null || value === undefined ? '' : plot.cursor.idx === null || plot.cursor.idx === undefined ? format(value) : `${format(value)} · ${t('run.at', { step: plain(steps[at], 0) })}`;
}

export function redraw() { drawn.forEach(build); }
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

// Points with room on both sides: several that stand at the end are all seen. By ratio, the room is a ratio.
export function roomy([along, ...values], byRatio = false) {
  if (along.length === 0) return [along, ...values];
  const [from, to] = reach([along]);
  const room = 0.04 * (byRatio ? Math.log(to / from) : to - from) || 0.04 * Math.abs(to) || 1;
  const ends = byRatio ? [from / Math.exp(room), to * Math.exp(room)] : [from - room, to + room];
  return [[ends[0], ...along, ends[1]], ...values.map((column) => [null, ...column, null])];
}

// Curves over different steps on one axis.
export const joined = (tables) => uPlot.join(tables);
