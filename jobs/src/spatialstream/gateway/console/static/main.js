// The page: who looks at which stream, what is asked, and what comes.

import { Events, Problem, call, hasToken, keepToken, streamPath, takeToken, tryToken } from "./api.js";
import { Areas } from "./areas.js";
import { Composer } from "./composer.js";
import { Inside } from "./inside.js";
import { openMap } from "./map.js";
import { MOST, isAddress, isContinuous, readAddress, writeAddress } from "./query.js";
import { COLOURS, QueryCard } from "./card.js";
import { Replay, isSpan } from "./replay.js";
import { RegisteredQueries } from "./registered.js";
import { el, paced, say, tell } from "./web/dom.js";
import { moment, short, span } from "./web/format.js";
import { Space } from "./web/geometry.js";
import { bars } from "./web/lists.js";

const TEXTS = 20_000; // of objects that have passed, kept to be shown with what is found
const SPAN = 5_000; // ms over which rates are computed
const LATEST = 5;
const HIDDEN = 20_000; // ms after which a page that nobody sees lets go of its connections: a browser has six to a host
const LAST = 5_000; // ms for which the last rows of an ended query may be on their way
const NONE = 10_000; // ms after which it is looked again for a stream, where there is none
const LATE = 10_000; // ms by which the stream's clock may be behind before the page says so
const STUCK = 30_000; // ms for which it may not advance while objects arrive: a round of a busy machine takes seconds
const KEPT = "spatialstream-page";
const STOPPED = {
  worker: "The worker does not answer. Nothing is lost: records wait in the broker, and continuous queries resume when it is back.",
  router: "Objects arrive, but the stream's clock does not advance: the router does not run, or waits for a silent partition.",
};

/** Letters and digits that nobody else has: also where the page is not served safely, and there is no randomUUID. */
const unique = () => [...crypto.getRandomValues(new Uint8Array(7))].map((each) => each.toString(16).padStart(2, "0")).join("");

const $ = (id) => document.getElementById(id);

class Texts extends Map {
  set(id, text) {
    super.set(id, text);
    if (this.size > TEXTS) this.delete(this.keys().next().value);
    return this;
  }
}

