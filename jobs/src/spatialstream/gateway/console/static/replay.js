// Replay: when the rows of a continuous query arrived, and its rows at each of these moments.

import { Problem, call, streamPath } from "./api.js";
import { viewOf } from "./card.js";
import { el, icon, say } from "./web/dom.js";
import { count, counted, moment, span } from "./web/format.js";

const PARTS = 60; // moments of the span
const SHOWN = 500; // most rows of a moment
const PAGES = 20; // most pages to read for a moment
const KEPT = 2 * PARTS; // moments to cache
const SPANS = { "15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000 };
const SPEEDS = [1, 2, 5]; // moments a second
const DRAGGED = 120; // ms for which somebody who drags has to rest before rows are read

export const isSpan = (text) => Object.hasOwn(SPANS, text);

export class Replay {
  /** @param {HTMLElement} element where the timeline is @param {object} app the page */
  constructor(element, app) {
    [this.element, this.app, this.card, this.counts] = [element, app, null, []];
    [this.span, this.speed, this.playing, this.at] = ["1h", 1, false, 0];
    this.title = el("h2");
    this.message = el("p", { class: "message", role: "status" });
    this.note = el("p", { class: "note" });
    this.bars = el("div", { class: "drawn", "aria-hidden": "true" });
    this.slider = el("input", { type: "range", min: 0, max: PARTS - 1, step: 1, "aria-label": "Moment", oninput: () => this.#dragged() });
    this.from = el("span");
    this.to = el("span");
    this.play = el("button", { type: "button", class: "tool play", onclick: () => (this.playing ? this.pause() : this.#play()) });
    this.speeds = el("select", { "aria-label": "Speed", title: "Speed", onchange: () => (this.speed = Number(this.speeds.value)) });
    this.spans = el("select", { "aria-label": "How far back", onchange: () => this.#load(this.spans.value) },
      Object.entries({ "15m": "15 minutes", "1h": "hour", "6h": "6 hours", "24h": "24 hours" }).map(([value, text]) => el("option", { value, text: `last ${text}` })));
    this.again = el("button", { type: "button", class: "tool", title: "Read again, up to now", onclick: () => this.#load(this.span) }, icon("again"), el("span", { class: "hidden", text: "Read again, up to now" }));
    this.live = el("button", { type: "button", class: "quiet live", text: "Back to live", onclick: () => this.#leave() });
    element.append(
      el("header", {}, this.title, this.spans, this.again, this.live),
      el("div", { class: "line" }, this.play, el("div", { class: "track" }, el("div", { class: "time" }, this.bars, this.slider), el("p", { class: "axis" }, this.from, this.to)), this.speeds),
      this.message, this.note);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.defaultPrevented && this.card !== null && !document.querySelector("dialog[open]")) this.#leave();
    });
  }

  /** Opens the replay of a continuous query; at a moment, if one is given. */
  open(card, { at = null, span: wanted = this.span } = {}) {
    if (this.card !== null) this.close();
    [this.card, this.view] = [card, viewOf(card, card.shown === "terms")];
    this.element.hidden = false;
    this.element.style.setProperty("--colour", card.colour);
    say(this.title, `Replay: ${card.summary.title}`);
    card.show(this.view);
    this.app.replays(true);
    this.#load(wanted, at).then(() => at === null && this.card !== null && (this.slider.disabled ? this.live : this.slider).focus({ preventScroll: true }));
  }

  /** Closes it, as somebody wants who is in it. */
  #leave() {
    const { element } = this.card;
    this.close();
    element.querySelector(".tool").focus({ preventScroll: true });
  }

  close() {
    if (this.card === null) return;
    this.pause();
    this.reading?.abort();
    this.view.clear();
    const card = this.card;
    this.card = null;
    this.element.hidden = true;
    card.show(null);
    this.app.replays(false);
  }

  /** What the address says of it. */
  get said() {
    return this.card === null ? null : { id: this.card.query.id, span: this.span, at: this.counts[this.at]?.since ?? null };
  }

  // ------------------------------------------------------------------------------------------------------- the timeline

  async #load(wanted, at = null) {
    this.pause();
    this.reading?.abort();
    const reading = (this.reading = new AbortController());
    const length = SPANS[wanted];
    [this.span, this.counts, this.moments] = [wanted, [], new Map()];
    this.spans.value = wanted;
    this.part = length / PARTS;
    this.speeds.replaceChildren(...SPEEDS.map((each) => el("option", { value: each, text: `${Math.round((each * this.part) / 1000)} ×`, selected: each === this.speed })));
    this.#busy(true, "Looking for the times of its rows …");
    const now = this.app.now();
    // what somebody shares is in the middle, if that is over
    const until = at === null ? now : Math.min(now, at + length / 2);
    try {
      const asked = { query: this.card.query.id, since: Math.round(until - length), until: Math.round(until), parts: PARTS };
      const said = await call("GET", streamPath(this.app.stream, `results/counts?${new URLSearchParams(asked)}`), undefined, reading.signal);
      this.counts = said.counts.map((each, i) => ({ ...each, until: said.counts[i + 1]?.since ?? said.until }));
      [this.kept, this.part] = [said.kept_since, length / this.counts.length];
    } catch (problem) {
      this.#failed(problem, () => this.#load(wanted, at));
      return;
    }
    this.slider.max = this.counts.length - 1;
    say(this.from, moment(this.counts[0].since));
    say(this.to, moment(until));
    this.#draw();
    const found = this.counts.findLastIndex((each) => each.rows > 0);
    this.#busy(false);
    if (found < 0) {
      this.#show([], false);
      this.slider.setAttribute("aria-valuetext", "no rows");
      say(this.message, `No row of this query arrived in the last ${span(length)}${this.kept > this.counts[0].since ? " that are kept" : ""}.`);
    } else this.#go(at === null ? found : Math.max(0, this.counts.findLastIndex((each) => each.since <= at)));
  }

  /** Bars of when rows came; what is estimated is paler, and what is not kept any more is hatched. */
  #draw() {
    const most = Math.max(1, ...this.counts.map((each) => each.rows));
    const path = (exact) => this.counts.map((each, i) => {
      const tall = each.exact === exact && each.rows ? Math.max(1.5, (38 * each.rows) / most) : 0;
      return tall ? `M${i + 0.08} 40v${-tall.toFixed(2)}h.84v${tall.toFixed(2)}z` : "";
    }).join("");
    const gone = this.counts.filter((each) => this.kept === null || each.until <= this.kept).length;
    this.bars.replaceChildren(el("svg:svg", { viewBox: `0 0 ${this.counts.length} 40`, preserveAspectRatio: "none" },
      el("svg:rect", { class: "gone", width: gone, height: 40 }), el("svg:path", { d: path(true) }), el("svg:path", { class: "about", d: path(false) })));
    this.element.style.setProperty("--parts", this.counts.length);
    const notes = [];
    if (this.kept === null) notes.push("The topic of results has no rows.");
    else if (gone) notes.push(`Rows are kept since ${moment(this.kept)}.`);
    if (this.counts.some((each) => !each.exact)) notes.push("There are too many rows to count: paler bars are estimates.");
    say(this.note, notes.join(" "));
  }

  #busy(busy, text) {
    this.element.setAttribute("aria-busy", String(busy));
    this.slider.disabled = this.play.disabled = busy || !this.counts.some((each) => each.rows);
    this.#drawPlay();
    if (busy) {
      this.bars.replaceChildren();
      [this.from, this.to, this.note].forEach((each) => say(each, ""));
      say(this.message, text);
    }
  }

  #failed(problem, again) {
    if (problem.name === "AbortError") return;
    if (!(problem instanceof Problem)) throw problem;
    this.pause();
    this.#busy(false);
    this.message.replaceChildren(`The rows cannot be read: ${problem.message}. `, el("button", { type: "button", class: "link", text: "Try again", onclick: again }));
  }

  // --------------------------------------------------------------------------------------------------------- a moment

  #dragged() {
    this.pause();
    this.at = Number(this.slider.value);
    this.#tell();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.#go(this.at), DRAGGED);
  }

  /** Shows the rows of a moment. */
  async #go(at) {
    const { reading } = this;
    this.at = at;
    this.slider.value = at;
    this.#tell();
    this.app.changed();
    try {
      let shown = await this.#rows(at);
      // an answer holds until the next one
      const before = this.counts.findLastIndex((each, i) => i < at && each.rows > 0);
      const holds = !shown.rows.length && this.card?.shown !== "objects" && before >= 0;
      if (holds) shown = await this.#rows(before);
      if (reading.signal.aborted || at !== this.at) return;
      this.#show(shown.rows, shown.more, holds);
      if (this.playing) this.#next();
    } catch (problem) {
      if (at === this.at) this.#failed(problem, () => this.#go(at));
    }
  }

  /** The rows of a moment: of objects the first, of answers the last; `more`: whether there are more of them. */
  #rows(at) {
    if (!this.moments.has(at)) {
      if (this.moments.size >= KEPT) this.moments.delete(this.moments.keys().next().value);
      const read = this.#read(this.counts[at]);
      this.moments.set(at, read);
      read.catch(() => this.moments.delete(at));
    }
    return this.moments.get(at);
  }

  async #read({ since, until }) {
    const { signal } = this.reading;
    const first = this.card.shown === "objects";
    const asked = new URLSearchParams({ query: this.card.query.id, since, until, limit: SHOWN });
    let [rows, next] = [[], streamPath(this.app.stream, `results/past?${asked}`)];
    for (let page = 0; next && page < PAGES && !(first && rows.length >= SHOWN); page += 1) {
      const said = await call("GET", next, undefined, signal);
      rows = first ? [...rows, ...said.rows].slice(0, SHOWN) : [...rows, ...said.rows].slice(-SHOWN);
      next = said.next;
    }
    return { rows: rows.map((each) => each.row), more: next !== undefined };
  }

  #show(rows, more, holds = false) {
    const { view, card } = this;
    if (card.shown === "objects") view.row({ objects: rows.map((each) => each.object) }, true);
    else if (card.shown === "nearest") view.row({ objects: rows.at(-1)?.objects ?? [] }, true);
    else if (card.shown === "value") {
      if (rows.length) view.row(rows.at(-1), true);
    } else {
      view.restore({ steps: [] });
      rows.forEach((each) => view.row(each, true));
      if (!rows.length) view.row({ t: this.counts[this.at].until, terms: [] });
    }
    view.draw();
    if (rows.length && card.shown === "objects") this.app.map.light(card.key);
    this.#tell({ shown: rows.length, more, holds });
  }

  #tell(known = null) {
    const { since, until, rows, exact } = this.counts[this.at];
    const when = `${moment(since)} – ${moment(until)}`;
    const about = (n) => `${exact ? "" : "about "}${counted(n, "row")}`;
    this.slider.setAttribute("aria-valuetext", `${when}, ${about(rows)}`);
    const some = known !== null && this.card.shown === "objects" && known.more;
    const what = some ? `the first ${count(known.shown)} of ${about(Math.max(rows, known.shown))}` : `${about(rows)}${known?.holds ? "; the previous answer still holds" : ""}`;
    say(this.message, `${when}: ${what}`);
  }

  // -------------------------------------------------------------------------------------------------------------- play

  #play() {
    this.playing = true;
    this.#drawPlay();
    if (this.at >= this.counts.length - 1) this.#go(Math.max(0, this.counts.findIndex((each) => each.rows > 0)));
    else this.#next();
  }

  #next() {
    clearTimeout(this.resting);
    if (this.at >= this.counts.length - 1) {
      this.pause();
      return;
    }
    this.#rows(this.at + 1).catch(() => {}); // it is there by then; its error is shown then
    this.resting = setTimeout(() => this.#go(this.at + 1), 1000 / this.speed);
  }

  pause() {
    this.playing = false;
    clearTimeout(this.resting);
    this.#drawPlay();
  }

  #drawPlay() {
    const text = this.playing ? "Pause" : "Play";
    if (this.play.title === text) return;
    this.play.title = text;
    this.play.replaceChildren(icon(text.toLowerCase()), el("span", { class: "hidden", text }));
  }
}
