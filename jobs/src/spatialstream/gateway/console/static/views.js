// Views of a query's rows: matches as they arrive, a list that reorders, words as bars by time, and any other value.
//
// Each view has `row(row, live)`, which takes a row of the stream, `draw()`, and `keep()` and `restore()`, so that a page
// that is reloaded continues where it was.

import { KINDS } from "./kinds.js";
import { el, say, still } from "./web/dom.js";
import { count, distance, moment, span } from "./web/format.js";
import { bar, bars, item, spoken, termHead, termRows } from "./web/lists.js";

const LISTED = 8; // latest matches listed
const LISTED_ONCE = 200; // most rows listed of a snapshot answer
const MARKED = 500; // most matches marked on the map
const MARKED_ONCE = 5_000;
const MARK_LIVES = 120_000; // ms
const BARS = 60; // s of matches
const STEPS = 36; // of top words

class View {
  constructor(card) {
    this.card = card;
    this.marks = [];
  }

  get app() {
    return this.card.app;
  }

  xy(object) {
    const [x, y] = this.app.space.axes;
    return [object[x], object[y]];
  }

  mark(object, most) {
    const [x, y] = this.xy(object);
    const about = { ...object, x, y, card: this.card };
    this.marks.push({ about, at: this.app.map.mark(x, y, this.card.colour, about), until: Date.now() + MARK_LIVES });
    while (this.marks.length > most) this.unmark(this.marks.shift());
  }

  unmark({ at, about }) {
    this.app.map.unmark(at, about);
  }

  clear() {
    this.marks.splice(0).forEach((each) => this.unmark(each));
  }

  /** A card of what an object said, if its row has that; or a line: its text, where that is known, or its id. */
  item(object, more) {
    const said = this.app.said(object);
    if (said.length) return spoken(said, object.text, `${object.id} · ${moment(object.t)}`, more === moment(object.t) ? null : more, { title: "Show it on the map", onclick: () => this.app.map.goTo(this.xy(object)) });
    const text = this.app.texts.get(object.id);
    return item(text ?? object.id, more, { kind: text ? "text" : "text id", title: "Show it on the map", onclick: () => this.app.map.goTo(this.xy(object)) });
  }

  count() {}

  past() {}

  keep() {
    return null;
  }

  restore() {}
}

export class Matches extends View {
  constructor(card, continuous) {
    super(card);
    [this.continuous, this.total, this.recent, this.times] = [continuous, 0, [], []];
    [this.counted, this.later] = [-Infinity, []]; // up to when the stream has counted, and the times of rows since then
    this.figure = el("b");
    this.unit = el("span");
    this.spark = el("span", { class: "spark" });
    this.list = el("ol", { class: "objects" });
    this.element = el("div", { class: "matches" }, el("p", { class: "figure" }, this.figure, this.unit, this.spark), this.list);
  }

  row(row, live) {
    if (row.objects) {
      this.clear();
      this.total = row.objects.length;
      this.recent = row.objects.slice(-LISTED_ONCE).reverse();
      row.objects.slice(-MARKED_ONCE).forEach((each) => this.mark(each, MARKED_ONCE));
      return;
    }
    if (live) {
      this.mark(row.object, MARKED);
      this.times.push(Date.now());
      this.app.map.light(this.card.key);
    }
    if (row.t > this.counted) {
      this.total += 1;
      this.later.push(row.t);
    }
    this.recent = [row.object, ...this.recent].slice(0, LISTED);
  }

  /** So many there have been, up to a time of the stream's clock: what comes later, and is of then, is among them. */
  count(total, clock) {
    this.later = this.later.filter((t) => t > clock);
    [this.total, this.counted] = [total + this.later.length, clock];
  }

  /** The last rows that came before the page was opened. */
  past(rows) {
    const known = new Set(this.recent.map((each) => `${each.id} ${each.t}`));
    const older = rows.map((each) => each.object).filter((each) => !known.has(`${each.id} ${each.t}`)).reverse();
    this.recent = [...this.recent, ...older].slice(0, LISTED);
    older.slice(0, LISTED).forEach((each) => this.mark(each, MARKED));
  }

  draw() {
    const now = Date.now();
    say(this.figure, count(this.total));
    say(this.unit, this.total === 1 ? " object" : " objects");
    if (this.continuous) {
      this.times = this.times.filter((each) => now - each < BARS * 1000);
      while (this.marks.length && this.marks[0].until < now) this.unmark(this.marks.shift());
      const values = new Array(BARS).fill(0);
      for (const each of this.times) values[BARS - 1 - Math.min(BARS - 1, Math.floor((now - each) / 1000))] += 1;
      this.spark.replaceChildren(bars(values, 120, 18));
    }
    const shown = this.recent.map((each) => `${each.id} ${this.app.texts.has(each.id)}`).join();
    if (shown !== this.shown) {
      this.shown = shown;
      this.list.replaceChildren(...this.recent.map((each) => el("li", {}, this.item(each, moment(each.t)))));
    }
  }

  keep() {
    return { total: this.total, recent: this.recent };
  }