class App {
  constructor() {
    takeToken();
    this.address = readAddress(location.hash);
    [this.stream, this.space, this.streams, this.usesTokens] = [null, null, [], true];
    [this.cards, this.texts, this.latest] = [[], new Texts(), []];
    [this.moments, this.seconds, this.ages] = [[], new Array(40).fill(0), []];
    [this.states, this.clock, this.asked] = [{}, null, null];
    [this.answers, this.moved, this.flowing] = [null, Date.now(), null]; // of the worker; when the clock moved last, and since when objects come
    this.theme = localStorage.getItem("spatialstream-theme") ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");
    document.documentElement.dataset.theme = this.theme;
    this.save = paced(400, () => this.#save());
    const tip = paced(60, () => this.#tip());
    const pointed = (point) => {
      this.pointer = point;
      tip();
    };
    this.map = openMap($("map"), this.address.map, () => $("replay").offsetHeight, { moved: () => this.save(), pointed });
    this.areas = new Areas($("areas"), this);
    this.composer = new Composer($("composer"), this);
    this.inside = new Inside($("inside"), this);
    this.replay = new Replay($("replay"), this);
    this.registered = new RegisteredQueries($("registered"), this);
    this.results = new Events({
      path: () => streamPath(this.stream, `results?${this.#followed().map((each) => `query=${encodeURIComponent(each.query.id)}`).join("&")}`),
      event: (data) => this.#row(JSON.parse(data)),
      state: (state, more) => this.#connection("results", state, more),
    });
    this.objects = new Events({
      path: () => streamPath(this.stream, "console/objects"),
      event: (data) => this.#passing(JSON.parse(data)),
      state: (state, more) => this.#connection("objects", state, more),
    });
    this.#listen();
    setInterval(() => this.#second(), 1000);
    const frame = () => {
      setTimeout(() => requestAnimationFrame(frame), 200);
      if (this.replay.card === null) this.cards.forEach((each) => each.draw());
    };
    requestAnimationFrame(frame);
    this.enter();
  }

  // --------------------------------------------------------------------------------------------------------- who looks

  /** Finds out who looks and what there is, as often as it takes. */
  async enter() {
    const current = this.#turn();
    this.#connection("session", "connecting");
    try {
      const session = await call("GET", "/console/session");
      if (!current()) return;
      [this.usesTokens, this.caller] = [session.tokens, session.caller];
      $("key").hidden = !session.tokens;
      this.streams = session.streams;
      if (!this.streams.length) {
        this.#connection("session", "live");
        this.#banner(`${session.caller} has no right on any stream here.`);
        this.entering = setTimeout(() => this.enter(), NONE);
        return;
      }
      const wanted = this.address.stream ?? this.stream;
      const known = this.streams.some((each) => each.name === wanted);
      $("stream").replaceChildren(...this.streams.map((each) => el("option", { value: each.name, text: each.name })));
      $("stream").disabled = this.streams.length < 2;
      if (wanted && !known) this.toast(`This gateway serves no stream ${wanted}`);
      await this.open(known ? wanted : this.streams[0].name);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (!current()) return;
      if (problem.status === 401) this.#askToken(hasToken() ? "The gateway does not accept this token." : "This gateway requires a token.");
      else this.#later(problem, () => this.enter());
    }
  }

  /** Begins anew with what the page shows, or was to show. */
  again() {
    if (this.space !== null) {
      this.#keep();
      this.#save();
      this.address = readAddress(location.hash);
    }
    this.enter();
  }

  /** Who turns to something lets go of what is being turned to; whether nobody has since. */
  #turn() {
    clearTimeout(this.entering);
    const turn = (this.turn = {});
    return () => turn === this.turn;
  }

  #later(problem, again) {
    const wait = (problem.retry ?? 2) * 1000;
    this.#connection("session", "waiting", { why: problem.message, until: Date.now() + wait });
    this.entering = setTimeout(again, wait);
  }

  /** Opens a stream. */
  async open(name) {
    const current = this.#turn();
    this.replay.close();
    this.objects.close();
    this.results.close();
    [...this.cards].forEach((each) => this.#drop(each));
    this.#connection("session", "connecting");
    for (const each of ["objects", "results"]) this.#connection(each, "idle");
    [this.stream, this.space] = [name, null];
    $("stream").value = name;
    document.title = `${name} – spatialstream`;
    this.areas.refresh();
    this.composer.refresh();
    this.registered.refresh();
    if (!this.rights.has("ask") && !this.rights.has("watch")) {
      this.#connection("session", "refused", { problem: { message: "Your token has neither the right to ask nor to watch this stream." } });
      return;
    }
    $("view-inside").disabled = !this.rights.has("watch");
    $("view-inside").title = $("view-inside").disabled ? "Your token lacks the right to watch this stream" : "";
    let look;
    try {
      look = await call("GET", this.inside.path);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (!current()) return;
      if (problem.status === 403) this.#connection("session", "refused", { problem });
      else if (problem.status === 401) this.#askToken(problem.message);
      else this.#later(problem, () => this.open(name));
      return;
    }
    if (!current()) return;
    this.#connection("session", "live");
    this.#banner(null);
    [this.space, this.properties, this.fields, this.ranking] = [new Space(look.space), look.properties, look.fields, look.ranking];
    this.ahead = Date.now() - look.now;
    [this.clock, this.moved, this.flowing] = [null, Date.now(), null];
    this.looked(look);
    await this.map.show(this.space);
    if (!current()) return;
    this.composer.refresh();
    this.areas.begin();
    this.inside.take(look);
    this.#restore();
    if (this.address.all) await this.#all();
    if (!current()) return;
    this.view = this.address.view;
    const { replay } = this.address;
    this.address.replay = null;
    const replayed = this.cards.find((each) => each.continuous && each.query.id === replay?.id);
    if (replayed) this.replay.open(replayed, { at: replay.at, span: isSpan(replay.span) ? replay.span : undefined });
    else this.#come();
    this.save();
  }

  /** Takes a new description of the stream's progress. */
  looked(look) {
    if (look.as_of && look.as_of.clock !== this.clock?.clock) this.moved = Date.now();
    this.clock = look.as_of ? { clock: look.as_of.clock, at: look.now, here: Date.now() } : null;
    this.answers = look.answers;
    this.#drawJobs();
  }

  /** Whether nothing has been sent for some seconds; null: that is not seen from here. */
  get quiet() {
    return this.states.objects?.state === "live" ? this.flowing === null : null;
  }

  /** By how much the clock is behind, in words, and whether that is late: a stream to which nothing is sent is only quiet. */
  get behind() {
    if (this.clock === null) return { text: "–", late: false };
    const ms = this.clock.at - this.clock.clock;
    if (Math.abs(ms) > 86_400_000) return { text: moment(this.clock.clock).slice(0, 10), late: false };
    if (this.quiet && ms > LATE) return { text: "quiet", late: false };
    const coming = this.quiet === null || (this.flowing !== null && Date.now() - this.flowing > LATE);
    return { text: span(Math.max(0, ms)), late: ms > LATE && coming };
  }

  /** What is known of each job: whether the worker answers, and whether what the router reads moves the clock on. */
  #drawJobs() {
    const stuck = this.flowing !== null && Date.now() - Math.max(this.flowing, this.moved) > STUCK;
    const worker = this.answers === null ? ["unknown", "not known yet"] : this.answers ? ["good", "answers"] : ["bad", "does not answer"];
    const router = !this.answers ? ["unknown", "not known: the worker does not answer"]
      : stuck ? ["bad", "objects arrive, but the stream's clock does not advance"]
        : this.behind.late ? ["late", `the stream's clock is ${this.behind.text} behind`]
          : this.quiet ? ["good", "no objects are being sent"] : ["good", "the stream's clock advances"];
    for (const [name, [light, message]] of [["router", router], ["worker", worker]]) {
      const shown = $(`job-${name}`);
      Object.assign(shown.dataset, { light });
      shown.title = `${name}: ${message}`;
      say(shown.querySelector(".hidden"), `: ${message}`);
    }
    this.stopped = worker[0] === "bad" ? "worker" : router[0] === "bad" ? "router" : null;
    this.#drawState();
  }

  /** What the gateway's clock says, about. */
  now() {
    return Date.now() - this.ahead;
  }

  /** Has what comes come. */
  #come() {
    if (this.rights.has("ask")) this.objects.open();
    this.#follow();
  }

