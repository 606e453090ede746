// The page of a run: its queries and answers, at each moment, on a map and on a timeline.

import { CanvasMap, shape } from "../web/static/canvas.js";
import { colour, el, say, tell } from "../web/static/dom.js";
import { count, counted, distance, place, utc } from "../web/static/format.js";
import { bar, bars, item, termHead, termRows } from "../web/static/lists.js";
import { Timeline } from "./timeline.js";

const PLAYED = 24; // s that all of the time takes
const LISTED = 100; // objects, and as many more whenever one asks for more
const [TERMS, OFTEN] = [60, 14]; // of a row, and of all of them

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
// KINDS has of each type: its title, a summary, what a row is called (`row`), the field of the answer (`rows`), `continuous`
const { places, queries, time, space, kinds: KINDS } = data;
const extent = Math.max(1, time.last - time.first);
const brief = (t) => utc(t, extent);
const at = (i) => [places.x[i], places.y[i]];
const kindOf = (query) => KINDS[query.type];
const ofTerms = (query) => kindOf(query).rows === "terms";
/** Whether each row is one more object; the rows of other continuous queries replace each other. */
const addsUp = (query) => kindOf(query).rows === "object";
const replaces = (query) => kindOf(query).continuous && !addsUp(query);
/** Whether rows are answers of several objects: all of them, or the nearest. */
const ofObjects = (query) => kindOf(query).rows === "objects";
const tinted = (type) => `--colour: var(--${type}, var(--soft))`; // a type without a colour of its own is grey

for (const query of queries) query.shape = shape(query.rings, space.geographic);

// ------------------------------------------------------------------------------------------------------------- state

const state = { query: -1, from: time.first, until: time.last, item: -1, hover: -1, playing: false, listed: LISTED };
let [visible, matched, css] = [[], [], {}]; // numbers of places; colours

const chosen = () => queries[state.query];
const whole = () => state.from === time.first && state.until === time.last;

