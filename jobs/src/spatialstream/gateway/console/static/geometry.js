// A stream's space on the map. The map is Web Mercator; a plane is laid into the middle of it, to scale.

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

  /** A point as the map takes it: longitude and latitude. */
  onMap([x, y]) {
    if (this.geographic) return [x, Math.max(-HIGHEST, Math.min(HIGHEST, y))];
    const [u, v] = this.unit(x, y);
    return [(u - 0.5) * 360, latitude(v)];
  }

  /** The point of the space that is at a place of the map. */
  fromMap({ lng, lat }) {
    if (this.geographic) return [wrapped(lng), Math.max(-90, Math.min(90, lat))];
    const [west, south, east, north] = this.bounds;
    const x = this.middle[0] + (lng / 360) / this.scale;
    const y = this.middle[1] - (mercator(lat) - 0.5) / this.scale;
    return [Math.max(west, Math.min(east, x)), Math.max(south, Math.min(north, y))];
  }

  distance([x1, y1], [x2, y2]) {
    if (!this.geographic) return Math.hypot(x2 - x1, y2 - y1);
    const h = Math.sin(((y2 - y1) * RAD) / 2) ** 2 + Math.cos(y1 * RAD) * Math.cos(y2 * RAD) * Math.sin(((x2 - x1) * RAD) / 2) ** 2;
    return 2 * RADIUS * Math.asin(Math.min(1, Math.sqrt(h)));
  }

  /** The outline of a region as a ring of places of the map; it may go beyond longitude 180, never jumps. */
  ring(region) {
    return region.box ? this.#box(region.box) : this.#circle(region.circle);
  }

  #box([west, south, east, north]) {
    const right = this.geographic && west > east ? east + 360 : east;
    return [[west, south], [right, south], [right, north], [west, north], [west, south]].map((each) => this.onMap(each));
  }

  #circle([x, y, radius]) {
    if (!this.geographic) {
      return around().map((angle) => this.onMap([x + radius * Math.cos(angle), y + radius * Math.sin(angle)]));
    }
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
    if (far <= colatitude) return ring.map((each) => this.onMap(each));
    // it holds a pole: the outline goes once around the Earth, and is closed along the edge of the map
    const sorted = ring.slice(0, -1).sort((a, b) => a[0] - b[0]);
    const edge = y > 0 ? HIGHEST : -HIGHEST;
    const [first, last] = [sorted[0], sorted.at(-1)];
    const closed = [[last[0] - 360, last[1]], ...sorted, [first[0] + 360, first[1]]];
    return [...closed, [closed.at(-1)[0], edge], [closed[0][0], edge], closed[0]].map((each) => this.onMap(each));
  }

  /** Corners of the map's view that hold what a question is about: [[west, south], [east, north]]; null: everything. */
  extent(query) {
    if (query.region) return corners(this.ring(query.region));
    if (query.at) return this.#around(query.at);
    return null;
  }

  #around(at) {
    const [lng, lat] = this.onMap(at);
    return [[lng - 4, Math.max(-HIGHEST, lat - 3)], [lng + 4, Math.min(HIGHEST, lat + 3)]];
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
  const xs = ring.map((each) => each[0]);
  const ys = ring.map((each) => each[1]);
  return [[Math.min(...xs), Math.min(...ys)], [Math.max(...xs), Math.max(...ys)]];
}

export const wrapped = (lng) => ((((lng + 180) % 360) + 360) % 360) - 180;

function around() {
  return Array.from({ length: CORNERS + 1 }, (_, i) => (2 * Math.PI * i) / CORNERS);
}

/** A number for people and URLs: no more digits than a place on the ground needs. */
export const rounded = (x, digits = 4) => Number(x.toFixed(digits));