  /** What has been is shown, or what comes again: from the last row on that has come, so none is lost. */
  replays(on) {
    document.documentElement.dataset.replay = String(on);
    this.map.replay(on);
    if (on) {
      this.objects.close();
      this.results.close();
      this.#connection("objects", "idle");
      this.#connection("results", "idle");
    } else this.#come();
    this.#drawState();
    this.changed();
  }

  get rights() {
    return new Set(this.streams.find((each) => each.name === this.stream)?.rights ?? []);
  }

  /** Why nothing can be asked once here; null: it can. */
  mutedReason() {
    return this.stream === null || this.rights.has("ask") ? null : "Your token lacks the right to ask.";
  }

  /** Why nothing can be registered here; null: it can. */
  readOnlyReason() {
    if (this.stream === null) return null;
    if (this.rights.has("write")) return this.rights.has("watch") ? null : "Your token lacks the right to watch, so the rows of a continuous query could not be shown.";
    if (!this.usesTokens) return "This gateway is read-only: it was started without --tokens, so queries cannot be registered.";
    return "Your token lacks the right to write, so it cannot register queries.";
  }

  /** Why nothing can be written to the stream, such as an area; null: it can. */
  unwritableReason() {
    if (this.rights.has("write")) return null;
    return this.usesTokens ? "Your token lacks the right to write, so areas cannot be kept." : "This gateway is read-only: it was started without --tokens.";
  }

