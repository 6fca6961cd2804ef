// Numbers as people read them, in their language.
import { language, t } from '/words.js';

const number = (value, digits) => new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(value);
const missing = (value) => value === undefined || value === null || Number.isNaN(value);

export function bytes(value) {
  if (missing(value)) return '–';
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < 4) { size /= 1024; unit += 1; }
  return `${value < 0 ? '−' : ''}${number(size, unit === 0 ? 0 : size < 10 ? 2 : 1)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

export function seconds(value) {
  if (missing(value)) return '–';
  if (value < 1) return `${number(value * 1000, value < 0.01 ? 2 : 0)} ${t('unit.ms')}`;
  if (value < 100) return `${number(value, 1)} ${t('unit.s')}`;
  if (value < 5400) return `${number(value / 60, 0)} ${t('unit.min')}`;
  if (value < 172800) return `${number(value / 3600, 1)} ${t('unit.h')}`;
  return `${number(value / 86400, 1)} ${t('unit.d')}`;
}

export const count = (value) => (missing(value) ? '–' : number(value, 0));
export const plain = (value, digits = 4) => {
  if (missing(value)) return '–';
  if (Math.abs(value) >= 1e6) return new Intl.NumberFormat(language, { notation: 'compact', maximumFractionDigits: 2 }).format(value);
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(2).replace(/\.?0+e/, 'e');
  const size = Math.abs(value);
  return number(value, Math.min(digits, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 4));
};
export const percent = (value) => (missing(value) ? '–' : `${number(100 * value, 1)} %`);

export function parameters(value) {
  if (missing(value)) return '–';
  if (value >= 1e9) return `${number(value / 1e9, 2)} B`;
  if (value >= 1e6) return `${number(value / 1e6, 1)} M`;
  if (value >= 1e4) return `${number(value / 1e3, 0)} K`;
  return number(value, 0);
}

export const when = (unix) => (unix ? new Date(unix * 1000).toLocaleString(language, { dateStyle: 'medium', timeStyle: 'short' }) : '–');
export const clock = (unix) => (unix ? new Date(unix * 1000).toLocaleString(language, { weekday: 'short', hour: '2-digit', minute: '2-digit' }) : '–');

export function ago(unix) {
  if (!unix) return '–';
  const gone = Date.now() / 1000 - unix;
  const words = new Intl.RelativeTimeFormat(language, { numeric: 'auto' });
  if (gone < 90) return words.format(-Math.max(0, Math.round(gone)), 'second');
  if (gone < 5400) return words.format(-Math.round(gone / 60), 'minute');
  if (gone < 129600) return words.format(-Math.round(gone / 3600), 'hour');
  return words.format(-Math.round(gone / 86400), 'day');
}
