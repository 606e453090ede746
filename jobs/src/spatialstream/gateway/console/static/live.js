// What both maps of the console have: objects that pass or are found, the regions of queries, which light up, and what is
// dragged. One is drawn by the graphics card (map.js), one on a plain canvas (flat.js). Places are [x, y] of the stream's space,
// and longitudes may go on beyond 180. A map has besides
//
//   show(space), recolour(), setLeaves(leaves), redraw()   the space, another theme, the leaves of the tree, something is new
//   fit(extent, ms), goTo(place), view, center, corners    the part that is shown
//   at(pixel), pixel(place), surface                       places, px, and the element on which these are
//   unit(place), wide, lag                                 a place in the unit square of the map, px that is wide, ms to draw it

import { drawShape, fitted, pointOn, shape } from "./web/canvas.js";
import { colour, el, still } from "./web/dom.js";

const LABEL = "11px system-ui, sans-serif"; // of areas
const SLOWEST = 1_500; // ms between two pictures, where the machine takes long to draw one

export class LiveMap {
  constructor(passing, past) {
    [this.passing, this.past, this.points] = [passing, past, passing]; // the last are those that are shown
    [this.space, this.regions, this.leaves, this.draft, this.placed] = [null, new Map(), [], null, new Set()];
    this.areas = [];
    this.overlay = el("canvas", { class: "overlay", "aria-hidden": "true" });
    past.hidden = true;
  }

  /** Draws again while something is new, `seconds` long: often enough to be seen moving, and no more than the machine can. */
  animate(frame, seconds) {
    const { points } = this;
    if (document.visibilityState === "visible" && points.now() - points.newest < (still() ? 30 : seconds)) this.redraw();
    setTimeout(() => this.animate(frame, seconds), Math.max(still() ? 500 : frame, Math.min(SLOWEST, 3 * this.lag)));
  }

  /** Of loads, from the least to the most. */
  get ramp() {
    return [0, 1, 2, 3, 4, 5].map((i) => colour(`ramp-${i}`));
  }

  /** What only passes has one colour. */
  get warm() {
    return [...channels(colour("warm")), 230];
  }

  /** Shows what has been instead of what passes, or that again. */
  replay(on) {
    this.past.clear();
    [this.passing.hidden, this.past.hidden, this.points] = [on, !on, on ? this.past : this.passing];
    this.redraw();
  }

  // ---------------------------------------------------------------------------------------------------------- objects

  /** An object that only passes. */
  pass(x, y, about) {
    this.points.add(this.unit([x, y]), this.painted, 3.6, about);
  }

  /** An object that a query has found; what is given is for {@link unmark}. */
  mark(x, y, hue, about) {
    return this.points.add(this.unit([x, y]), [...channels(hue), 255], 6.5, about, true);
  }

  unmark(i, about) {
    this.points.remove(i, about);
  }

  /** What is under a pixel, if anything is near enough. */
  under(pixel) {
    return this.space && this.points.nearest(this.unit(this.space.inside(this.at(pixel))), 9 / this.wide);
  }

  leafAt(pixel) {
    const [x, y] = this.space.inside(this.at(pixel));
    return this.leaves.find(({ box: [west, south, east, north] }) => x >= west && x < east && y >= south && y < north);
  }

  // ---------------------------------------------------------------------------------------------------------- regions

