// A slider and a number beside it.
import { h } from '/dom.js';
import { t } from '/words.js';

// A slider and a number that are one value; far apart bounds are travelled by ratio.
export class Slider {
  constructor(slider, changed) {
    this.slider = { ...slider };
    this.movedAt = 0;
    const name = t(`field.${slider.name}`);
    this.range = h('input', { type: 'range', min: 0, max: 1000, step: 1, 'aria-label': name, 'data-slider': slider.name, oninput: () => { const value = this.valueAt(Number(this.range.value)); this.movedAt = performance.now(); this.number.value = String(value); this.range.setAttribute('aria-valuetext', String(value)); changed(value); } });
    this.number = h('input', { inputMode: 'decimal', 'aria-label': name, 'data-field': slider.name, onchange: () => { const value = Number(this.number.value); if (this.number.value.trim() !== '' && Number.isFinite(value)) changed(slider.real ? value : Math.round(value)); } });
    this.hint = h('span', { class: 'hint' });
    this.element = h('div', { class: 'slider' }, h('span', { class: 'name' }, name), this.range, this.number, this.hint);
    this.usual = t(`field.${slider.name}.hint`);
  }

  // Where it ends: how far the planner found that it can go.
  limit(high) {
    this.slider.high = Math.max(high, this.slider.low + 1);
    if (this.value !== undefined) this.place();
  }

  valueAt(place) {
    const { low, high, log, real } = this.slider;
    const value = log ? low * (high / low) ** (place / 1000) : low + (high - low) * place / 1000;
    // Four stops an octave: as fine as a hand is, and answers that were given are found again.
    const grain = log && !real ? Math.max(1, 2 ** (Math.floor(Math.log2(value)) - 2)) : 1;
    return real ? Number(value.toPrecision(2)) : Math.min(high, Math.max(low, Math.round(value / grain) * grain));
  }

  // The stops around where it is, the nearest first.
  next() {
    const stops = [1, -1].map((way) => {
      const found = [];
      let last = this.valueAt(Number(this.range.value));
      for (let place = Number(this.range.value); place >= 0 && place <= 1000 && found.length < 3; place += way * 5) {
        const value = this.valueAt(place);
        if (value !== last) found.push(last = value);
      }
      return found;
    });
    return [0, 1, 2].flatMap((at) => stops.map((way) => way[at])).filter((value) => value !== undefined);
  }

  placeOf(value) {
    const { low, high, log } = this.slider;
    const inside = Math.min(high, Math.max(low, value));
    return Math.round(1000 * (log ? Math.log(inside / low) / Math.log(high / low) : (inside - low) / (high - low)));
  }

  place() {
    if (document.activeElement !== this.range) this.range.value = String(this.placeOf(this.value));
  }

  show(value, learning) {
    this.element.hidden = value === null;
    if (value === null) return;
    this.value = value;
    this.place();
    if (document.activeElement !== this.number) this.number.value = String(value);
    this.range.setAttribute('aria-valuetext', String(value));
    this.hint.textContent = learning || this.usual;
  }
}
