// The stream from the inside: how far it is, which slot carries what, the tree, versions, latencies, what was rejected.

import { Problem, call, streamPath } from "./api.js";
import { colour, el, say } from "./web/dom.js";
import { count, moment, short, span } from "./web/format.js";
import { bar } from "./web/lists.js";

const EVERY = 2_000; // ms
const LETTERS_EVERY = 6_000;
const AGES = 60_000; // ms of rows over which latencies are computed

export class Inside {
  constructor(element, app) {
    [this.element, this.app] = [element, app];
    this.look = null;
    this.shown = false;
    this.by = "load";
    this.parts = {};
    const section = (name, title, note) => {
      this.parts[name] = el("div", { class: "part" });
      return el("section", { "aria-labelledby": `inside-${name}` }, el("h2", { id: `inside-${name}`, text: title }), note ? el("p", { class: "note", text: note }) : null, this.parts[name]);
    };
    const choice = (value, text) => el("label", {}, el("input", { type: "radio", name: "by", value, checked: value === this.by, onchange: () => ((this.by = value), this.redraw()) }), el("span", { text }));
    element.append(
      section("now", "Now"),
      section("slots", "Slots", "The share of the load of each slot, by the cost model from recent counts."),
      section("leaves", "Leaves of the tree"),
      section("versions", "Routing"),
      section("ages", "Latency", "Age of rows on arrival at this page, by the timestamps of their objects; for streams of current times."),
      section("rejected", "Rejected records"),
    );
    this.legend = document.getElementById("legend");
    this.leafNote = el("p", { class: "figures-line" });
    this.parts.leaves.append(el("div", { class: "kinds two", role: "radiogroup", "aria-label": "Colour of leaves" }, choice("load", "By load"), choice("slot", "By slot")), this.leafNote);
  }

  show(shown) {
    this.shown = shown;
    clearTimeout(this.timer);
    this.legend.hidden = !shown;
    if (shown) {
      this.redraw();
      this.#poll();
    } else {
      this.app.map.setLeaves([]);
      this.drawn = null;
      this.timer = setTimeout(() => this.#poll(), EVERY);
    }
  }

  /** Where one looks; who may not watch sees how far the stream is. */
  get path() {
    return streamPath(this.app.stream, this.app.rights.has("watch") ? "console/inside" : "console/clock");
  }

  /** Looks again and again: also while nobody sees it, for the clock. */
  async #poll() {
    const stream = this.app.stream;
    try {
      if (document.visibilityState === "visible" && stream !== null && this.app.space !== null) {
        const look = await call("GET", this.path);
        if (stream === this.app.stream) this.take(look);
        if (this.shown && this.app.rights.has("ask") && Date.now() - (this.lettersAt ?? 0) > LETTERS_EVERY) {
          this.lettersAt = Date.now();
          this.#letters(await call("GET", streamPath(stream, "console/rejected")));
        }
      }
      this.failed = null;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.failed = problem.message;
      this.#now();
    } finally {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.#poll(), EVERY);
    }
  }

  take(look) {
    this.look = look.slots ? look : null;
    this.app.looked(look);
    if (this.shown) this.redraw();
  }

  redraw() {
    if (!this.shown || this.look === null) return;
    this.#now();
    this.#slots();
    this.#leaves();
    this.#versions();
    this.#ages();
  }

