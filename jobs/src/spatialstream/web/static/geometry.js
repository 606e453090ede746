// A stream's space, and how it lies on a map in Web Mercator: a plane is laid into the middle of it, to scale.

const RADIUS = 6_371_008.8; // of the sphere on which the stream measures, m
const RAD = Math.PI / 180;
const HIGHEST = 85.051; // latitude that the map can show
const CORNERS = 96; // of a circle

const mercator = (lat) => 0.5 - Math.log(Math.tan(Math.PI / 4 + (Math.max(-HIGHEST, Math.min(HIGHEST, lat)) * RAD) / 2)) / (2 * Math.PI);
const latitude = (v) => (2 * Math.atan(Math.exp((0.5 - v) * 2 * Math.PI)) - Math.PI / 2) / RAD;

export class Space {
  /** @param {string} text "wgs84" or "planar:x0,y0,x1,y1" */
  constructor(text) {
    this.text = text;
    this.geographic = text === "wgs84";
    this.bounds = this.geographic ? [-180, -90, 180, 90] : text.slice("planar:".length).split(",").map(Number);
    const [west, south, east, north] = this.bounds;
    this.scale = 0.5 / Math.max(east - west, north - south);
    this.middle = [(west + east) / 2, (south + north) / 2];
    this.axes = this.geographic ? ["lon", "lat"] : ["x", "y"];
  }

  /** A point in the unit square of the map: 0 to 1 from west to east, and from north to south. */
  unit(x, y) {
    if (this.geographic) return [x / 360 + 0.5, mercator(y)];
    return [0.5 + (x - this.middle[0]) * this.scale, 0.5 - (y - this.middle[1]) * this.scale];
  }

  /** A point as a map in Web Mercator takes it: longitude and latitude. */
  onMap([x, y]) {
    if (this.geographic) return [x, Math.max(-HIGHEST, Math.min(HIGHEST, y))];
    const [u, v] = this.unit(x, y);
    return [(u - 0.5) * 360, latitude(v)];
  }

  /** The point that is at a place of that map; longitudes may go on beyond 180. */
  fromMap({ lng, lat }) {
    if (this.geographic) return [lng, lat];
    return [this.middle[0] + lng / 360 / this.scale, this.middle[1] - (mercator(lat) - 0.5) / this.scale];
  }

  /** The same point, or the nearest one, within the bounds. */
  inside([x, y]) {
    const [west, south, east, north] = this.bounds;
    return [this.geographic ? wrapped(x) : Math.max(west, Math.min(east, x)), Math.max(south, Math.min(north, y))];
  }

  distance([x1, y1], [x2, y2]) {
    if (!this.geographic) return Math.hypot(x2 - x1, y2 - y1);
    const h = Math.sin(((y2 - y1) * RAD) / 2) ** 2 + Math.cos(y1 * RAD) * Math.cos(y2 * RAD) * Math.sin(((x2 - x1) * RAD) / 2) ** 2;
    return 2 * RADIUS * Math.asin(Math.min(1, Math.sqrt(h)));
  }

  /** The outline of a region as a ring of points; it may go beyond longitude 180, never jumps. */
  outline({ box, circle }) {
    if (circle) return this.#circle(circle);
    const [west, south, east, north] = box;
    const right = this.geographic && west > east ? east + 360 : east;
    return [[west, south], [right, south], [right, north], [west, north], [west, south]];
  }

  #circle([x, y, radius]) {
    if (!this.geographic) return around().map((angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)]);
    const far = radius / RADIUS; // as an angle
    const colatitude = (90 - Math.abs(y)) * RAD;
    const ring = around().map((angle) => {
      const lat = Math.asin(Math.sin(y * RAD) * Math.cos(far) + Math.cos(y * RAD) * Math.sin(far) * Math.cos(angle));
      const lon = Math.atan2(
        Math.sin(angle) * Math.sin(far) * Math.cos(y * RAD),
        Math.cos(far) - Math.sin(y * RAD) * Math.sin(lat),
      );
      return [x + lon / RAD, lat / RAD];
    });
    if (far <= colatitude) return ring;
    // it holds a pole: the outline goes once around the Earth, and is closed along its edge
    const sorted = ring.slice(0, -1).sort((a, b) => a[0] - b[0]);
    const edge = y > 0 ? 90 : -90;
    const [first, last] = [sorted[0], sorted.at(-1)];
    const closed = [[last[0] - 360, last[1]], ...sorted, [first[0] + 360, first[1]]];
    return [...closed, [closed.at(-1)[0], edge], [closed[0][0], edge], closed[0]];
  }

  /** The rings of a region, each as `outline` has it; what an odd number of them encloses is the region. */
  rings(region) {
    return region.polygon ? ringsOf(region.polygon) : [this.outline(region)];
  }

  /** Corners of what a query is about: [[west, south], [east, north]]; null: everything. */
  extent({ region, at }) {
    if (region) return corners(this.rings(region).flat());
    if (!at) return null;
    const near = this.geographic ? 4 : 4 / 360 / this.scale;
    return [at.map((each) => each - near), at.map((each) => each + near)];
  }

  /** The region that holds everything. */
  get everywhere() {
    return { box: this.bounds };
  }

  isEverywhere(region) {
    return Boolean(region?.box) && region.box.every((each, i) => each === this.bounds[i]);
  }
}

export function corners(ring) {
  const [low, high] = [[Infinity, Infinity], [-Infinity, -Infinity]];
  for (const each of ring) {
    for (const i of [0, 1]) [low[i], high[i]] = [Math.min(low[i], each[i]), Math.max(high[i], each[i])];
  }
  return [low, high];
}

/** The rings of a GeoJSON geometry or Feature, of lines and points such without an inside; none of what is something else. */
export function ringsOf(polygon) {
  if (polygon?.type === "Feature") return ringsOf(polygon.geometry);
  const there = (line) => (Array.isArray(line) ? [...line, ...line.slice(0, -1).reverse()] : []); // and back: a ring without an inside
  switch (polygon?.type) {
    case "Point": return [[polygon.coordinates, polygon.coordinates]];
    case "MultiPoint": return (polygon.coordinates ?? []).map((each) => [each, each]);
    case "LineString": return [there(polygon.coordinates)];
    case "MultiLineString": return (polygon.coordinates ?? []).map(there);
  }
  const rings = polygon?.type === "MultiPolygon" ? polygon.coordinates?.flat() : polygon?.coordinates;
  return Array.isArray(rings) ? rings.filter(Array.isArray) : [];
}

const wrapped = (lng) => ((((lng + 180) % 360) + 360) % 360) - 180;

function around() {
  return Array.from({ length: CORNERS + 1 }, (_, i) => (2 * Math.PI * i) / CORNERS);
}

/** A number for people and URLs: no more digits than a place on the ground needs. */
export const rounded = (x, digits = 4) => Number(x.toFixed(digits));
