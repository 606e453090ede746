// What is found, as lists and bars.

import { el } from "./dom.js";
import { count } from "./format.js";

/** A line about an object, to be chosen. @param {string|Element[]} more what is said at its end */
export function item(text, more, { kind = "text", ...attributes }) {
  return el("button", { type: "button", class: "object", ...attributes }, el("span", { class: kind, text }), el("span", { class: "more" }, more));
}

/** A card about an object that says what it said: its text, its properties as [name, value], and when that was. */
export function spoken(said, text, about, more, attributes) {
  const properties = said.filter(([name]) => name !== "text");
  return el("button", { type: "button", class: "object spoken", ...attributes },
    text ? el("span", { class: "text", text }) : null,
    properties.length ? el("span", { class: "properties" }, properties.map(([name, value]) => el("span", {}, el("i", { text: name }), ` ${value}`))) : null,
    el("span", { class: "more" }, about, more ? ` · ${more}` : null));
}

/** The rows of a table of terms: each with what is drawn of it, and how many objects it is in. */
export function termRows(terms) {
  return terms.map(({ term, drawn, n }) => el("tr", {}, el("th", { scope: "row", title: term, text: term }), el("td", { class: "drawn" }, drawn), el("td", { class: "n", text: count(n) })));
}

/** Names of its columns, for who does not see them. */
export const termHead = (...names) => el("thead", { class: "hidden" }, el("tr", {}, names.map((text) => el("th", { text }))));

/** A bar of a share, 0 to 1. */
export function bar(share, kind = "") {
  return el("svg:svg", { class: `share ${kind}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, el("svg:rect", { width: Math.max(0, Math.min(100, 100 * share)), height: 8 }));
}

/** Bars from a list of numbers, as one path. */
export function bars(values, width, height, most = Math.max(1, ...values)) {
  const step = width / values.length;
  const path = values.map((value, i) => {
    const tall = value > 0 ? Math.max(1, (value / most) * height) : 0;
    return tall ? `M${(i * step).toFixed(2)} ${height}v${(-tall).toFixed(2)}h${Math.max(0.6, step - 0.7).toFixed(2)}v${tall.toFixed(2)}z` : "";
  });
  return el("svg:svg", { class: "bars", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, el("svg:path", { d: path.join("") }));
}
