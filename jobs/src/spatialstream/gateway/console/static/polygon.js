// Polygons as regions: read from GeoJSON, put together from places on the map, and changed at one of them.

import { ringsOf, rounded } from "./web/geometry.js";

const TYPES = ["Polygon", "MultiPolygon"];
const LINES = ["LineString", "MultiLineString", "Point", "MultiPoint"]; // of which there are no areas, and regions with a margin only

/** The geometry of a text or file of GeoJSON: of a Feature, or of the only one of a collection, its own. */
export const readPolygon = (text) => polygonIn(parsed(text), [...TYPES, ...LINES]);

/** Whether it has an inside. */
export const hasInside = (polygon) => !LINES.includes(polygon.type);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (problem) {
    throw new Error(`This is not GeoJSON: ${problem.message}`);
  }
}

function polygonIn(value, types = TYPES) {
  if (value?.type === "FeatureCollection") {
    if (value.features?.length !== 1) throw new Error(`This has ${value.features?.length ?? "no"} features; give one of them.`);
    [value] = value.features;
  }
  if (value?.type === "Feature") value = value.geometry;
  if (!types.includes(value?.type) || !Array.isArray(value.coordinates)) {
    throw new Error(`A Polygon, a MultiPolygon, or a Feature of one is needed; this is ${value?.type ? `a ${value.type}` : "none"}.`);
  }
  return { type: value.type, coordinates: value.coordinates };
}

/**
 * The polygons of a text or file of GeoJSON, each `{id, properties, geometry}`, and how many of its features are `skipped`,
 * because they are something else. Throws if there are none.
 */
export function readFeatures(text) {
  const value = parsed(text);
  if (value?.type !== "FeatureCollection" || value.features?.length === 1) {
    const feature = value?.type === "FeatureCollection" ? value.features[0] : value;
    return { features: [{ id: feature?.id, properties: feature?.type === "Feature" ? feature.properties : {}, geometry: polygonIn(value) }], skipped: 0 };
  }
  const every = Array.isArray(value.features) ? value.features : [];
  const features = every.filter((each) => TYPES.includes(each?.geometry?.type) && Array.isArray(each.geometry.coordinates));
  if (!features.length) throw new Error(`This has ${every.length ? `${every.length} features, and none is a polygon` : "no features"}.`);
  return { features: features.map(({ id, properties, geometry: { type, coordinates } }) => ({ id, properties, geometry: { type, coordinates } })), skipped: every.length - features.length };
}

/** A polygon of one ring. Its longitudes do not jump: from 179 the next place to the east is 181. */
export function polygonOf(places, space) {
  const ring = [];
  for (const place of places) ring.push(next(place, ring.at(-1), space));
  return { type: "Polygon", coordinates: [[...ring, ring[0]]] };
}

/** The places of a polygon that can be dragged, ring after ring. */
export const placesOf = (polygon) => ringsOf(polygon).flatMap((ring) => ring.slice(0, -1));

/** The polygon with another place instead of one of them. */
export function moved(polygon, i, to, space) {
  let left = i;
  const change = (ring) => {
    const at = left;
    left -= ring.length - 1;
    if (at < 0 || left >= 0) return ring;
    const open = ring.slice(0, -1);
    open[at] = next(to, ring[at], space);
    return [...open, open[0]];
  };
  const { type, coordinates } = polygon;
  return { type, coordinates: type === "Polygon" ? coordinates.map(change) : coordinates.map((part) => part.map(change)) };
}

function next([x, y], before, space) {
  const [inX, inY] = space.inside([x, y]);
  const turn = space.geographic && before ? 360 * Math.round((before[0] - inX) / 360) : 0;
  return [rounded(inX + turn), rounded(inY)];
}