  restore({ total, recent }) {
    [this.total, this.recent] = [total, recent];
    recent.forEach((each) => this.mark(each, MARKED));
  }
}

export class Nearest extends View {
  constructor(card) {
    super(card);
    [this.objects, this.changes, this.rows] = [null, 0, new Map()];
    this.list = el("ol", { class: "objects ranked" });
    this.element = el("div", { class: "nearest" }, this.list);
  }

  row(row, live) {
    this.changes += this.objects !== null && live ? 1 : 0;
    this.objects = row.objects;
    this.fresh = true;
  }

  draw() {
    if (!this.fresh) return;
    this.fresh = false;
    const { app, card } = this;
    const field = app.space.geographic ? "distance_m" : "distance";
    const before = new Map([...this.rows].map(([key, each]) => [key, each.offsetTop]));
    const rows = new Map();
    for (const object of this.objects) {
      const score = object.score === undefined ? [] : [`score ${object.score.toPrecision(3)}`]; // of another time it is another one
      const key = [object.id, object.t, this.xy(object), ...score].join(" ");
      const told = [distance(object[field], app.space.geographic), ...score].join(" · ");
      const known = this.rows.get(key) ?? el("li", { class: this.rows.size ? "new" : null }, this.item(object, told));
      rows.set(key, known);
    }
    this.rows = rows;
    // only what is elsewhere is moved: so who has an entry under the finger, or in focus, keeps it
    [...rows.values()].forEach((each, i) => {
      if (this.list.children[i] !== each) this.list.insertBefore(each, this.list.children[i] ?? null);
    });
    while (this.list.children.length > rows.size) this.list.lastChild.remove();
    if (!still()) {
      for (const [key, each] of rows) {
        const moved = before.has(key) ? before.get(key) - each.offsetTop : 0;
        if (moved) each.animate([{ transform: `translateY(${moved}px)` }, { transform: "none" }], { duration: 350, easing: "cubic-bezier(.2,.7,.2,1)" });
      }
    }
    this.clear();
    this.objects.forEach((each) => this.mark(each, MARKED));
    app.map.setLinks(card.key, this.objects.map((each) => this.xy(each)));
  }

  past(rows) {
    if (this.objects === null) this.row(rows.at(-1), false);
  }

  keep() {
    return { objects: this.objects };
  }

  restore({ objects }) {
    if (objects) this.row({ objects }, false);
  }
}

export class Words extends View {
  constructor(card, continuous) {
    super(card);
    [this.continuous, this.steps] = [continuous, []];
    this.table = el("table", { class: "terms" });
    this.axis = el("p", { class: "axis" }, el("span"), el("span"));
    this.element = el("div", {}, this.table, this.axis);
  }

  row(row) {
    this.steps = [...this.steps.filter((each) => each.t !== row.t), { t: row.t, terms: row.terms }].sort((a, b) => a.t - b.t).slice(-STEPS);
    this.fresh = true;
  }

  draw() {
    if (!this.fresh) return;
    this.fresh = false;
    const last = this.steps.at(-1);
    const most = Math.max(1, ...this.steps.flatMap((step) => step.terms.map((each) => each.count)));
    const of = this.steps.map((step) => new Map(step.terms.map((each) => [each.term, each.count])));
    const rows = last.terms.map(({ term, count: n }) => {
      const series = of.map((each) => each.get(term) ?? 0);
      const drawn = this.continuous ? bars([...new Array(STEPS - series.length).fill(0), ...series], 144, 20, most) : el("span", { class: "bar" }, bar(n / most));
      return { term, drawn, n };
    });
    this.table.replaceChildren(termHead("Word", this.continuous ? "By time" : "Share", "Objects"), el("tbody", {}, termRows(rows)));
    const [from, to] = this.axis.children;
    say(from, last.terms.length === 0 ? "No object in the window" : this.continuous && this.steps.length > 1 ? span(last.t - this.steps[0].t) + " ago" : "");
    say(to, this.continuous ? moment(last.t) : "");
  }

  past(rows) {
    rows.filter((row) => !this.steps.some((each) => each.t === row.t)).forEach((row) => this.row(row));
  }

  keep() {
    return { steps: this.steps };
  }

  restore({ steps }) {
    this.steps = [];
    steps.forEach((each) => this.row(each));
  }
}

/** The answer of a type that gives neither objects nor words. */
export class Value extends View {
  constructor(card) {
    super(card);
    this.last = null;
    this.figure = el("b");
    this.when = el("span");
    this.element = el("div", { class: "matches" }, el("p", { class: "figure" }, this.figure, this.when));
  }

  row(row) {
    this.last = row;
  }

  draw() {
    if (this.last === null) return;
    const value = this.last[KINDS[this.card.query.type].rows];
    say(this.figure, typeof value === "number" ? count(value) : JSON.stringify(value));
    say(this.when, ` at ${moment(this.last.t)}`);
  }

  past(rows) {
    if (this.last === null) this.row(rows.at(-1));
  }

  keep() {
    return { last: this.last };
  }

  restore({ last = null }) {
    this.last = last;
  }
}