  #askToken(message) {
    this.#connection("session", "refused", { problem: { message } });
    this.#openToken(message);
  }

  #openToken(message) {
    say($("token-message"), message);
    say($("token-error"), "");
    $("token-forget").hidden = !hasToken();
    if (!$("token-dialog").open) $("token-dialog").showModal();
  }

  // ----------------------------------------------------------------------------------------------------------- queries

  /** Sends a snapshot query or registers a continuous one; throws if the gateway refuses it. */
  async submit(query, replaced = null) {
    this.replay.close();
    const continuous = isContinuous(query);
    const named = continuous ? { id: `console-${unique()}`, ...query } : query;
    const card = this.#add(named);
    // rows are followed from the last that has come; where none has, from before the first that it can have
    const fresh = continuous && this.results.last === null;
    if (fresh) this.results.close();
    else if (continuous) this.#follow();
    try {
      const position = await (continuous ? card.register() : card.ask());
      if (fresh && this.cards.includes(card)) {
        this.results.last ??= position;
        this.#follow();
      }
      if (continuous) this.composer.clear(); // a snapshot query may be sent again, or registered
      // only a continuous query replaces another
      if (continuous && replaced?.active && (await replaced.cancel())) this.remove(replaced);
    } catch (problem) {
      this.remove(card);
      throw problem;
    }
    this.changed();
  }

  /** Follows a registered query. */
  join(query) {
    this.replay.close();
    if (!this.cards.some((each) => each.query.id === query.id)) this.#add(query).follow();
    this.#follow();
    this.changed();
    this.cards.find((each) => each.query.id === query.id).element.scrollIntoView({ block: "nearest" });
  }

  #add(query) {
    const used = this.cards.map((each) => each.colour);
    const colour = COLOURS.find((each) => !used.includes(each)) ?? COLOURS[this.cards.length % COLOURS.length];
    const card = new QueryCard(query, this, colour);
    this.cards.unshift(card);
    $("queries").prepend(card.element);
    this.#empty();
    return card;
  }

  remove(card) {
    this.#drop(card);
    this.changed();
    if (card.continuous) this.#follow();
  }

  #drop(card) {
    this.cards = this.cards.filter((each) => each !== card);
    if (this.replay.card === card) this.replay.close();
    card.dispose();
    this.#empty();
  }

  #empty() {
    const shown = $("queries").querySelector(".nothing");
    if (this.cards.length) shown?.remove();
    else if (!shown) {
      $("queries").append(el("div", { class: "nothing" }, el("p", { text: "No query yet." }),
        el("p", { text: "Draw a box, a circle or a polygon on the map, or choose Everywhere. Type words if you like. Then run the query once, or register it: its matches light up as they arrive." })));
    }
  }

  edit(card) {
    this.view = "live";
    // a query that somebody else has registered is not replaced
    this.composer.edit(card.query, card.own && card.active && this.readOnlyReason() === null ? card : null);
  }

  /** Asks what to do with a query that this page has not registered: "cancel", "remove" (from this page), or "keep". */
  confirmCancel({ summary: { title, where }, by, since }) {
    const dialog = $("cancel-dialog");
    const who = by === null ? "Registered by an unknown client" : by === this.caller ? "You registered it, on another page" : ["Registered by ", el("bdi", { text: by })];
    $("cancel-message").replaceChildren(`${title}, ${where}. `, ...[who].flat(), since === null ? "" : ` at ${moment(since)}`, ". Its followers get no more rows.");
    dialog.returnValue = "keep"; // what Escape says
    dialog.showModal();
    return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true }));
  }

  /** The corners of what a query is about, of an area those of its geometry; null: everything, or it is not known yet. */
  extent(query) {
    return this.space.extent({ ...query, region: this.areas.drawn(query.region) });
  }

  /** What the areas are on the map is known now. */
  placed() {
    this.cards.filter((each) => each.area !== null).forEach((each) => each.place());
    this.composer.redraw();
  }

  /** Compares the geometry of the queries of an area with that of the area now. */
  compare(area) {
    this.cards.filter((each) => each.area === area && each.active).forEach((each) => each.look());
  }

  #followed() {
    return this.#lasting().filter((each) => each.continuous && each.state !== "ended");
  }

  /** The queries that the address holds, so that they are there when the page is reloaded. */
  #lasting() {
    return this.cards.filter((each) => !["cancelled", "refused"].includes(each.state));
  }

  /** One connection for all continuous queries, from the last row received. */
  #follow() {
    if (this.replay.card !== null || this.asleep || !this.rights.has("watch")) return;
    if (this.#followed().length) this.results.open();
    else {
      this.results.close();
      this.results.last = null;
      this.#connection("results", "idle");
    }
  }

  #row(row) {
    const age = Date.now() - row.t;
    if (age > -5_000 && age < 600_000) this.ages.push({ at: Date.now(), type: row.type, age });
    if (this.ages.length > 2_000) this.ages.splice(0, 500);
    this.cards.find((each) => each.query.id === row.query)?.take(row, true);
  }

  /** A query has ended. */
  over() {
    this.changed();
    setTimeout(() => this.#follow(), LAST);
  }

  answered(ms) {
    this.asked = ms;
  }

  changed() {
    this.save();
  }

  // ------------------------------------------------------------------------------------------------ objects that pass

  #passing({ at, count, exact, objects }) {
    // by the gateway's time: what a busy page reads late has not come in a burst
    this.late = Math.min(this.late ?? Infinity, Date.now() - at);
    this.moments.push({ at, count, shown: objects.length, exact });
    this.seconds[this.seconds.length - 1] += count;
    for (const [id, t, x, y, text] of objects) {
      this.texts.set(id, text);
      this.map.pass(x, y, { id, t, x, y, text });
    }
    const last = objects.at(-1);
    if (last) this.latest = [...objects.slice(-LATEST).reverse(), ...this.latest].slice(0, LATEST);
  }

  #second() {
    const now = Date.now() - (this.late ?? 0);
    this.moments = this.moments.filter((each) => each.at > now - SPAN && each.at <= now + 1000);
    const total = this.moments.reduce((sum, each) => sum + each.count, 0);
    const shown = this.moments.reduce((sum, each) => sum + each.shown, 0);
    const exact = this.moments.every((each) => each.exact);
    const live = this.states.objects?.state === "live";
    say($("rate"), live ? `${exact ? "" : "~"}${short(total / (SPAN / 1000))}` : "–");
    const share = shown ? total / shown : 1;
    say($("shown"), !live || !total ? "–" : share < 1.02 ? "all" : `1 of ${exact ? "" : "~"}${short(Math.round(share * 10) / 10)}`);
    $("rate-spark").replaceChildren(bars(this.seconds.slice(0, -1), 78, 16));
    this.seconds = [...this.seconds.slice(1), 0];
    this.flowing = live && total ? (this.flowing ?? Date.now()) : null;
    const { text, late } = this.behind;
    say($("behind"), text);
    $("behind").closest("div").dataset.late = String(late);
    $("behind").closest("div").dataset.quiet = String(text === "quiet");
    this.#drawLatest(live && !total);
    this.#drawJobs();
    if (document.visibilityState === "visible") this.cards.forEach((each) => each.tick(this.clock?.clock ?? 0));
  }

  #drawLatest(silent) {
    const list = document.querySelector("#latest ol");
    const key = `${silent} ${this.latest.map((each) => each[0]).join()}`;
    if (key === this.latestShown) return;
    this.latestShown = key;
    const lines = this.latest.map(([, t, x, y, text]) => el("li", {}, el("time", { text: moment(t) }), el("span", { text: text || "(no text)" })));
    list.replaceChildren(...lines);
    if (silent) list.prepend(el("li", { class: "silent", text: this.latest.length ? "No objects for some seconds." : "No objects are being sent to this stream now." }));
  }

  // -------------------------------------------------------------------------------------------------------- connections

  #connection(name, state, more = {}) {
    const gone = name === "results" && state === "refused" && more.problem.status === 410;
    this.states[name] = gone ? { state: "connecting" } : { state, ...more };
    if (gone) {
      this.results.last = null;
      this.toast("The broker has deleted the rows that arrived meanwhile: rows are missing here");
      setTimeout(() => this.#follow());
    }
    if (state === "refused" && more.problem?.status === 401) this.#askToken(more.problem.message);
    this.#drawState();
  }

  #drawState() {
    const all = Object.values(this.states);
    const worst = ["refused", "waiting", "connecting", "live"].find((each) => all.some((one) => one.state === each)) ?? "connecting";
    const { why, until, problem } = all.find((each) => each.state === worst) ?? {};
    const left = until ? Math.max(0, Math.ceil((until - Date.now()) / 1000)) : 0;
    const replays = this.replay?.card && worst === "live";
    const stopped = worst === "live" && this.space !== null ? this.stopped : null;
    const message = stopped ? `no ${stopped}` : replays ? "replay" : { refused: "refused", waiting: "reconnecting", connecting: "connecting", live: "live" }[worst];
    $("state").dataset.state = stopped ? "stopped" : message === "replay" ? message : worst;
    say($("state").firstElementChild, message);
    $("state").title = problem?.message ?? (worst === "waiting" ? `${why}; next attempt in ${left} s` : "");
    document.documentElement.dataset.connection = worst;
    if (worst === "waiting") this.#banner(`Reconnecting: ${why}. Nothing is lost: continuous queries go on, and their rows arrive when the gateway is back.`, "waiting");
    else if (worst === "refused") this.#banner(`Refused: ${problem.message}`, "refused");
    else if (stopped) this.#banner(STOPPED[stopped], "stopped");
    else if (["waiting", "refused", "stopped"].includes($("banner").dataset.kind)) this.#banner(null);
  }

  /** Shows the most important message; for a refused connection, with a button to try again. */
  #banner(text, kind = "") {
    const banner = $("banner");
    if (text === this.bannered) return; // and not read out again
    this.bannered = text;
    banner.hidden = text === null;
    banner.dataset.kind = kind;
    banner.replaceChildren(text ?? "");
    if (kind === "refused") banner.append(" ", el("button", { type: "button", class: "link", text: "Try again", onclick: () => this.again() }));
  }

  // -------------------------------------------------------------------------------------------------------- the address

  /** The queries of the address. Continuous ones resume after the last row that this tab has received. */
  #restore() {
    let kept = {};
    try {
      kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
    } catch {
      // another release has written it
    }
    if (kept.stream !== this.stream) kept = {};
    this.results.last = kept.last ?? null;
    for (const query of [...this.address.queries].reverse()) {
      const card = this.#add(query);
      if (card.continuous) card.follow(kept.queries?.[query.id]);
      else card.ask().catch(() => {});
    }
    this.address.queries = [];
    this.address.stream = null;
    this.#empty();
  }

  /** Follows all registered queries, for a link with follow=all. */
  async #all() {
    this.address.all = false;
    try {
      const { queries } = await call("GET", streamPath(this.stream, `queries?limit=${MOST}`));
      const known = new Set(this.cards.map((each) => each.query.id));
      // by is not part of the query
      for (const { by: _, ...query } of queries.filter((each) => !known.has(each.id)).reverse()) this.#add(query).follow();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.toast(`The registered queries cannot be listed: ${problem.message}`);
    }
  }

  #save() {
    if (this.stream === null || this.space === null) return;
    const queries = this.#lasting().map((each) => each.query);
    const written = writeAddress({ stream: this.stream, view: this.view, map: this.map.view, queries, replay: this.replay.said });
    if (written !== location.hash) history.replaceState(null, "", written);
  }

  #keep() {
    const queries = Object.fromEntries(this.#lasting().filter((each) => each.continuous).map((each) => [each.query.id, each.keep()]));
    try {
      sessionStorage.setItem(KEPT, JSON.stringify({ stream: this.stream, last: this.results.last, queries }));
    } catch {
      sessionStorage.removeItem(KEPT); // it is too much: the page begins with what comes from now on
    }
  }

  set view(given) {
    const name = this.rights.has("watch") ? given : "live";
    this.replay.close();
    this.shown = name;
    $("live").hidden = name !== "live";
    $("inside").hidden = name !== "inside";
    $("view-live").setAttribute("aria-pressed", String(name === "live"));
    $("view-inside").setAttribute("aria-pressed", String(name === "inside"));
    document.documentElement.dataset.view = name;
    this.inside.show(name === "inside");
    this.address.view = name;
    this.save();
  }

  get view() {
    return this.shown ?? "live";
  }

  async copy(text, notice) {
    try {
      await navigator.clipboard.writeText(text);
      this.toast(notice);
    } catch {
      prompt("Copy this:", text); // no clipboard where the page is not served safely
    }
  }

  toast(text) {
    say($("toast"), text);
    clearTimeout(this.toasting);
    this.toasting = setTimeout(() => say($("toast"), ""), 5_000);
  }

  // ------------------------------------------------------------------------------------------------------------ events

  #listen() {
    $("stream").addEventListener("change", (event) => {
      this.address = { ...this.address, queries: [] };
      this.moments = [];
      this.map.points.clear();
      this.open(event.target.value);
    });
    $("view-live").addEventListener("click", () => (this.view = "live"));
    $("view-inside").addEventListener("click", () => (this.view = "inside"));
    $("theme").addEventListener("click", () => {
      this.theme = this.theme === "dark" ? "light" : "dark";
      localStorage.setItem("spatialstream-theme", this.theme);
      document.documentElement.dataset.theme = this.theme;
      this.map.recolour();
      this.areas.recolour();
      this.inside.redraw();
    });
    $("share").addEventListener("click", () => {
      this.#save();
      this.copy(location.href, "Link copied: it holds the view and the queries, but no token");
    });
    $("key").addEventListener("click", () => this.#openToken("Requests of this page carry this token."));
    $("token-forget").addEventListener("click", () => {
      keepToken(null);
      $("token-dialog").close();
      location.reload();
    });
    $("token-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await tryToken($("token").value.trim());
        $("token").value = "";
        $("token-dialog").close();
        this.again();
      } catch (problem) {
        say($("token-error"), problem.message);
      }
    });
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address holds the queries
      $("panel").focus();
    });
    addEventListener("hashchange", () => {
      if (takeToken()) {
        location.reload();
        return;
      }
      if (!isAddress(location.hash)) {
        this.#save(); // what there is stays, and its address
        return;
      }
      this.address = readAddress(location.hash);
      if (this.streams.length) this.enter();
    });
    for (const name of ["error", "unhandledrejection"]) {
      addEventListener(name, (event) => (event.error ?? event.reason) && this.toast("A part of this page has failed; the rest continues"));
    }
    addEventListener("pagehide", () => this.#keep());
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.hiding);
      if (document.visibilityState === "hidden") {
        this.#keep();
        this.hiding = setTimeout(() => {
          this.asleep = true;
          this.objects.close();
          this.results.close();
        }, HIDDEN);
      } else if (this.asleep) {
        this.asleep = false;
        if (this.replay.card === null) this.#come();
      }
    });
  }

  /** What an object of a row said, as [name, value]; none, if the stream keeps no fields, or the query shows none. */
  said(object) {
    const own = ["id", "t", "distance_m", "distance", "score", "card", "x", "y", ...(this.space?.axes ?? [])];
    const told = (name, value) => (this.properties?.[name] === "time" ? moment(value) : String(value));
    return Object.entries(object).filter(([name]) => !own.includes(name)).map(([name, value]) => [name, told(name, value)]);
  }

  /** Says what is under the pointer. */
  #tip() {
    const point = this.pointer;
    const about = point && this.space && !this.composer.drawing ? this.map.under(point) : null;
    const leaf = point && !about && this.view === "inside" ? this.map.leafAt(point) : null;
    const area = point && !about && !leaf && !this.composer.drawing ? this.areas.under(point) : null;
    const properties = about ? this.said(about).filter(([name]) => name !== "text").map(([name, value]) => `${name} ${value}`) : [];
    const said = about && [about.text || this.texts.get(about.id) || about.id, ...properties, `${about.id} · ${moment(about.t)}`];
    tell($("tip"), said || leaf?.lines || (area && [area.name]) || null, point);
  }
}

window.spatialstream = new App();
