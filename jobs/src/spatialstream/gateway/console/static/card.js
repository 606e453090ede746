// The card of a query: what it asks for, its state, and its results.

import { Problem, call, streamPath } from "./api.js";
import { byName, isContinuous, isInForm, nameOf, regionOf, shownAs, summarize, timing } from "./query.js";
import { Matches, Nearest, Value, Words } from "./views.js";
import { el, icon, say } from "./web/dom.js";
import { milliseconds, moment, span } from "./web/format.js";

// distinguished by people with any kind of colour vision, on dark and on light ground (after Okabe and Ito)
export const COLOURS = ["#2fa4e7", "#e8702a", "#1fb58f", "#d779b4", "#c9a227", "#8f8cf0", "#e25563", "#6aa84f"];
const VIEWS = { objects: Matches, nearest: Nearest, terms: Words, value: Value };
const NOTHING_YET = {
  objects: "No match yet. Matches appear here and on the map as they arrive.",
  nearest: "No object has matched yet.",
  terms: "The first words arrive with the next step.",
  value: "The first answer arrives with the next step.",
};
// ms between two checks whether a query is registered: until that is known or when it has expired, and otherwise
const SOON = 5_000;
const RARELY = 60_000;
const ACTIVE = ["looking", "sent", "registered"];
const BACK = 86_400_000; // ms within which the last rows are looked for
const PARTS = 60; // in which they are looked for
const ENOUGH = 500; // rows that are read at once

let made = 0;

/** The view of a query's rows: as they arrive, or those of a moment. */
export const viewOf = (card, coming) => new VIEWS[card.shown](card, coming);

export class QueryCard {
  /** @param {object} query as the interface takes it; a continuous one has its id @param {object} app the page */
  constructor(query, app, colour) {
    [this.query, this.app, this.colour] = [query, app, colour];
    this.key = `query-${(made += 1)}`;
    this.continuous = isContinuous(query);
    this.shown = shownAs(query.type);
    this.view = viewOf(this, this.continuous);
    this.summary = summarize(query, app.space);
    this.rows = 0;
    this.newest = null;
    this.state = "new";
    [this.since, this.until, this.looked] = [null, null, 0];
    [this.own, this.by, this.caughtUp] = [false, null, false]; // whether this page registered it, and who registered it
    this.before = null; // the content of the card before it showed past rows
    this.element = this.#card();
    this.geometry = null; // the region as it is registered: of an area, the geometry that it had then
    this.place();
  }

  /** Draws its region: of an area, the geometry that it is registered with, or that the area has. */
  place() {
    this.app.map.setRegion(this.key, { ...this.query, region: this.app.areas.drawn(this.geometry ?? regionOf(this.query)) }, this.colour);
  }

  /** The name of its area; null: it is of none. */
  get area() {
    return this.query.region?.area ?? null;
  }