  /** Draws the region, or the point, of a query. */
  setRegion(id, query, hue) {
    const region = query.region && !this.space.isEverywhere(query.region) ? this.#shape(query.region) : null;
    const pin = query.at && el("div", { class: "pin", "aria-hidden": "true" });
    pin?.style.setProperty("--colour", hue);
    this.regions.set(id, { region, pin: pin && this.#place(pin, query.at), hue, lit: 0, from: query.at, links: [] });
    this.redraw();
  }

  removeRegion(id) {
    this.regions.get(id)?.pin?.remove();
    this.regions.delete(id);
    this.redraw();
  }

  /** Lines from the point of a query to what is nearest to it. */
  setLinks(id, places) {
    if (this.regions.has(id)) this.regions.get(id).links = places;
    this.redraw();
  }

  /** Draws areas: each with its `rings`, its `box`, its `name`, and how it is drawn. */
  setAreas(areas) {
    this.areas = areas.map(({ rings, ...each }) => ({ ...each, region: this.#shape({ polygon: { type: "Polygon", coordinates: rings } }) }));
    this.redraw();
  }

  /** The names of areas that are wide enough for them. */
  #label(context, { name, box, hue }, place) {
    const [[left, bottom], [right, top]] = box.map(place);
    Object.assign(context, { font: LABEL, textAlign: "center", textBaseline: "middle", lineJoin: "round", globalAlpha: 1 });
    if (context.measureText(name).width > right - left || bottom - top < 14) return;
    Object.assign(context, { strokeStyle: colour("ground"), lineWidth: 3, fillStyle: hue });
    context.strokeText(name, (left + right) / 2, (top + bottom) / 2);
    context.fillText(name, (left + right) / 2, (top + bottom) / 2);
  }

  /** The region that is put together. */
  setDraft(region) {
    this.draft = region && this.#shape(region);
    this.redraw();
  }

  /** Lets the region of a query light up for a moment. */
  light(id) {
    const entry = this.regions.get(id);
    if (!entry?.region || still()) return;
    const dim = () => {
      entry.lit = entry.lit > 0.05 ? entry.lit * 0.55 : 0;
      this.redraw();
      if (entry.lit > 0) setTimeout(dim, 110);
    };
    const dark = entry.lit === 0;
    entry.lit = 1.8;
    if (dark) dim();
  }

  /** In the unit square of the map. */
  #shape(region) {
    return shape(this.space.rings(region).map((ring) => ring.flatMap((each) => this.unit(each))));
  }

  /** Draws regions above the objects, on each copy of the world, and puts what is placed where it belongs. */
  drawOver() {
    const { context, width, height, ratio } = fitted(this.overlay);
    const { wide, space } = this;
    const [u, v] = this.unit(this.center);
    const half = width / 2 / wide;
    const [first, last] = space.geographic ? [Math.floor(u - half) - 1, Math.floor(u + half)] : [0, 0];
    for (let shift = first; shift <= last; shift += 1) {
      const [left, top] = [width / 2 + (shift - u) * wide, height / 2 - v * wide];
      const draw = (region, style) => drawShape(context, region, [wide, wide, left, top].map((each) => each * ratio), 1 / wide, style);
      for (const { region, ...style } of this.areas) draw(region, style);
      for (const each of this.areas) this.#label(context, each, (at) => this.unit(at).map((part, i) => (i ? top : left) + part * wide));
      for (const { region, hue, lit, from, links } of this.regions.values()) {
        if (region) draw(region, { hue, filled: Math.min(1, 0.07 + 0.26 * lit), opacity: 0.95, width: 1.4 + 2.2 * lit });
        Object.assign(context, { strokeStyle: hue, lineWidth: 1, globalAlpha: 0.55 });
        context.beginPath();
        for (const [[a, b], [c, d]] of links.map((each) => [this.unit(from), this.unit(each)])) {
          context.moveTo(left + a * wide, top + b * wide);
          context.lineTo(left + (space.geographic ? c + Math.round(a - c) : c) * wide, top + d * wide);
        }
        context.stroke();
      }
      if (this.draft) draw(this.draft, { hue: colour("ink"), filled: 0.07, width: 1.6, dash: [4, 3] });
    }
    this.placed.forEach((each) => each.move());
  }

  // --------------------------------------------------------------------------------------------------------- elements

  /** Keeps an element at a place, on the copy of the world that is in the middle. */
  #place(element, at) {
    const placed = {
      put: (place) => {
        at = place;
        placed.move();
      },
      move: () => {
        const turn = this.space.geographic ? 360 * Math.round((this.center[0] - at[0]) / 360) : 0;
        const [left, top] = this.pixel([at[0] + turn, at[1]]);
        Object.assign(element.style, { left: `${left}px`, top: `${top}px` });
      },
      remove: () => {
        this.placed.delete(placed);
        element.remove();
      },
    };
    this.placed.add(placed);
    this.surface.append(element);
    placed.move();
    return placed;
  }

  /** An element by which something is dragged; those who use keys have the numbers. */
  handle({ begun, dragged }) {
    const element = el("div", { class: "handle", "aria-hidden": "true" });
    const at = (event) => this.at(pointOn(this.surface, event));
    const drag = (event) => dragged(at(event));
    for (const name of ["pointerdown", "mousedown", "touchstart"]) element.addEventListener(name, (event) => event.stopPropagation()); // the map stays
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      begun(at(event));
      element.addEventListener("pointermove", drag);
    });
    for (const name of ["pointerup", "pointercancel"]) element.addEventListener(name, () => element.removeEventListener("pointermove", drag));
    return this.#place(element, this.center);
  }

  /** Whether who drags moves the map; where those who draw come before it, nothing has to be done for that. */
  pans() {}
}

/** Red, green and blue of a colour. */
function channels(text) {
  if (text.startsWith("#")) return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  return text.match(/[\d.]+/g).slice(0, 3).map(Number);
}
