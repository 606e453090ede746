// The list of the registered queries of the stream, by any client, each of which can be followed.

import { Problem, call, streamPath } from "./api.js";
import { summarize } from "./query.js";
import { el } from "./web/dom.js";
import { counted, moment } from "./web/format.js";
import { item } from "./web/lists.js";

const LISTED = 50;

export class RegisteredQueries {
  /** @param {HTMLElement} element a `details` @param {object} app the page */
  constructor(element, app) {
    [this.element, this.app] = [element, app];
    this.list = el("div", { class: "listed" });
    element.append(el("summary", { text: "Registered queries" }), this.list);
    element.addEventListener("toggle", () => element.open && this.#read());
  }

  /** For another stream. */
  refresh() {
    this.element.open = false;
    this.element.hidden = !this.app.rights.has("watch");
    this.list.replaceChildren();
  }

  async #read() {
    this.#say("Loading …");
    try {
      const said = await call("GET", streamPath(this.app.stream, `queries?limit=${LISTED}`));
      if (!said.queries.length) this.#say("No query is registered yet.");
      else this.list.replaceChildren(el("ul", {}, said.queries.map((each, i) => this.#item(each, said.so_far[i]))), said.next ? el("p", { class: "note", text: `The first ${LISTED} are shown; a link may name others.` }) : "");
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.#say(`The registered queries cannot be listed: ${problem.message}.`);
    }
  }

  #say(text) {
    this.list.replaceChildren(el("p", { class: "empty", text }));
  }

  #item({ by, ...query }, soFar) {
    const { title, where } = summarize(query, this.app.space);
    const who = by ? [" by ", el("bdi", { text: by })] : []; // whoever that is, its letters stay among themselves
    const { geometry } = soFar;
    const changed = geometry === "outdated" ? "; its area has another geometry now" : geometry === "deleted" ? "; its area is deleted" : "";
    const renew = geometry === "outdated" && this.app.unwritableReason() === null
      ? el("button", { type: "button", class: "link", text: `Register the queries of ${query.region.area} anew`, onclick: () => this.#renew(query.region.area) }) : null;
    return el("li", { "data-geometry": geometry }, item(`${title}, ${where}`, [`since ${moment(query.t)}`, ...who, `; ${had(soFar)}${changed}`], { class: "object tall", title: "Follow it here", onclick: () => this.app.join(query) }), renew);
  }

  async #renew(area) {
    await this.app.areas.renew(area);
    await this.#read();
  }
}

/** How many rows a query has had, in words. */
function had({ rows, last_row: last }) {
  if (!rows) return "no rows yet";
  return `${counted(rows, "row")}, the last at ${moment(last)}`;
}