  /** Says if its geometry is not that of its area any more: it is "current", "outdated", or the area "deleted". */
  #compare(region, state) {
    if (JSON.stringify(region) !== JSON.stringify(this.geometry)) {
      this.geometry = region;
      this.place();
    }
    this.outdated.hidden = state === undefined || state === "current";
    if (state === this.outdated.dataset.geometry) return;
    this.outdated.dataset.geometry = state ?? "";
    const gone = state === "deleted";
    const renew = el("button", { type: "button", class: "link", text: "Register its queries anew", onclick: () => this.app.areas.renew(this.area) });
    this.outdated.replaceChildren(gone ? `The area ${this.area} is deleted; the query keeps its geometry.` : `The area ${this.area} has another geometry now. `,
      ...(gone || this.app.unwritableReason() !== null ? [] : [renew]));
  }

  #card() {
    const { title, where } = this.summary;
    const tool = (name, text, work) => el("button", { type: "button", class: "tool", title: text, onclick: work }, icon(name), el("span", { class: "hidden", text: `${text}: ${title}` }));
    this.status = el("p", { class: "status" });
    this.body = el("div", { class: "body" });
    this.outdated = el("p", { class: "outdated", role: "status", hidden: true });
    this.end = tool("close", this.continuous ? "Cancel" : "Remove", () => this.#end());
    const article = el("article", { class: "card", "data-type": this.query.type, "aria-label": `${this.continuous ? "Continuous query" : "Snapshot query"}: ${title}, ${where}` },
      el("header", {},
        el("span", { class: "swatch" }),
        el("div", { class: "title" }, el("h3", { text: title }), el("p", { text: where })),
        el("div", { class: "tools" },
          this.continuous ? tool("replay", "Replay", () => this.app.replay.open(this)) : tool("again", "Run again", () => this.ask().catch(() => {})),
          tool("show", "Show on the map", () => this.app.map.fit(this.app.extent({ ...this.query, region: this.geometry ?? regionOf(this.query) }))),
          ...(isInForm(this.query) ? [tool("edit", "Put into the form", () => this.app.edit(this))] : []),
          tool("code", "Copy as a command", () => this.app.copy(this.command(), "Command copied")),
          this.end)),
      this.outdated,
      this.body,
      el("footer", {}, el("span", { class: "kind", text: `${this.continuous ? "continuous" : "snapshot"} · ${nameOf(this.query.type).toLowerCase()} · ${timing(this.query)}` }), this.status));
    article.style.setProperty("--colour", this.colour);
    return article;
  }

  /** The query as a command. */
  command() {
    const { id, ...rest } = byName(this.query);
    const path = streamPath(this.app.stream, this.continuous ? "queries" : "ask");
    const token = this.app.usesTokens ? " -H \"Authorization: Bearer $TOKEN\"" : "";
    const body = JSON.stringify(this.continuous ? { id, ...rest } : rest).replaceAll("'", "'\\''");
    return `curl -s ${location.origin}${path}${token} --json '${body}'`;
  }

  #set(state, text, alert = false) {
    this.state = state;
    this.element.dataset.state = state;
    say(this.status, text);
    if (alert) this.status.setAttribute("role", "alert");
    else this.status.removeAttribute("role");
  }

  #wait(text) {
    if (!this.#shown.includes(this.view.element)) this.#put(el("p", { class: "empty", text }));
  }

  /** Runs a snapshot query. */
  async ask() {
    this.#set("asking", "asking …");
    this.#wait("Querying …");
    const began = performance.now();
    try {
      const row = await call("POST", streamPath(this.app.stream, "ask"), this.query);
      const took = performance.now() - began;
      this.app.answered(took);
      this.#set("answered", `as of ${moment(row.as_of.clock)}, in ${span(took)}`);
      this.take(row, true);
      this.draw();
    } catch (problem) {
      this.#set("refused", problem.message, true);
      this.#wait("There is no answer.");
      throw problem;
    }
  }

  /** Registers a continuous query; gives a position before its first row. */
  async register() {
    [this.own, this.caughtUp] = [true, true];
    this.#set("registering", "being registered …");
    this.#wait("Registering …");
    try {
      const said = await call("POST", streamPath(this.app.stream, "queries"), this.query);
      if (said.processed) this.#registered({ ...this.query, t: said.as_of.clock });
      else this.#set("sent", "sent; the stream has not processed it yet");
      return said.position;
    } catch (problem) {
      this.#set("refused", problem.message, true);
      this.#wait("It is not registered.");
      throw problem;
    }
  }

  /** Records that it is registered, with the given record; null: not known yet. */
  #registered(query) {
    if (query) {
      const duration = milliseconds(query.duration);
      [this.since, this.until] = [query.t, duration === null ? null : query.t + duration];
    }
    this.#set("registered", this.since === null ? "registered" : `registered at ${moment(this.since)}`);
    this.#wait(NOTHING_YET[this.shown]);
  }

  /** Follows a query that is registered already. */
  follow(kept) {
    if (!this.app.rights.has("watch")) {
      this.#set("unseen", "your token lacks the right to watch it");
      this.#wait("Its rows require the right to watch the stream.");
      return;
    }
    this.own = kept?.own ?? false;
    this.#set("looking", "checking whether it is registered …");
    this.#wait("Checking whether it is registered …");
    if (kept?.view) {
      this.view.restore(kept.view);
      this.rows = kept.rows;
      this.#fill();
    }
    this.look();
  }

  /** Asks the gateway whether it is registered, and since when. */
  async look() {
    this.looked = Date.now();
    try {
      const { query, so_far: soFar, as_of: asOf } = await call("GET", streamPath(this.app.stream, `queries/${encodeURIComponent(this.query.id)}`));
      if (!ACTIVE.includes(this.state)) return;
      this.by = query.by ?? null;
      if (query.region?.area) this.#compare(query.region, soFar.geometry);
      if (soFar.rows) {
        this.rows = Math.max(this.rows, soFar.rows);
        this.view.count(soFar.rows, asOf.clock);
        await this.#catchUp();
      }
      if (ACTIVE.includes(this.state)) this.#registered(query);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      // a query that has only been sent is not registered yet
      if (problem.kind === "not-found" && ["looking", "registered"].includes(this.state)) this.#ended();
    }
  }

  /** Shows the last rows from before the page was opened, once; rows that arrive meanwhile go on top. */
  async #catchUp() {
    if (this.caughtUp) return;
    this.caughtUp = true;
    try {
      const rows = await this.#lastRows();
      if (rows.length) this.view.past(rows);
      if (rows.length || this.shown === "objects") this.#fill();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.caughtUp = false; // the next check tries again
    }
  }

  /** The last rows that are kept, the newest last: found by counting, in ever smaller parts. */
  async #lastRows() {
    const path = (name, asked) => streamPath(this.app.stream, `results/${name}?${new URLSearchParams({ query: this.query.id, ...asked })}`);
    let until = Math.round(this.app.now()) + 1;
    let since = until - BACK;
    for (let found = Infinity; found > ENOUGH && until - since > PARTS;) {
      const said = await call("GET", path("counts", { since, until, parts: PARTS }));
      const last = said.counts.findLastIndex((each) => each.rows > 0);
      if (last < 0) return [];
      found = said.counts[last].rows;
      [since, until] = [said.counts[last].since, said.counts[last + 1]?.since ?? said.until];
    }
    const { rows } = await call("GET", path("past", { since, until, limit: 2 * ENOUGH }));
    return rows.map((each) => each.row);
  }

  /** Checks again when it expires, and periodically: anybody may have cancelled it. */
  tick(clock) {
    if (!ACTIVE.includes(this.state)) return;
    const soon = this.state !== "registered" || (this.until !== null && clock >= this.until);
    if (Date.now() - this.looked > (soon ? SOON : RARELY)) this.look();
  }

  #ended() {
    const over = this.until !== null && this.app.clock !== null && this.app.clock.clock >= this.until;
    this.#over("ended", over ? `expired at ${moment(this.until)}` : "no longer registered: cancelled or expired");
    this.#wait("It is no longer registered. Replay shows its past rows, as far as they are kept.");
  }

  #over(state, text) {
    this.#set(state, text);
    this.end.title = "Remove";
    say(this.end.querySelector(".hidden"), "Remove");
    this.app.over();
  }

  /** The state needed to continue after the page has been reloaded. */
  keep() {
    return { own: this.own, view: this.rows ? this.view.keep() : null, rows: this.rows };
  }

  /** Takes a row. */
  take(row, live) {
    if (row.error) {
      this.#set("refused", row.error, true);
      return;
    }
    this.rows += 1;
    this.newest = row.t;
    this.view.row(row, live);
    this.#fill();
    if (["registering", "sent", "looking"].includes(this.state)) this.#registered(null);
    if (this.continuous && live) {
      this.element.classList.remove("lit");
      void this.element.offsetWidth; // begins the animation anew
      this.element.classList.add("lit");
    }
  }

  #fill() {
    if (!this.#shown.includes(this.view.element)) this.#put(this.view.element);
  }

  /** Sets the content of the card, or the content to restore when past rows are no longer shown. */
  get #shown() {
    return this.before ?? [...this.body.childNodes];
  }

  #put(element) {
    if (this.before) this.before = [element];
    else this.body.replaceChildren(element);
  }

  draw() {
    if (this.rows) this.view.draw();
  }

  /** Shows past rows instead of live ones; null: live rows again. */
  show(past) {
    this.element.classList.toggle("past", past !== null);
    if (past !== null) {
      this.before = [...this.body.childNodes];
      this.body.replaceChildren(past.element);
    } else {
      this.body.replaceChildren(...this.before);
      this.before = null;
      this.view.fresh = true; // what it has drawn on the map is drawn again
    }
  }

  async #end() {
    if (!this.continuous || ["cancelled", "ended", "refused"].includes(this.state)) {
      this.app.remove(this);
      return;
    }
    if (this.app.readOnlyReason() !== null) {
      this.app.remove(this);
      this.app.toast("Removed from this page. It stays registered: you lack the right to cancel it");
      return;
    }
    const wanted = this.own ? "cancel" : await this.app.confirmCancel(this);
    if (wanted === "cancel") await this.cancel();
    else if (wanted === "remove") this.app.remove(this);
  }

  /** Cancels it in the stream; gives whether that has succeeded. */
  async cancel() {
    this.#set("cancelling", "cancelling …");
    try {
      await call("DELETE", streamPath(this.app.stream, `queries/${encodeURIComponent(this.query.id)}`));
    } catch (problem) {
      if (problem.kind !== "not-found") {
        this.#set("registered", problem.message, true);
        return false;
      }
    }
    this.#over("cancelled", "cancelled; its results stay until it is removed");
    return true;
  }

  /** Whether it may be registered, so that another query can replace it. */
  get active() {
    return this.continuous && ACTIVE.includes(this.state);
  }

  /** Takes it off the map. */
  dispose() {
    this.view.clear();
    this.app.map.removeRegion(this.key);
    this.element.remove();
  }
}
