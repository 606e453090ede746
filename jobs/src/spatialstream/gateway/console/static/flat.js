// The map where there is no WebGL: the same on a plain canvas. Longitude and latitude are its x and y, so it has the poles too.

import { LiveMap } from "./live.js";
import { Points } from "./points.js";
import { CanvasMap, shape } from "./web/canvas.js";
import { el, still } from "./web/dom.js";
import { Space } from "./web/geometry.js";

const ROOM = 6_000; // objects: a processor draws fewer than a graphics card
const TILE = 512; // px of the world at zoom 0, as the other map has it: an address shows the same part on both
const CLOSEST = 11; // zoom for a region

export class FlatMap extends LiveMap {
  constructor(container, view, covered, on) {
    super(new Points(ROOM), new Points(ROOM));
    this.covered = covered;
    this.map = new CanvasMap(container, "Map of the stream", { ...on, paint: (context, shift) => this.#paint(context, shift), drawn: () => this.drawOver() });
    this.surface = this.map.surface;
    this.surface.append(this.overlay);
    const credit = el("p", { class: "credit", text: "Land: Natural Earth. Drawn without WebGL." });
    container.append(credit);
    this.map.margin = credit.offsetWidth;
    this.recolour();
    this.show(new Space("wgs84")); // until it is known what there is
    if (view) this.map.fly({ x: view.center[0], y: view.center[1], scale: this.#scale(view.zoom) }, true);
    this.animate(66, 90);
  }

  async show(space) {
    if (this.space?.text === space.text) return;
    this.space = space;
    this.map.show(space);
    if (!space.geographic) return;
    const land = await (await fetch(new URL("./web/land.json", import.meta.url))).json();
    if (this.space === space) this.map.show(space, land.rings);
  }

  recolour() {
    this.painted = this.warm;
    this.passing.recolour(this.painted);
    this.map.recolour();
  }

  get lag() {
    return this.map.lag;
  }

  redraw() {
    this.map.redraw();
  }

  // ----------------------------------------------------------------------------------------------------------- drawing

  #paint(context, shift) {
    const { map } = this;
    for (const { drawn, colour: hue } of this.leaves) map.region(context, shift, drawn, { hue, filled: 0.62, opacity: 0.35, width: 1 });
    // as the shader of the other map does it: what is new shines, what only passes fades, a match keeps its core
    const [grow, quiet, unit] = [Math.min(1.8, 0.9 + 0.09 * this.zoom), still(), this.#unit];
    const [middle, height] = this.space.middle;
    const disc = (px, py, wide, opacity) => {
      context.globalAlpha = opacity;
      context.beginPath();
      context.arc(px, py, wide / 2, 0, 2 * Math.PI);
      context.fill();
    };
    for (const { u, v, age, left, size, rgb, found } of this.points.shown()) {
      const [px, py] = [map.toX(middle + (u - 0.5) / unit, shift), map.toY(height - (v - 0.5) / unit)];
      if (px < -20 || py < -20 || px > map.width + 20 || py > map.height + 20) continue;
      const fresh = quiet ? 0 : Math.exp(-3 * age);
      context.fillStyle = `rgb(${rgb.join(" ")})`;
      if (!found) disc(px, py, size * grow * (1 + 1.1 * fresh), (0.18 + 0.72 * Math.exp(-age / 12)) * Math.min(1, left / 8));
      else {
        if (fresh > 0.02) disc(px, py, size * grow * (1 + 3.2 * fresh), 0.28);
        disc(px, py, size * grow, 1);
      }
    }
  }

  // ------------------------------------------------------------------------------------------------------------ places

  get #unit() {
    return this.space.geographic ? 1 / 360 : this.space.scale;
  }

  unit([x, y]) {
    const [middle, height] = this.space.middle;
    return [0.5 + (x - middle) * this.#unit, 0.5 - (y - height) * this.#unit];
  }

  get wide() {
    return this.map.view.scale / this.#unit;
  }

  get zoom() {
    return Math.log2(this.wide / TILE);
  }

  #scale(zoom) {
    return TILE * 2 ** zoom * this.#unit;
  }

  get center() {
    return [this.map.view.x, this.map.view.y];
  }

  get corners() {
    const { width, height } = this.map;
    return [this.at([0, height]), this.at([width, 0])];
  }

  at([px, py]) {
    return [this.map.fromX(px), this.map.fromY(py)];
  }

  pixel([x, y]) {
    return [this.map.toX(x), this.map.toY(y)];
  }

  get view() {
    return { center: this.space.onMap(this.center), zoom: this.zoom };
  }

  fit(extent, ms) {
    const view = extent ? this.map.around(extent, Math.min(60, (this.map.height - this.covered()) / 5), this.covered()) : this.map.everything();
    if (extent) view.scale = Math.min(view.scale, this.#scale(CLOSEST));
    this.map.fly(view, ms === 0 || undefined);
  }

  goTo([x, y]) {
    this.map.fly({ x, y, scale: Math.max(this.map.view.scale, this.#scale(5)) });
  }

  setLeaves(leaves) {
    this.leaves = leaves.map((each) => ({ ...each, drawn: shape([this.space.outline(each).flat()]) }));
    this.redraw();
  }
}