/** The row that holds at the chosen time, of queries whose rows replace each other; -1: none does yet. */
function current(query) {
  let [low, high] = [0, query.rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (query.rows[middle].t <= state.until) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Numbers of the places that belong to the answer at the chosen time. */
function matches(query) {
  if (!query) return [];
  const row = query.rows[current(query)];
  if (addsUp(query)) return query.rows.filter((each) => each.t >= state.from && each.t <= state.until).map((each) => each.o[0]);
  if (!row) return [];
  if (query.at) return row.o;
  if (ofObjects(query)) return row.o.filter((i) => places.t[i] >= state.from);
  const [after, first] = [row.t - query.window, kindOf(query).continuous ? query.t : -Infinity];
  return query.counted.filter((i) => places.t[i] > after && places.t[i] >= first && places.t[i] <= row.t);
}

/** Shows what is chosen, wherever it is shown. */
function update() {
  const query = chosen();
  visible = places.t.flatMap((t, i) => (t >= state.from && t <= state.until ? [i] : []));
  matched = matches(query);
  showAnswer();
  map.redraw();
  timeline.show(state.from, state.until, query && { span: query.span, times: timesOf(query) });
}

function recolour() {
  css = Object.fromEntries(["ink", "soft", "panel", "warm", ...Object.keys(KINDS)].map((name) => [name, colour(name)]));
  map.recolour();
}

// --------------------------------------------------------------------------------------------------------------- map

const leaves = (data.tree?.boxes ?? []).map(([w, s, e, n], i) => [shape([[w, s, e, s, e, n, w, n]]), data.tree.colours[data.tree.slots[i]]]);
const map = new CanvasMap($("map"), "Map of objects and query regions", {
  paint(context, shift) {
    const query = chosen();
    if ($("show-tree").checked) for (const [leaf, hue] of leaves) map.region(context, shift, leaf, { hue, filled: 0.1, opacity: 0.75, width: 1 });
    drawRegions(context, shift, query);
    const dots = (numbers, painted, radius, opacity) => {
      Object.assign(context, { fillStyle: painted, globalAlpha: opacity });
      map.dots(context, shift, numbers.map(at), radius);
      context.fill();
    };
    if ($("show-objects").checked) {
      dots(visible, css.soft, 2.1, query ? 0.35 : 0.6);
      const since = state.until - extent * 0.015;
      if (state.until < time.last) dots(visible.filter((i) => places.t[i] > since), css.warm, 3.2, 0.85);
    }
    if (query?.at) {
      Object.assign(context, { strokeStyle: css[query.type], lineWidth: 1.2, globalAlpha: 0.75 });
      map.links(context, shift, query.at, matched.map(at));
      context.stroke();
    }
    if (query) {
      dots(matched, css[query.type], ofTerms(query) ? 2.8 : 4.2, ofTerms(query) ? 0.7 : 1);
      Object.assign(context, { strokeStyle: css.panel, lineWidth: 1 });
      if (!ofTerms(query)) context.stroke();
      if (query.at) map.star(context, shift, query.at, 9, css[query.type]);
    }
    Object.assign(context, { strokeStyle: css.ink, lineWidth: 2, globalAlpha: 1 });
    map.dots(context, shift, [state.item, state.hover].filter((i) => i >= 0).map(at), 7.5);
    context.stroke();
  },
  pointed(point) {
    const found = point ? placeAt(point) : -1;
    map.canvas.classList.toggle("over", point !== null && (found >= 0 || queryAt(point) >= 0));
    about(found, point);
    hover(found);
  },
  clicked(point) {
    const found = placeAt(point);
    if (found < 0) {
      const query = queryAt(point);
      if (query >= 0) select(query, false);
      return;
    }
    state.item = found;
    about(found, point);
    map.redraw();
  },
});

function drawRegions(context, shift, query) {
  const [west, south, east, north] = space.bounds;
  const wide = 0.25 * (east - west) * (north - south);
  for (const one of queries) {
    const mine = one === query;
    if (!mine && !$("show-regions").checked) continue;
    const filled = mine || (!query && one.shape.area < wide && queries.length <= 40);
    map.region(context, shift, one.shape, {
      hue: css[one.type], filled: !filled ? 0 : mine && one.shape.area < wide ? 0.14 : 0.06, opacity: mine ? 1 : query ? 0.35 : 0.75, width: mine ? 2.2 : 1.1,
    });
    if (one.at && !mine) map.star(context, shift, one.at, 5.5, css[one.type], query ? 0.45 : 0.9);
  }
}

function hover(i) {
  if (state.hover === i) return;
  state.hover = i;
  map.redraw();
}

/** The place under the pointer, one of the answer rather than another; -1: none is near enough. */
function placeAt([px, py]) {
  const answer = new Set(matched);
  let [best, least] = [-1, 81];
  for (const shift of map.turns()) {
    for (const i of $("show-objects").checked ? [...visible, ...matched] : matched) {
      const far = (map.toX(places.x[i], shift) - px) ** 2 + (map.toY(places.y[i]) - py) ** 2;
      const rank = answer.has(i) ? far / 2 : far;
      if (rank < least) [best, least] = [i, rank];
    }
  }
  return best;
}

/** The query whose point or smallest region is under the pointer. */
function queryAt(point) {
  let [best, least] = [-1, Infinity];
  queries.forEach(({ at: to, shape: region }, q) => {
    for (const shift of map.turns()) {
      const near = to ? Math.hypot(map.toX(to[0], shift) - point[0], map.toY(to[1]) - point[1]) < 10 : map.isIn(region, point, shift);
      if (near && region.area < least) [best, least] = [q, region.area];
    }
  });
  return best;
}

/** Says what is known of a place. */
function about(i, point) {
  if (i < 0) {
    tell($("tip"), null);
    return;
  }
  const query = chosen();
  const row = query?.at ? query.rows[current(query)] : null;
  const rank = row?.d ? row.o.indexOf(i) : -1;
  tell($("tip"), [
    places.label[i] || "(no text)", ...(rank < 0 ? [] : [`${rank + 1}. nearest, ${distance(row.d[rank], space.geographic)}`]),
    utc(places.t[i]), place(at(i), space), `id ${places.id[i]}`,
  ], point);
}

/** The view that has a query and its answer within it, across the antimeridian if that is shorter. */
function viewOf(query) {
  const points = query.rings.flatMap((ring) => ring.flatMap((x, i) => (i % 2 ? [] : [[x, ring[i + 1]]])));
  if (query.at) points.push(query.at, ...matches(query).map(at));
  if (!points.length) return map.everything();
  const ends = (list) => [Math.min(...list), Math.max(...list)];
  const xs = points.map(([x]) => x);
  const [south, north] = ends(points.map(([, y]) => y));
  let [west, east] = ends(xs);
  if (space.geographic) {
    const [a, b] = ends(xs.map((x) => (x < 0 ? x + 360 : x)));
    if (b - a < east - west) [west, east] = [a, b];
    if (east - west > 300) [west, east] = [-180, 180];
  }
  return map.around([[west, south], [east, north]]);
}

// -------------------------------------------------------------------------------------------------------------- time

const timeline = new Timeline($("timeline"), time, period);

/** When something came that a query has found, or its answer was another one. */
function timesOf(query) {
  const once = !kindOf(query).continuous;
  return query.rows.flatMap((row) => (once && ofObjects(query) ? row.o.map((i) => places.t[i]) : row.t));
}

/** Shows a period; what was played stops. */
function period(from, until) {
  play(false);
  setPeriod(from, until);
}

function setPeriod(from, until) {
  state.from = Math.max(time.first, Math.round(from));
  state.until = Math.min(time.last, Math.round(until));
  $("until").value = ((state.until - time.first) / extent) * 1000;
  const since = state.from === time.first ? "up to" : `${brief(state.from)} to`;
  const text = whole() ? "whole period" : `${since} ${brief(state.until)}`;
  say($("now"), text);
  $("until").setAttribute("aria-valuetext", text);
  $("all-time").hidden = whole();
  update();
}

function play(on) {
  state.playing = on;
  say($("play"), on ? "❚❚ Pause" : "▶ Play");
  if (!on) return;
  if (state.until >= time.last) setPeriod(time.first, time.first);
  let before = performance.now();
  const step = (now) => {
    if (!state.playing) return;
    const until = state.until + ((now - before) / 1000 / PLAYED) * extent;
    if (until - state.until >= 1 || until >= time.last) {
      setPeriod(state.from, until);
      before = now;
    }
    if (state.until >= time.last) play(false);
    else requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

// ----------------------------------------------------------------------------------------------------------- queries

function listQueries() {
  const wanted = $("find").value.trim().toLowerCase();
  const parts = [];
  let type = "";
  queries.forEach((query, q) => {
    if (!`${query.id} ${query.title} ${query.says} ${query.type} ${kindOf(query).title}`.toLowerCase().includes(wanted)) return;
    if (query.type !== type) parts.push(el("h3", { style: tinted(query.type) }, el("b", { text: kindOf(query).title }), ` (${query.type})`));
    type = query.type;
    const total = ofObjects(query) && !query.at ? query.rows.reduce((sum, row) => sum + row.n, 0) : query.total;
    parts.push(item(query.title || query.id, `${query.title ? `${query.id} · ` : ""}${counted(total, ...KINDS[type].row)}`, {
      class: "object tall query", style: tinted(type), "data-query": q, "aria-pressed": String(q === state.query), onclick: () => select(q === state.query ? -1 : q),
    }));
  });
  $("queries").replaceChildren(...(parts.length ? parts : [el("p", { class: "note", text: wanted ? "No query like that." : "No queries." })]));
}

function select(q, move = true) {
  Object.assign(state, { query: q, item: -1, listed: LISTED });
  for (const button of $("queries").querySelectorAll("button")) {
    const mine = Number(button.dataset.query) === q;
    button.setAttribute("aria-pressed", String(mine));
    if (mine && !move) button.scrollIntoView({ block: "nearest" });
  }
  const query = chosen();
  document.documentElement.style.setProperty("--colour", query ? `var(--${query.type}, var(--soft))` : "var(--soft)");
  say($("legend-matches"), !query ? "matches of a chosen query" : replaces(query) && ofObjects(query) ? "moments at which the answer changed" : ofTerms(query) ? "moments of an answer" : "matches");
  $("clear").hidden = !query;
  $("found").scrollTop = 0;
  answered = "";
  update();
  if (move) map.fly(query ? viewOf(query) : map.everything());
}

// ----------------------------------------------------------------------------------------------------------- answers

let answered = ""; // what is shown of which query

function showAnswer() {
  const query = chosen();
  const key = [state.query, query && current(query), state.from, state.listed].join();
  if (key === answered) return;
  answered = key;
  const open = $("found").querySelector("details")?.open;
  if (!query) {
    say($("found-title"), "Answers");
    $("found").replaceChildren(...introduction());
    return;
  }
  $("found-title").replaceChildren(el("span", { class: "badge", text: `${kindOf(query).title} (${query.type})` }), query.title || query.id);
  $("found").replaceChildren(
    el("p", { text: query.says }),
    ...(replaces(query) ? [stepper(query)] : []),
    ...(ofTerms(query) ? termAnswer(query) : objectAnswer(query)),
    el("details", { open }, el("summary", { text: "The query as it was written" }), el("pre", { text: JSON.stringify(query.record, null, 1).replace(/\n\s*/g, " ") })));
}

function introduction() {
  const kinds = Object.entries(KINDS).filter(([type]) => queries.some((query) => query.type === type));
  return [
    el("p", { text: "Choose a query: from the list, or by its region on the map. The wheel zooms the map once you have clicked it." }),
    el("dl", { class: "types" }, kinds.flatMap(([type, { title, summary }]) => [el("dt", { style: tinted(type), text: `${title} (${type})` }), el("dd", { text: summary })])),
  ];
}

function stepper(query) {
  const [now, last, kind] = [current(query), query.rows.length - 1, kindOf(query).row[0]];
  const button = (text, name, i, which) => el("button", { type: "button", class: "quiet", disabled: i < 0 || i > last, "aria-label": `${name} ${kind}`, text, onclick: () => {
    period(time.first, query.rows[i].t);
    const both = [...$("found").querySelectorAll(".stepper button")];
    (both[which].disabled ? both[1 - which] : both[which]).focus();
  } });
  const text = now < 0 ? `no ${kind} yet` : `${kind} ${count(query.total - last + now)} of ${count(query.total)} · ${brief(query.rows[now].t)}`;
  return el("div", { class: "stepper" }, button("◀", "Previous", now - 1, 0), el("span", { text }), button("▶", "Next", now + 1, 1));
}

function objectAnswer(query) {
  const row = query.rows[current(query)];
  if (!row) return [el("p", { class: "note", text: query.rows.length ? "Nothing yet at this time." : "Nothing was found." })];
  const numbers = addsUp(query) ? [...matched].reverse() : matched;
  const before = replaces(query) && ofObjects(query) ? query.rows[current(query) - 1] : null;
  const shown = numbers.slice(0, state.listed).map((i, rank) => {
    const far = row.d && query.at ? `${distance(row.d[rank], space.geographic)} · ` : "";
    const more = [`${far}${brief(places.t[i])} `, before && !before.o.includes(i) ? el("b", { text: "new" }) : ""];
    const [over, away] = [() => hover(i), () => hover(-1)];
    return el("li", {}, item(places.label[i] || places.id[i], more, { class: "object tall", onmouseenter: over, onfocus: over, onmouseleave: away, onblur: away, onclick: () => goTo(i) }));
  });
  const left = numbers.length - shown.length;
  const value = row.value === undefined ? "" : `${JSON.stringify(row.value)}: `;
  let kept = "";
  if (row.n > row.o.length) kept = ` (of ${count(row.n)} in all: the page keeps the first ${count(row.o.length)})`;
  else if (addsUp(query) && query.total > query.rows.length) kept = ` (of ${count(query.total)} in all: the page keeps the last ${count(query.rows.length)})`;
  const more = () => {
    state.listed += LISTED;
    showAnswer();
  };
  return [
    el("p", { class: "note", text: `${value}${counted(numbers.length, "object")}${kept}${addsUp(query) ? ", latest first" : query.at ? ", nearest first" : ""}` }),
    el("ol", { class: "found-objects" }, shown),
    left > 0 ? el("button", { type: "button", class: "quiet", text: `show ${count(Math.min(LISTED, left))} more`, onclick: more }) : "",
  ];
}

function goTo(i) {
  state.item = i;
  const [west, , east] = space.bounds;
  map.fly({ x: places.x[i], y: places.y[i], scale: Math.max(map.view.scale, (12 * map.width) / (east - west)) });
}

/** The terms of a row, and those that were often among the top, each with its steps; which are places to go to. */
function termAnswer(query) {
  const now = current(query);
  if (now < 0) return [el("p", { class: "note", text: "Nothing yet at this time." })];
  const steps = query.rows.map((row) => new Map(row.terms));
  const most = Math.max(1, ...steps.flatMap((step) => [...step.values()]));
  const sums = new Map();
  for (const [term, n] of query.rows.flatMap((row) => row.terms)) sums.set(term, (sums.get(term) ?? 0) + n);
  const often = [...sums].sort((a, b) => b[1] - a[1]).slice(0, OFTEN).map(([term]) => term);
  const terms = [...new Set([...[...steps[now].keys()].slice(0, TERMS), ...often])];
  const series = (term) => {
    const under = ({ currentTarget, clientX }) => {
      const { left, width } = currentTarget.getBoundingClientRect();
      return Math.max(0, Math.min(steps.length - 1, Math.floor(((clientX - left) / width) * steps.length)));
    };
    const told = (j) => `${brief(query.rows[j].t)} · ${term}: ${steps[j].has(term) ? counted(steps[j].get(term), "object") : "not among the top"}`;
    return el("div", { class: "steps", onclick: (event) => period(time.first, query.rows[under(event)].t), onmousemove: (event) => (event.currentTarget.title = told(under(event))) },
      bars(steps.map((step) => step.get(term) ?? 0), 144, 20, most), el("i", { style: `left: ${(100 * now) / steps.length}%; width: ${100 / steps.length}%` }));
  };
  const rows = terms.map((term) => {
    const n = steps[now].get(term) ?? 0;
    return { term, n, drawn: steps.length > 1 ? series(term) : el("span", { class: "bar" }, bar(n / most)) };
  });
  return [
    steps[now].size ? "" : el("p", { class: "note", text: "No terms: no object was there to count." }),
    el("table", { class: "terms" }, termHead("Term", steps.length > 1 ? "By step" : "Share", "Objects"), el("tbody", {}, termRows(rows))),
  ];
}

// -------------------------------------------------------------------------------------------------------------- head

function figures() {
  const { objects, queries: asked, results, rejected, seconds } = data.summary;
  const types = Object.entries(results).map(([type, n]) => el("span", { style: tinted(type) }, el("b", { text: type, title: KINDS[type].title }), ` ${count(n)}`));
  const said = {
    objects, queries: asked, "result rows": Object.values(results).reduce((sum, n) => sum + n, 0), rejected,
    seconds: seconds?.toFixed(1), "objects/s": seconds > 0 ? objects / seconds : undefined,
  };
  for (const [name, value] of Object.entries(said)) {
    if (value !== undefined) $("figures").append(el("div", {}, el("dt", { text: name }), el("dd", { text: typeof value === "number" ? count(value) : value })));
  }
  if (types.length) $("figures").children[2].after(el("div", { class: "wide" }, el("dt", { text: "by type" }), el("dd", {}, types)));
  say($("period"), time.counts.some(Boolean) ? `${brief(time.first)} to ${brief(time.last)} UTC` : "no objects");
  const drawn = places.t.length;
  say($("parts"), [
    data.objects > drawn ? `The map draws ${count(drawn)} of ${counted(data.objects, "object")}: all that a query found, and a sample of the others. ` : "",
    data.asked > queries.length ? `The list holds ${count(queries.length)} of ${counted(data.asked, "query", "queries")}. ` : "",
  ].join(""));
  $("credit").hidden = !data.land.length;
  $("find").hidden = queries.length <= 20;
  $("tree-card").hidden = $("show-tree-label").hidden = !data.tree;
}

figures();
map.margin = $("layers").offsetWidth;
map.show(space, data.land);
recolour();
listQueries();
setPeriod(time.first, time.last);
select(-1, false);

for (const name of ["show-objects", "show-regions", "show-tree"]) $(name).addEventListener("change", () => map.redraw());
$("until").addEventListener("input", ({ target: { value } }) => {
  const until = Number(value) >= 1000 ? time.last : time.first + (Number(value) / 1000) * extent;
  period(Math.min(state.from, until), until);
});
$("all-time").addEventListener("click", () => period(time.first, time.last));
$("play").addEventListener("click", () => play(!state.playing));
$("clear").addEventListener("click", () => select(-1));
$("find").addEventListener("input", listQueries);
document.addEventListener("keydown", (event) => event.key === "Escape" && state.query >= 0 && select(-1));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  recolour();
  answered = "";
  update();
});
