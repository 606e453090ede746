// The timeline of a run: bars of all objects and of a query's matches over time, on which a period is selected.

import { pointOn } from "../web/static/canvas.js";
import { el } from "../web/static/dom.js";
import { counted, utc } from "../web/static/format.js";
import { bars } from "../web/static/lists.js";

const [SECOND, MINUTE, HOUR, DAY] = [1000, 60_000, 3_600_000, 86_400_000];
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500], ...[1, 2, 5, 10, 30].map((n) => n * SECOND), ...[1, 2, 5, 10, 30].map((n) => n * MINUTE),
  ...[1, 3, 6, 12].map((n) => n * HOUR), ...Array.from({ length: 40 }, (_, i) => DAY * 2 ** i),
];
const [WIDE, HIGH] = [1000, 79]; // of the drawing

export class Timeline {
  /** @param {object} time first, last; start, width and counts of the bars @param {(from: number, until: number) => void} picked */
  constructor(element, time, picked) {
    [this.time, this.extent, this.most] = [time, Math.max(1, time.last - time.first), Math.max(1, ...time.counts)];
    [this.alive, this.found, this.period, this.axis] = ["alive", "found-bars", "period", "axis"].map((name) => el("div", { class: name }));
    const all = el("div", { class: "all" }, this.#bars(time.counts));
    for (const each of [all, this.found]) this.#put(each, time.start, time.start + time.width * time.counts.length);
    const line = el("div", { class: "line" }, this.alive, all, this.found, this.period);
    element.append(line, this.axis);
    this.#listen(line, picked);
    new ResizeObserver(() => this.#mark(line.clientWidth)).observe(line);
  }

  #bars(counts) {
    return bars(counts, WIDE, HIGH, this.most);
  }

  #put(element, from, until) {
    const part = (t) => (100 * (t - this.time.first)) / this.extent;
    Object.assign(element.style, { left: `${part(from)}%`, width: `${part(until) - part(from)}%` });
  }

  /** Shows a period, and what has been found when while a query was alive. @param {object|null} query `span` and `times` */
  show(from, until, query) {
    const { time } = this;
    const counts = new Array(time.counts.length).fill(0);
    for (const t of query?.times ?? []) counts[Math.floor((t - time.start) / time.width)] += 1;
    this.found.replaceChildren(this.#bars(counts));
    this.#put(this.alive, ...(query?.span ?? [time.first, time.first]).map((t) => Math.max(time.first, Math.min(time.last, t))));
    this.#put(this.period, from, until);
    this.period.hidden = from === time.first && until === time.last;
  }

  /** Marks moments, as many as there is room for. */
  #mark(width) {
    const { first, last } = this.time;
    const step = STEPS.find((each) => each >= this.extent / Math.max(1, Math.floor(width / 130)));
    this.axis.replaceChildren();
    for (let t = Math.ceil(first / step) * step; t <= last; t += step) {
      const label = el("span", { text: tick(t, step, this.extent) });
      this.#put(label, t, t);
      label.style.width = ""; // as wide as its text
      this.axis.append(label);
    }
  }

  #listen(line, picked) {
    const { time, extent } = this;
    const at = (event) => time.first + Math.min(1, Math.max(0, pointOn(line, event)[0] / line.clientWidth)) * extent;
    let [begun, moved] = [null, false]; // where it is dragged from
    line.addEventListener("pointerdown", (event) => {
      line.setPointerCapture(event.pointerId);
      [begun, moved] = [event, false];
    });
    line.addEventListener("pointermove", (event) => {
      const i = Math.floor((at(event) - time.start) / time.width);
      const [from, to] = [i, i + 1].map((n) => utc(time.start + n * time.width, extent));
      line.title = `${from} to ${to}: ${counted(time.counts[i] ?? 0, "object")}`;
      moved ||= begun !== null && Math.abs(event.clientX - begun.clientX) > 4;
      if (begun && moved) picked(...[at(begun), at(event)].sort((a, b) => a - b));
    });
    line.addEventListener("pointerup", (event) => {
      if (begun && !moved) picked(time.first, at(event));
      begun = null;
    });
    line.addEventListener("pointercancel", () => (begun = null));
  }
}

function tick(t, step, extent) {
  const text = utc(t, extent);
  if (step >= DAY) return text.slice(0, 10);
  if (t % DAY === 0) return text.slice(5, 10);
  return step >= MINUTE ? text.slice(11) : new Date(t).toISOString().slice(14, step >= SECOND ? 19 : 23);
}