  #facts(part, facts) {
    this.parts[part].replaceChildren(el("dl", { class: "facts" }, facts.filter(Boolean).map(([name, value, detail, late]) =>
      el("div", { title: detail, "data-late": late ? "true" : null }, el("dt", { text: name }), el("dd", { text: value })))));
  }

  #now() {
    const { look } = this;
    if (look === null) return;
    const behind = look.as_of ? look.now - look.as_of.clock : null;
    const today = behind !== null && Math.abs(behind) < 86_400_000;
    this.#facts("now", [
      ["clock", look.as_of ? moment(look.as_of.clock) : "not started", "The stream's clock, as of which queries are answered"],
      ["behind", today ? this.app.behind.text : behind === null ? "–" : "not current", "The current time minus the clock, while objects arrive", this.app.behind.late],
      ["round", look.as_of ? count(look.as_of.round) : "–", "The newest completed round of the worker"],
      ["answers in", look.as_of ? span(look.answered_ms) : look.answers ? "no round yet" : "does not answer", "Time that the worker's driver took to answer", !look.answers],
      ["executors requested", ["router", "worker"].map((job) => look.executors[job] ?? "–").join(" + "), "Requested number of executors of router and worker"],
    ]);
    if (this.failed) this.parts.now.prepend(el("p", { class: "error", text: `The last update failed: ${this.failed}` }));
  }

  #slots() {
    const { look } = this;
    const total = look.slots.reduce((sum, each) => sum + each.load, 0) || 1;
    const counted = look.counted !== null;
    const head = ["Slot", "Load", "", "Objects", counted ? "Queries" : null, counted ? "In/s" : null, "Actor"].filter((each) => each !== null);
    const actors = [...new Set(look.slots.map((each) => each.actor))];
    const rows = look.slots.map((each) => el("tr", {},
      el("th", { scope: "row" }, el("span", { class: `slot slot-${each.slot % 8}` }), String(each.slot)),
      el("td", { class: "drawn" }, bar((each.load / total) * Math.min(look.slots.length, 3) / 1.5, `slot-${each.slot % 8}`)),
      el("td", { class: "n", text: `${((100 * each.load) / total).toFixed(0)} %` }),
      el("td", { class: "n", text: short(each.objects) }),
      counted ? el("td", { class: "n", text: short(each.queries) }) : null,
      counted ? el("td", { class: "n", text: short(each.rate) }) : null,
      el("td", { class: "n", title: each.actor ?? "", text: each.actor ? `#${actors.indexOf(each.actor) + 1}` : "moving" })));
    this.parts.slots.replaceChildren(
      el("table", { class: "slots" }, el("thead", {}, el("tr", {}, head.map((text) => (text ? el("th", { scope: "col", text }) : el("td"))))), el("tbody", {}, rows)),
      el("p", { class: "figures-line", text: `Lmax/Lmin ${look.imbalance === null ? "∞: a slot has no load" : look.imbalance.toFixed(2)} · ${counted ? `counted up to ${moment(look.counted)}` : "no counts yet: loads are those that the version was computed for"}` }),
      ...(look.most_expensive?.length ? [el("table", { class: "slots", title: "With how many objects each was compared in the last minutes, estimated; the ten with most" },
        el("thead", {}, el("tr", {}, ["Most expensive queries", "Candidates"].map((text) => el("th", { scope: "col", text })))),
        el("tbody", {}, look.most_expensive.map((each) => el("tr", {}, el("th", { scope: "row", text: each.query }), el("td", { class: "n", text: short(each.candidates) })))))] : []));
  }

  #leaves() {
    const { look } = this;
    // textual leaves share a cell: on the map it is one, with their loads together
    const cells = new Map();
    for (const leaf of look.leaves) {
      const key = leaf.box.join();
      const cell = cells.get(key) ?? { box: leaf.box, load: 0, objects: 0, slots: new Map(), shares: 0 };
      cell.load += leaf.load;
      cell.objects += leaf.objects;
      cell.shares += 1;
      cell.slots.set(leaf.slot, (cell.slots.get(leaf.slot) ?? 0) + leaf.load);
      cells.set(key, cell);
    }
    const total = look.leaves.reduce((sum, each) => sum + each.load, 0) || 1;
    const { ramp } = this.app.map;
    const loads = [...cells.values()].map((each) => each.load).sort((a, b) => a - b);
    const step = (load) => ramp[Math.min(ramp.length - 1, Math.floor((ramp.length * loads.filter((each) => each < load).length) / Math.max(1, loads.length)))];
    const drawn = [...cells.values()].sort((a, b) => b.load - a.load).map((cell) => {
      const main = [...cell.slots].sort((a, b) => b[1] - a[1])[0][0];
      const slots = [...cell.slots.keys()].sort((a, b) => a - b);
      return {
        box: cell.box,
        colour: this.by === "load" ? step(cell.load) : colour(`slot-${main % 8}`),
        lines: [
          `${((100 * cell.load) / total).toFixed(1)} % of the load`,
          `about ${count(Math.round(cell.objects))} objects · slot${slots.length > 1 ? "s" : ""} ${slots.join(", ")}${cell.shares > 1 ? ` · ${cell.shares} textual shares` : ""}`,
        ],
      };
    });
    const key = JSON.stringify([this.app.theme, this.by, drawn.map((each) => [each.box, each.colour, each.lines])]);
    if (key !== this.drawn) {
      this.drawn = key;
      this.app.map.setLeaves(drawn);
    }
    const textual = look.leaves.filter((each) => each.textual).length;
    const most = drawn[0];
    const note = `${count(look.leaves_in_all)} leaves in ${count(cells.size)} cells, ${count(textual)} of them textual shares${look.leaves.length < look.leaves_in_all ? ` (the ${count(look.leaves.length)} with the largest loads are drawn)` : ""}.`;
    say(this.leafNote, `${note}${most ? ` The fullest has ${most.lines[0]}.` : ""}`);
    const swatches = this.by === "load"
      ? [el("span", { text: "less load" }), ...ramp.map(swatch), el("span", { text: "more" })]
      : look.slots.slice(0, 8).flatMap((each) => [swatch(colour(`slot-${each.slot % 8}`)), el("span", { text: `slot ${each.slot}` })]);
    this.legend.replaceChildren(...swatches);
  }

  #versions() {
    const { look } = this;
    this.#facts("versions", [
      ["version", String(look.version), "Version of the tree and the mapping of its leaves to slots"],
      ["since epoch", count(look.since_epoch), "The first epoch that it routes"],
      ["index", look.kind],
      ["proposal", look.proposal || "none: the first", "The rebalancing that created it"],
    ]);
    const part = this.parts.versions;
    if (look.pending) {
      const { pending } = look;
      const slots = look.slots.length;
      part.append(el("p", { class: "pending", text: `Version ${pending.version} is pending, based on ${pending.base}: ${pending.exported.length} of ${slots} slots have exported, ${pending.loaded.length} have loaded.` }));
    }
    const { before, after } = look;
    if (before && before.share && after.share) {
      const most = Math.max(...before.share, ...after.share);
      const column = (share) => el("td", { class: "drawn" }, bar(share / most));
      part.append(
        el("h3", { text: "Before and after the last rebalancing" }),
        el("table", { class: "slots" }, el("thead", {}, el("tr", {}, ["Slot", `Version ${before.version}`, "", `Version ${look.version}`, ""].map((text) => (text ? el("th", { scope: "col", text }) : el("td"))))),
          el("tbody", {}, look.slots.map(({ slot }) => el("tr", {}, el("th", { scope: "row", text: String(slot) }), column(before.share[slot] ?? 0), percent(before.share[slot]), column(after.share[slot]), percent(after.share[slot]))))),
        el("p", { class: "note", text: "The share of objects of each slot under either version, by the router's sample." }));
    } else part.append(el("p", { class: "note", text: "The stream has not been rebalanced yet, or the previous version is no longer kept." }));
  }

  #ages() {
    const now = Date.now();
    const recent = this.app.ages.filter((each) => now - each.at < AGES);
    const types = [...new Set(recent.map((each) => each.type))].sort();
    const rows = types.map((type) => {
      const ages = recent.filter((each) => each.type === type).map((each) => each.age).sort((a, b) => a - b);
      const at = (share) => span(Math.max(0, ages[Math.min(ages.length - 1, Math.floor(share * ages.length))]));
      return el("tr", {}, el("th", { scope: "row", text: type }), ...[count(ages.length), at(0.5), at(0.95), at(0.99)].map((text) => el("td", { class: "n", text })));
    });
    if (this.app.asked !== null) rows.push(el("tr", {}, el("th", { scope: "row", text: "asked once" }), el("td", { class: "n", text: "the last" }), el("td", { class: "n", text: span(this.app.asked) }), el("td"), el("td")));
    this.parts.ages.replaceChildren(rows.length
      ? el("table", { class: "slots" }, el("thead", {}, el("tr", {}, ["Type", "Rows", "p50", "p95", "p99"].map((text) => el("th", { scope: "col", text })))), el("tbody", {}, rows))
      : el("p", { class: "empty", text: "No row has arrived at this page in the last minute. Register a query to see its latencies here." }));
  }

  #letters({ count: total, newest }) {
    const key = JSON.stringify([total, newest[0]]);
    if (key === this.letters) return;
    this.letters = key;
    const open = new Set([...this.parts.rejected.querySelectorAll("details[open]")].map((each) => each.dataset.reason));
    const reasons = new Map();
    for (const each of newest) {
      // what is the same but for the value is the same reason
      const reason = each.reason.replace(/: '?[^ ;]+'? is/, ": … is");
      reasons.set(reason, [...(reasons.get(reason) ?? []), each]);
    }
    const groups = [...reasons].map(([reason, letters]) => el("details", { "data-reason": reason, open: open.has(reason) },
      el("summary", {}, el("b", { text: count(letters.length) }), el("span", { text: reason }), el("time", { text: moment(letters[0].at) })),
      el("ul", {}, letters.slice(0, 5).map((each) => el("li", {}, el("p", { text: `${each.source}, offset ${each.offset}, line ${each.line}: ${each.reason}` }), el("code", { text: each.record }))))));
    this.parts.rejected.replaceChildren(
      el("p", { class: "figures-line", text: total ? `${count(total)} are kept by the broker${newest.length < total ? `; the newest ${count(newest.length)} by reason` : ", by reason"}.` : "None: all records sent were accepted." }),
      ...groups);
  }
}

const percent = (share) => el("td", { class: "n", text: `${(100 * (share ?? 0)).toFixed(0)} %` });

function swatch(hue) {
  const made = el("i");
  made.style.backgroundColor = hue;
  return made;
}
