// Queries as records: built from the form, described in words, and encoded in the page's address.

import { KINDS } from "./kinds.js"; // written by the gateway, from its table of kinds
import { counted, distance, duration, place } from "./web/format.js";
import { corners, ringsOf, rounded } from "./web/geometry.js";

export const isContinuous = (query) => KINDS[query.type].continuous;
export const takes = (type, field) => KINDS[type].fields.includes(field);

/** What a type is called, without whether it is a snapshot query or a continuous one. */
export const nameOf = (type) => KINDS[type].title.split(",")[0];

const IN_FORM = ["region", "at", "k", "duration", "window", "step", "words", "radius", "halfLife"]; // required fields that the form asks for
const BEYOND = ["keywords", "any", "weights", "expansions", "weighting"]; // fields of ranked queries that it does not ask for

/**
 * The types that the form offers, by what they select: `once` is the type of a snapshot query, `continuous` that of a
 * continuous one. A type with another required field is shown, but not offered.
 */
export const SELECTIONS = new Map();
for (const [type, { selects, continuous, required }] of Object.entries(KINDS)) {
  if (!required.every((field) => IN_FORM.includes(field))) continue;
  SELECTIONS.set(selects, { ...SELECTIONS.get(selects), [continuous ? "continuous" : "once"]: type });
}

export const isRanked = (type) => takes(type, "words");

export const isInForm = (query) => Object.values(SELECTIONS.get(KINDS[query.type].selects) ?? {}).includes(query.type) && !(isRanked(query.type) && BEYOND.some((each) => query[each] !== undefined));

/** Where a query looks: its region, or the disk of one that ranks. */
export const regionOf = (query) => query.region ?? (isRanked(query.type) ? { circle: [...query.at, query.radius] } : undefined);

/**
 * How the rows of a type are shown: `objects` are matches, `nearest` a list of objects in order, `terms` words with their
 * counts, and `value` is anything else. The rows of all but continuous `objects` replace each other.
 */
export function shownAs(type) {
  const { rows } = KINDS[type];
  if (rows !== "object" && rows !== "objects") return rows === "terms" ? "terms" : "value";
  return takes(type, "at") ? "nearest" : "objects";
}

/**
 * Parses the words: words in a group must all be present, `|` or a comma separates alternatives, and a word with a minus
 * before it must be absent.
 */
export function parseWords(text) {
  const none = [];
  const groups = text
    .split(/[|,]|\sor\s/i)
    .map((group) => group.split(/\s+/).filter(Boolean))
    .map((group) => group.filter((word) => !(word.length > 1 && word.startsWith("-") && none.push(word.slice(1)))))
    .filter((group) => group.length);
  const words = groups.length > 1 ? { any: groups } : groups.length ? { keywords: groups[0] } : {};
  return none.length ? { ...words, none } : words;
}

/** Parses the words of a query that ranks: one of them is enough, and a word with a minus before it must be absent. */
export function parseRanked(text) {
  const { keywords, any, none } = parseWords(text);
  return { words: keywords ?? any?.flat() ?? [], ...(none && { none }) };
}

/** The inverse of both. */
export function wordsText(query) {
  if (query.words) return [...query.words, ...(query.none ?? []).map((each) => `-${each}`)].join(" ");
  const groups = query.any ?? (query.keywords?.length ? [query.keywords] : []);
  return [groups.map((each) => each.join(" ")).join(" | "), ...(query.none ?? []).map((each) => `-${each}`)].filter(Boolean).join(" ");
}

/** A query of an area with its name alone, as it was given: the stream knows the geometry. */
export function byName(query) {
  const { area, within } = query.region ?? {};
  return area ? { ...query, region: { area, ...(within && { within }) } } : query;
}

/** Describes a query in one line. */
export function summarize(query, space) {
  const shown = shownAs(query.type);
  const words = wordsText(query);
  const quoted = [words && `“${words}”`, query.where && (typeof query.where === "string" ? query.where : JSON.stringify(query.where))].filter(Boolean).join(" where ") || null;
  const region = regionOf(query);
  const where = region ? regionText(region, space) : `to ${place(query.at, space)}`;
  if (query.words) return { title: `${query.k} best about “${words}”${query.where ? ` where ${typeof query.where === "string" ? query.where : JSON.stringify(query.where)}` : ""}`, where };
  if (shown === "nearest") return { title: `${query.k} nearest${quoted ? ` ${quoted}` : ""}`, where };
  if (shown === "terms") return { title: `Top ${query.k} words${quoted ? ` with ${quoted}` : ""}`, where };
  if (shown === "value") return { title: `${nameOf(query.type)}${quoted ? ` of ${quoted}` : ""}`, where };
  return { title: quoted ?? "Every object", where };
}

