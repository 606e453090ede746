// A map on a plain canvas: a plane, or the Earth with longitude and latitude as x and y, of which it draws the land and a grid.
// What else is on it, whoever has it draws. It needs no more than each browser has.

import { colour, el, still } from "./dom.js";

const TURN = 360; // degrees
const RAD = Math.PI / 180;
const UNIT = 20; // of packed land, in a degree
const FLIGHT = 450; // ms
const CONTROLS = 105; // px at the top right, below which labels are
const STAR = new Path2D("M0-1 .3-.3 1 0 .3.3 0 1-.3.3-1 0-.3-.3z");
const FONT = "10.5px system-ui, sans-serif";
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60]; // of a grid in degrees

/** A canvas fitted to its place on the page and to the screen's pixels, and empty. */
export function fitted(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height, ratio };
}

/** Buttons of a map. @param {(factor: number) => void} zoom @param {() => void} whole shows everything */
export function controls(zoom, whole) {
  const button = (text, title, work) => el("button", { type: "button", "aria-label": title, title, text, onclick: work });
  return el("div", { class: "controls" }, button("+", "Zoom in", () => zoom(2)), button("−", "Zoom out", () => zoom(0.5)), button("⤢", "Show everything", whole));
}

/** Where an event is on an element, px. */
export function pointOn(element, event) {
  const box = element.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/** Rings (flat: x, y, x, y) as paths to fill and to stroke; what only closes them along the edge of the Earth is not stroked. */
export function shape(rings, geographic = false) {
  const [fill, line] = [new Path2D(), new Path2D()];
  const onEdge = (ax, ay, bx, by) => geographic && ((ax === bx && Math.abs(ax) === 180) || (ay === by && Math.abs(ay) === 90));
  let twice = 0;
  for (const ring of rings) {
    const n = ring.length;
    let [drawing, sum] = [false, 0];
    for (let i = 0; i < n; i += 2) {
      const [ax, ay, bx, by] = [ring[i], ring[i + 1], ring[(i + 2) % n], ring[(i + 3) % n]];
      fill[i ? "lineTo" : "moveTo"](ax, ay);
      sum += ax * by - bx * ay;
      const drawn = !onEdge(ax, ay, bx, by);
      if (drawn && !drawing) line.moveTo(ax, ay);
      if (drawn) line.lineTo(bx, by);
      drawing = drawn;
    }
    fill.closePath();
    twice += Math.abs(sum);
  }
  return { fill, line, area: twice / 2 };
}

/** Draws a shape in its own units. @param {number[]} to by what x and y are multiplied, and what is added @param {number} pixel units that it has */
export function drawShape(context, { fill, line }, [a, d, e, f], pixel, { hue, border = hue, filled, opacity = 1, width, dash = [] }) {
  context.save();
  context.setTransform(a, 0, 0, d, e, f);
  Object.assign(context, { fillStyle: hue, strokeStyle: border, globalAlpha: filled, lineWidth: width * pixel });
  if (filled) context.fill(fill, "evenodd");
  context.globalAlpha = opacity;
  context.setLineDash(dash.map((each) => each * pixel));
  context.stroke(line);
  context.restore();
}

/** The rings of packed land: each x, y in 1/20 degree, then differences. */
function unpacked(land) {
  return land.map((packed) => {
    const ring = packed.slice(0, 2);
    for (let i = 2; i < packed.length; i += 1) ring.push(ring[i - 2] + packed[i]);
    return ring.map((each) => each / UNIT);
  });
}

export class CanvasMap {
  /**
   * @param {HTMLElement} container what the map fills @param {string} label what it shows
   * @param {object} on what is called: `paint(context, shift)` draws, for each copy of the world by how far it is shifted, `drawn()`
   *   follows; `pointed(point)` and `clicked(point)` say where the pointer is, null: elsewhere; `moved()` that another part is shown
   */
  constructor(container, label, on) {
    this.on = { drawn() {}, pointed() {}, clicked() {}, moved() {}, ...on };
    [this.view, this.width, this.height] = [{ x: 0, y: 0, scale: 0 }, 0, 0]; // middle, px of a unit
    [this.lag, this.margin] = [0, 0]; // ms that a picture takes; px at the right of the bottom, which something covers
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `${label}. Arrow keys move it, plus and minus zoom, 0 shows everything.` });
    this.surface = el("div", { class: "surface" }, this.canvas);
    this.ground = el("canvas"); // land and grid, as long as the same part is shown
    container.classList.add("canvas-map");
    container.prepend(this.surface, controls((factor) => this.zoom(factor), () => this.fly(this.everything())));
    this.#listen();
    new ResizeObserver(() => this.redraw()).observe(container);
  }

  /** Shows a space, all of it if it is another one. @param {object} space `geographic` and `bounds` @param {number[][]} land packed rings */
  show(space, land = []) {
    if (space !== this.space) this.view.scale = 0;
    this.space = space;
    this.land = shape(unpacked(land), true);
    this.#measure();
    this.recolour();
  }

  recolour() {
    this.grounded = null;
    this.colours = Object.fromEntries(["land", "coast", "grid", "sea", "soft"].map((name) => [name, colour(name)]));
    this.redraw();
  }

  redraw() {
    if (this.due || !this.space) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.#draw();
    });
  }

  // ------------------------------------------------------------------------------------------------------------- view

  toX = (x, shift = 0) => (x + shift - this.view.x) * this.view.scale + this.width / 2;
  toY = (y) => (this.view.y - y) * this.view.scale + this.height / 2;
  fromX = (px) => (px - this.width / 2) / this.view.scale + this.view.x;
  fromY = (py) => this.view.y - (py - this.height / 2) / this.view.scale;

  /** By how much copies of the world are shifted to fill the map. */
  turns() {
    if (!this.space.geographic) return [0];
    const [first, last] = [0, this.width].map((px) => Math.floor((this.fromX(px) + 180) / TURN));
    return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * TURN);
  }

  #settle(view) {
    const { bounds: [west, south, east, north], geographic } = this.space;
    const least = geographic ? this.width / TURN : 0.7 * Math.min(this.width / (east - west), this.height / (north - south));
    const most = this.width / ((east - west) * (geographic ? 0.0005 : 0.002));
    view.scale = Math.min(most, Math.max(least, view.scale));
    if (geographic) {
      const free = Math.max(0, 90 - this.height / 2 / view.scale);
      view.y = Math.min(free, Math.max(-free, view.y));
      view.x -= TURN * Math.round(view.x / TURN);
    } else {
      view.x = Math.min(east, Math.max(west, view.x));
      view.y = Math.min(north, Math.max(south, view.y));
    }
    return view;
  }

  #moveTo(view) {
    Object.assign(this.view, this.#settle(view));
    this.redraw();
    this.on.moved();
  }

  /** Shows another part, at once or as in a flight. */
  fly(target, atOnce = still() || document.hidden) {
    cancelAnimationFrame(this.flight);
    this.#settle(target);
    if (atOnce || !this.width) {
      this.#moveTo(target);
      return;
    }
    const start = { ...this.view };
    if (this.space.geographic) start.x += TURN * Math.round((target.x - start.x) / TURN);
    const began = performance.now();
    const step = (now) => {
      const part = Math.min(1, Math.max(0, (now - began) / FLIGHT));
      const eased = part < 0.5 ? 2 * part * part : 1 - 2 * (1 - part) ** 2;
      this.view.x = start.x + (target.x - start.x) * eased;
      this.view.y = start.y + (target.y - start.y) * eased;
      this.view.scale = start.scale * (target.scale / start.scale) ** eased;
      this.redraw();
      if (part < 1) this.flight = requestAnimationFrame(step);
      else this.#moveTo(target);
    };
    this.flight = requestAnimationFrame(step);
  }

  everything() {
    const { bounds: [west, south, east, north], geographic } = this.space;
    const scale = Math.min(this.width / (east - west), this.height / (north - south)) * (geographic ? 1 : 0.94);
    return { x: (west + east) / 2, y: (south + north) / 2, scale };
  }

  /** The view that has an extent within it. @param {number[][]} extent [[west, south], [east, north]] @param {number} edge px */
  around([[west, south], [east, north]], edge = 42, below = 0) {
    const least = (this.space.bounds[2] - this.space.bounds[0]) / 60;
    const [wide, high] = [Math.max(least, east - west), Math.max(least / 2, north - south)];
    const scale = Math.min((this.width - 2 * edge) / wide, (this.height - below - 2 * edge) / high);
    return { x: (west + east) / 2, y: (south + north) / 2 - below / 2 / scale, scale };
  }

  zoom(factor, px = this.width / 2, py = this.height / 2) {
    cancelAnimationFrame(this.flight);
    const { scale } = this.#settle({ ...this.view, scale: this.view.scale * factor });
    this.#moveTo({ x: this.fromX(px) - (px - this.width / 2) / scale, y: this.fromY(py) + (py - this.height / 2) / scale, scale });
  }

  #pan(px, py) {
    this.on.pointed(null);
    cancelAnimationFrame(this.flight);
    this.#moveTo({ ...this.view, x: this.view.x + px / this.view.scale, y: this.view.y - py / this.view.scale });
  }

  // ---------------------------------------------------------------------------------------------------------- pointing

  #listen() {
    const { canvas } = this;
    const pointers = new Map();
    let [travelled, gap] = [0, 0]; // px
    canvas.addEventListener("wheel", (event) => {
      const scrolls = document.documentElement.scrollHeight > innerHeight; // then the wheel is the page's, until one has clicked the map
      if (scrolls && !event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), ...pointOn(canvas, event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, pointOn(canvas, event));
      [travelled, gap] = [0, 0];
      canvas.classList.add("moving");
    });
    canvas.addEventListener("pointermove", (event) => {
      const [point, before] = [pointOn(canvas, event), pointers.get(event.pointerId)];
      if (before) pointers.set(event.pointerId, point);
      else this.on.pointed(point);
      if (pointers.size > 1) {
        const [[ax, ay], [bx, by]] = [...pointers.values()];
        const now = Math.hypot(ax - bx, ay - by);
        if (gap) this.zoom(now / gap, (ax + bx) / 2, (ay + by) / 2);
        [gap, travelled] = [now, Infinity];
      } else if (before) {
        const [dx, dy] = [before[0] - point[0], before[1] - point[1]];
        travelled += Math.abs(dx) + Math.abs(dy);
        if (travelled >= 4) this.#pan(dx, dy);
      }
    });
    const release = (event) => {
      const click = event.type === "pointerup" && travelled < 4 && pointers.size === 1;
      pointers.delete(event.pointerId);
      gap = 0;
      if (!pointers.size) canvas.classList.remove("moving");
      if (click) this.on.clicked(pointOn(canvas, event));
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => this.on.pointed(null));
    canvas.addEventListener("dblclick", (event) => this.zoom(2, ...pointOn(canvas, event)));
    const keys = {
      ArrowLeft: () => this.#pan(-60, 0), ArrowRight: () => this.#pan(60, 0), ArrowUp: () => this.#pan(0, -60), ArrowDown: () => this.#pan(0, 60),
      "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), 0: () => this.fly(this.everything()),
    };
    canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      keys[event.key]();
      event.preventDefault();
    });
  }

  /** Whether a point of the map lies in a shape. */
  isIn({ fill }, [px, py], shift = 0) {
    const context = this.ground.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    return context.isPointInPath(fill, this.fromX(px) - shift, this.fromY(py), "evenodd");
  }

  // ----------------------------------------------------------------------------------------------------------- drawing

  /** Takes the size of its place; what is in the middle stays there. */
  #measure() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || (this.width === width && this.height === height && this.view.scale)) return;
    const grown = width / (this.width || width);
    [this.width, this.height] = [width, height];
    Object.assign(this.view, this.#settle(this.view.scale ? { ...this.view, scale: this.view.scale * grown } : this.everything()));
  }

  #draw() {
    this.#measure();
    if (!this.width) return;
    const began = performance.now();
    const { context, ratio } = fitted(this.canvas);
    this.ratio = ratio;
    const shown = [...Object.values(this.view), this.width, this.height, ratio].join();
    if (shown !== this.grounded) this.#drawGround();
    this.grounded = shown;
    context.drawImage(this.ground, 0, 0, this.width, this.height);
    for (const shift of this.turns()) this.on.paint(context, shift);
    Object.assign(context, { globalAlpha: 1, font: FONT, strokeStyle: this.colours.sea, fillStyle: this.colours.soft, lineWidth: 3, lineJoin: "round" });
    for (const each of this.labels) context.strokeText(...each);
    for (const each of this.labels) context.fillText(...each);
    this.on.drawn();
    this.lag = 0.7 * this.lag + 0.3 * (performance.now() - began);
  }

  #drawGround() {
    const { ground, ratio, colours } = this;
    Object.assign(ground, { width: this.canvas.width, height: this.canvas.height });
    const context = ground.getContext("2d");
    context.scale(ratio, ratio);
    for (const shift of this.turns()) this.region(context, shift, this.land, { hue: colours.land, border: colours.coast, filled: 1, width: 0.7 });
    this.#drawGrid(context);
  }

  /** Draws the grid; its labels are for later, above everything. */
  #drawGrid(context) {
    const { bounds: [west, south, east, north], geographic } = this.space;
    const least = 110 / this.view.scale;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = geographic ? (STEPS.find((each) => each >= least) ?? STEPS.at(-1)) : [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least * 0.999);
    const [left, right] = geographic ? [-Infinity, Infinity] : [west, east];
    const label = (value, names) => geographic
      ? `${Number(Math.abs(value).toFixed(2))}°${value === 0 || Math.abs(value) === 180 ? "" : names[value < 0 ? 0 : 1]}`
      : String(Number(value.toPrecision(6)));
    const each = (low, high, work) => {
      for (let i = Math.ceil(low / step); i * step <= high; i += 1) work(i * step);
    };
    this.labels = [];
    context.strokeStyle = this.colours.grid;
    context.lineWidth = 1;
    context.beginPath();
    each(Math.max(this.fromX(0), left), Math.min(this.fromX(this.width), right), (x) => {
      const px = Math.round(this.toX(x)) + 0.5;
      context.moveTo(px, Math.max(0, this.toY(north)));
      context.lineTo(px, Math.min(this.height, this.toY(south)));
      const value = geographic ? x - TURN * Math.round(x / TURN) : x;
      if (px > 40 && px < this.width - 40 - this.margin) this.labels.push([label(value, "WE"), px + 3, this.height - 6]);
    });
    each(Math.max(this.fromY(this.height), south), Math.min(this.fromY(0), north), (y) => {
      const py = Math.round(this.toY(y)) + 0.5;
      context.moveTo(Math.max(0, this.toX(left)), py);
      context.lineTo(Math.min(this.width, this.toX(right)), py);
      if (py > CONTROLS && py < this.height - 34) this.labels.push([label(y, "SN"), this.width - 36, py - 3]);
    });
    context.stroke();
  }

  /** A shape of places. */
  region(context, shift, region, style) {
    const { view: { scale }, ratio } = this;
    drawShape(context, region, [scale, -scale, this.toX(0, shift), this.toY(0)].map((each) => each * ratio), 1 / scale, style);
  }

  /** Dots at places, as one path. */
  dots(context, shift, places, radius) {
    context.beginPath();
    for (const [x, y] of places) {
      const [px, py] = [this.toX(x, shift), this.toY(y)];
      if (px < -9 || px > this.width + 9 || py < -9 || py > this.height + 9) continue;
      context.moveTo(px + radius, py);
      context.arc(px, py, radius, 0, 2 * Math.PI);
    }
  }

  /** Shortest lines from a place to others, as one path. */
  links(context, shift, from, places) {
    context.beginPath();
    for (const to of places) {
      between(from, to, this.space.geographic).forEach(([x, y], i) => context[i ? "lineTo" : "moveTo"](this.toX(x, shift), this.toY(y)));
    }
  }

  /** The point of a query, as a star. */
  star(context, shift, [x, y], radius, hue, opacity = 1) {
    const to = [radius, radius, this.toX(x, shift), this.toY(y)].map((each) => each * this.ratio);
    drawShape(context, { fill: STAR, line: STAR }, to, 1 / radius, { hue, border: this.colours.sea, filled: opacity, opacity, width: 1.2 });
  }
}

