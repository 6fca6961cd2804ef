// A slider and a number beside it.
import { h } from '/dom.js';
import { t } from '/words.js';

const PLACES = 1000;

// What somebody typed as a number, with the marks of any language: `0,5`, `1 000`, `1,000`. Nothing where it is none.
export function typedNumber(written, isWhole) {
  const plain = written.replace(/\s/g, '');
  const isGrouped = isWhole && /^\d{1,3}(,\d{3})+$/.test(plain);
  const number = plain === '' ? NaN : Number(isGrouped ? plain.replaceAll(',', '') : plain.replace(',', '.'));
  return Number.isFinite(number) ? number : undefined;
}

// A slider and a number that are one value; far apart bounds are travelled by ratio. Where only some values are possible,
// `stops`, it goes from one to the next.
export class Slider {
  constructor(slider, changed) {
    this.slider = { ...slider };
    this.usualScale = slider;
    this.movedAt = 0;
    const name = t(`field.${slider.name}`);
    this.range = h('input', { type: 'range', min: 0, max: PLACES, step: 1, 'aria-label': name, 'data-slider': slider.name, oninput: () => this.moved(changed), onblur: () => this.rescale() });
    this.number = h('input', { inputMode: 'decimal', 'aria-label': name, 'data-field': slider.name, oninput: () => this.number.removeAttribute('aria-invalid'), onchange: () => this.typed(changed) });
    this.hint = h('span', { class: 'hint' });
    this.element = h('div', { class: 'slider' }, h('span', { class: 'name' }, name), this.range, this.number, this.hint);
    this.usual = t(`field.${slider.name}.hint`);
  }

  moved(changed) {
    const value = this.valueAt(Number(this.range.value));
    this.movedAt = performance.now();
    this.value = value;
    this.number.value = String(value);
    this.range.setAttribute('aria-valuetext', String(value));
    changed(value);
  }

  // What is no number is marked, and the one before it stands there again.
  typed(changed) {
    const number = typedNumber(this.number.value, !this.slider.real);
    this.number.setAttribute('aria-invalid', String(number === undefined));
    if (number === undefined) { this.number.value = String(this.value); return; }
    this.value = this.slider.real ? number : Math.round(number);
    changed(this.value);
  }

  // How far it reaches here: as far as the planner found that it can go, and only where the model allows. Under a hand
  // the scale stays as it is.
  reach(scale) {
    this.wanted = { ...this.wanted, ...scale };
    this.rescale();
  }

  rescale() {
    if (!this.wanted || document.activeElement === this.range) return;
    Object.assign(this.slider, this.wanted);
    this.slider.high = Math.max(this.slider.high, this.slider.low + 1);
    this.wanted = undefined;
    this.range.max = String(this.end());
    if (this.value !== undefined) this.place();
  }

  // The last place of the scale.
  end() { return this.slider.stops ? Math.max(1, this.slider.stops.length - 1) : PLACES; }

  valueAt(place) {
    const { low, high, log, real, stops } = this.slider;
    if (stops) return stops[Math.min(place, stops.length - 1)];
    const value = log ? low * (high / low) ** (place / PLACES) : low + (high - low) * place / PLACES;
    // Four stops an octave: as fine as a hand is, and answers that were given are found again.
    const grain = log && !real ? Math.max(1, 2 ** (Math.floor(Math.log2(value)) - 2)) : 1;
    return real ? Number(value.toPrecision(2)) : Math.min(high, Math.max(low, Math.round(value / grain) * grain));
  }

  // The stops around where it is, the nearest first.
  next() {
    const [end, stride] = [this.end(), this.slider.stops ? 1 : 5];
    const stops = [1, -1].map((way) => {
      const found = [];
      let last = this.valueAt(Number(this.range.value));
      for (let place = Number(this.range.value); place >= 0 && place <= end && found.length < 3; place += way * stride) {
        const value = this.valueAt(place);
        if (value !== last) found.push(last = value);
      }
      return found;
    });
    return [0, 1, 2].flatMap((at) => stops.map((way) => way[at])).filter((value) => value !== undefined);
  }

  placeOf(value) {
    const { low, high, log, stops } = this.slider;
    if (stops) return stops.reduce((best, stop, at) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? at : best), 0);
    const inside = Math.min(high, Math.max(low, value));
    return Math.round(PLACES * (log ? Math.log(inside / low) / Math.log(high / low) : (inside - low) / (high - low)));
  }

  place() {
    if (document.activeElement !== this.range) this.range.value = String(this.placeOf(this.value));
  }

  show(value, learning) {
    this.element.hidden = value === null;
    if (value === null) return;
    this.value = value;
    this.place();
    if (document.activeElement !== this.number) { this.number.value = String(value); this.number.removeAttribute('aria-invalid'); }
    this.range.setAttribute('aria-valuetext', String(value));
    this.hint.textContent = learning || this.usual;
  }
}