export function regionText(region, space) {
  if (space.isEverywhere(region)) return "everywhere";
  if (region.circle) {
    const [x, y, radius] = region.circle;
    return `within ${distance(radius, space.geographic)} of ${place([x, y], space)}`;
  }
  const near = region.within ? `within ${distance(region.within, space.geographic)} of` : "in";
  if (region.area) return `${near} ${region.area}`;
  if (region.polygon) {
    const rings = ringsOf(region.polygon);
    const [low, high] = corners(rings.flat());
    const middle = low.map((each, i) => (each + high[i]) / 2);
    if (!/Polygon|Feature/.test(region.polygon.type)) return `${near} a ${region.polygon.type} around ${place(space.inside(middle), space)}`;
    return `${near} a polygon of ${counted(rings.reduce((sum, ring) => sum + ring.length - 1, 0), "corner")} around ${place(space.inside(middle), space)}`;
  }
  const [west, south, east, north] = region.box;
  return `${place([west, south], space)} to ${place([east, north], space)}`;
}

/** Describes how far a snapshot query looks back, or how long a continuous query lasts. */
export function timing(query) {
  const ms = (value) => (typeof value === "number" ? `${value}ms` : value);
  const long = (value) => duration(ms(value)).replace(/^(?=[a-z])/, "a ").replace("a hour", "an hour");
  const aging = query.halfLife === undefined ? "" : `, half-life of ${long(query.halfLife)}`;
  if (query.between) return `between ${query.between.map((each) => new Date(each).toISOString().slice(0, 16).replace("T", " ")).join(" and ")}`;
  if (!isContinuous(query)) return (query.duration === undefined ? "of all times" : `in the last ${duration(ms(query.duration))}`) + aging;
  const until = query.duration === undefined ? "until cancelled" : `for ${long(query.duration)}`;
  const window = query.window === undefined ? [] : [`of the last ${duration(ms(query.window))}`];
  const step = query.step === undefined ? [] : [`every ${duration(ms(query.step))}`];
  return [...window, ...step, until].join(", ") + aging;
}

// ------------------------------------------------------------------------------------------------------ the address

export const MOST = 40; // queries in an address
const SAID = ["stream", "view", "map", "q", "follow", "replay"];

/** Whether the fragment is the page's state, and not an anchor. */
export function isAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  return SAID.some((each) => given.has(each));
}

/** Parses the fragment of the address; unknown parts are ignored. A token is removed from it. */
export function readAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const said = { stream: given.get("stream"), view: given.get("view") === "inside" ? "inside" : "live", map: null, queries: [], all: given.get("follow") === "all", replay: null };
  const numbers = (given.get("map") ?? "").split(",").map(Number);
  if (numbers.length === 3 && numbers.every(Number.isFinite) && Math.abs(numbers[1]) <= 90) {
    said.map = { center: [numbers[0], numbers[1]], zoom: numbers[2] };
  }
  if (given.has("replay")) said.replay = { id: given.get("replay"), at: Number(given.get("at")) || null, span: given.get("span") };
  try {
    const queries = JSON.parse(given.get("q") ?? "[]");
    said.queries = queries.slice(0, MOST).filter((each) => each && Object.hasOwn(KINDS, each.type) && (!isContinuous(each) || typeof each.id === "string"));
  } catch {
    // the link was truncated or changed
  }
  return said;
}

export function writeAddress({ stream, view, map, queries, replay }) {
  const said = new URLSearchParams();
  if (stream) said.set("stream", stream);
  if (view === "inside") said.set("view", view);
  if (map) said.set("map", [rounded(map.center[0], 3), rounded(map.center[1], 3), rounded(map.zoom, 2)].join());
  if (queries.length) said.set("q", JSON.stringify(queries.map(byName)));
  if (replay) {
    said.set("replay", replay.id);
    said.set("span", replay.span);
    if (replay.at !== null) said.set("at", replay.at);
  }
  return `#${said.toString().replaceAll("%2C", ",").replaceAll("%3A", ":")}`;
}