/** Points of the great circle (or the straight line) between two places, longitudes without jumps. */
function between([ax, ay], [bx, by], geographic) {
  if (!geographic) return [[ax, ay], [bx, by]];
  const vector = (x, y) => [Math.cos(y * RAD) * Math.cos(x * RAD), Math.cos(y * RAD) * Math.sin(x * RAD), Math.sin(y * RAD)];
  const [a, b] = [vector(ax, ay), vector(bx, by)];
  const angle = Math.acos(Math.min(1, Math.max(-1, a[0] * b[0] + a[1] * b[1] + a[2] * b[2])));
  if (angle < 1e-6 || Math.PI - angle < 1e-6) return [[ax, ay], [bx + TURN * Math.round((ax - bx) / TURN), by]];
  const steps = Math.max(2, Math.ceil(angle * 24));
  const line = [];
  for (let i = 0; i <= steps; i += 1) {
    const [p, q] = [1 - i / steps, i / steps].map((part) => Math.sin(part * angle) / Math.sin(angle));
    const [x, y, z] = [0, 1, 2].map((j) => p * a[j] + q * b[j]);
    const longitude = Math.atan2(y, x) / RAD;
    const before = i ? line[i - 1][0] : ax;
    line.push([longitude + TURN * Math.round((before - longitude) / TURN), Math.asin(Math.min(1, Math.max(-1, z))) / RAD]);
  }
  return line;
}
