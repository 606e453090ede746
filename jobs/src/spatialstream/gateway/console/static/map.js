// The map: land and borders from the package, the regions of queries, the leaves of the tree, and objects.

import * as maplibre from "./vendor/maplibre-gl.mjs";
import { feature, mesh } from "./vendor/topojson-client/index.js";
import { FlatMap } from "./flat.js";
import { LiveMap } from "./live.js";
import { PointLayer } from "./points.js";
import { controls } from "./web/canvas.js";
import { colour, el, still } from "./web/dom.js";
import { Space, corners } from "./web/geometry.js";

maplibre.setWorkerUrl(new URL("./vendor/maplibre-gl-worker.mjs", import.meta.url).href);

const SCREEN = 17; // ms for which a frame may wait for the screen
const MIDDLE = [12, 24];

/**
 * The map, as the browser can have it.
 *
 * @param {HTMLElement} container @param {object|null} view {center, zoom}
 * @param {() => number} covered how many px at its bottom are under something
 * @param {object} on what is called: `moved()` when another part is shown, `pointed(pixel)`, null: at nothing of it
 */
export function openMap(container, view, covered, on) {
  try {
    return new GraphicsMap(container, view, covered, on);
  } catch (error) {
    console.warn(error); // this browser has no WebGL 2, or does not let the page use it
    container.replaceChildren();
    return new FlatMap(container, view, covered, on);
  }
}

class GraphicsMap extends LiveMap {
  constructor(container, view, covered, on) {
    super(new PointLayer("points"), new PointLayer("past"));
    [this.covered, this.painted] = [covered, this.warm];
    [this.lag, this.asked] = [0, null]; // ms that a picture takes, and since when one is waited for
    this.map = new maplibre.Map({
      container,
      style: { version: 8, sources: {}, layers: [{ id: "sea", type: "background", paint: { "background-color": colour("sea") } }] },
      center: view?.center ?? MIDDLE,
      zoom: view?.zoom ?? whole(container),
      minZoom: 0.4,
      maxZoom: 15,
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      attributionControl: false,
      locale: { "Map.Title": "Map of the stream" },
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.keyboard.disableRotation();
    container.append(controls((factor) => this.map.zoomTo(this.map.getZoom() + Math.log2(factor)), () => this.fit(null)), el("p", { class: "credit", text: "Land: Natural Earth" }));
    this.surface = this.map.getCanvasContainer();
    this.surface.after(this.overlay);
    this.map.on("render", () => this.#drawn());
    this.map.on("moveend", () => on.moved());
    this.map.on("mousemove", ({ point: { x, y } }) => on.pointed([x, y]));
    this.map.on("mouseout", () => on.pointed(null));
    this.ready = new Promise((resolve) => this.map.once("load", resolve)).then(() => this.#layers());
    this.map.on("webglcontextlost", () => this.#lost());
    this.animate(33, 2.5);
    this.show(new Space("wgs84")); // until it is known what there is
  }

  /** Handles a lost graphics context, which the browser may restore; meanwhile nothing is drawn. */
  #lost() {
    this.#tell("The map is not available: the browser has taken its graphics away. Everything else works. If the map does not come back, reload the page.");
    this.ready = new Promise((resolve) => this.map.once("style.load", resolve)).then(() => {
      // the library brings back all but the layers of our own
      for (const each of [this.passing, this.past]) if (!this.map.getLayer(each.id)) this.map.addLayer(each);
      this.#tell(null);
      this.#paintLayers();
    });
  }

  #tell(text) {
    const message = document.getElementById("no-map");
    message.hidden = text === null;
    message.textContent = text ?? "";
  }

  #layers() {
    const { map } = this;
    for (const id of ["grid", "land", "borders", "coast", "leaves"]) {
      map.addSource(id, { type: "geojson", data: collection([]), tolerance: 0.4 });
    }
    const layer = (type) => (id, source, paint) => map.addLayer({ id, type, source, paint });
    const [line, fill] = [layer("line"), layer("fill")];
    line("grid", "grid", {});
    fill("land", "land", { "fill-antialias": false });
    line("borders", "borders", { "line-width": 0.7 });
    line("coast", "coast", { "line-width": 0.8 });
    fill("leaves", "leaves", { "fill-color": ["get", "colour"], "fill-opacity": 0.62 });
    line("leaf-lines", "leaves", { "line-opacity": 0.35, "line-width": 0.6 });
    map.addLayer(this.passing);
    map.addLayer(this.past);
    this.#paintLayers();
  }

  /** Shows a stream's space: the world, or a plane. */
  async show(space) {
    const changed = this.space?.text !== space.text;
    this.space = space;
    this.passing.copies = this.past.copies = space.geographic;
    this.map.setRenderWorldCopies(space.geographic);
    await this.ready;
    if (!changed) return;
    const plane = this.#polygon(space.everywhere);
    const [land, borders, coast, grid] = space.geographic ? [...(await world()), graticule()] : [plane, collection([]), plane, collection([])];
    this.#draw("land", land);
    this.#draw("borders", borders);
    this.#draw("coast", coast);
    this.#draw("grid", grid);
    if (!space.geographic) this.fit(corners(space.outline(space.everywhere)), 0);
  }

  recolour() {
    this.painted = this.warm;
    this.passing.recolour(this.painted);
    this.ready.then(() => this.#paintLayers());
  }

  #paintLayers() {
    for (const [layer, property, name] of [
      ["sea", "background-color", "sea"], ["grid", "line-color", "grid"], ["land", "fill-color", "land"], ["borders", "line-color", "border"],
      ["coast", "line-color", "coast"], ["leaf-lines", "line-color", "ink"],
    ]) this.map.setPaintProperty(layer, property, colour(name));
    this.redraw();
  }

  #drawn() {
    this.drawOver();
    if (this.asked) this.lag = 0.7 * this.lag + 0.3 * Math.max(0, performance.now() - this.asked - SCREEN);
    this.asked = null;
  }

  redraw() {
    this.asked ??= performance.now();
    this.map.triggerRepaint();
  }

  // ----------------------------------------------------------------------------------------------------------- places

  unit([x, y]) {
    return this.space.unit(x, y);
  }

  get wide() {
    return 512 * 2 ** this.map.getZoom();
  }

  get center() {
    return this.space.fromMap(this.map.getCenter());
  }

  get corners() {
    const bounds = this.map.getBounds();
    return [bounds.getSouthWest(), bounds.getNorthEast()].map((each) => this.space.fromMap(each));
  }

  at(pixel) {
    return this.space.fromMap(this.map.unproject(pixel));
  }

  pixel(place) {
    const { x, y } = this.map.project(this.space.onMap(place));
    return [x, y];
  }

  pans(on) {
    this.map.dragPan[on ? "enable" : "disable"]();
  }

  #polygon(region, properties) {
    return drawn({ type: "Polygon", coordinates: [this.space.outline(region).map((each) => this.space.onMap(each))] }, properties);
  }

  #draw(source, data) {
    this.map.getSource(source)?.setData(data);
  }

  async setLeaves(leaves) {
    this.leaves = leaves;
    await this.ready;
    this.#draw("leaves", collection(leaves.map(({ box, colour: hue }) => this.#polygon({ box }, { colour: hue }))));
  }

  // ------------------------------------------------------------------------------------------------------------- view

  fit(extent, ms = 700) {
    if (extent === null) this.map.easeTo({ center: MIDDLE, zoom: whole(this.map.getContainer()), duration: still() ? 0 : ms });
    else {
      const free = this.map.getContainer().clientHeight - this.covered();
      const edge = Math.min(60, free / 5);
      this.map.fitBounds(extent.map((each) => this.space.onMap(each)), { padding: { top: edge, left: edge, right: edge, bottom: edge + this.covered() }, maxZoom: 11, duration: still() ? 0 : ms });
    }
  }

  goTo(place) {
    this.map.easeTo({ center: this.space.onMap(place), zoom: Math.max(this.map.getZoom(), 5), duration: still() ? 0 : 500 });
  }

  get view() {
    return { center: this.map.getCenter().toArray(), zoom: this.map.getZoom() };
  }
}

/** The zoom at which the inhabited world fits. */
const whole = (container) => Math.log2(Math.max(container.clientWidth / 530, container.clientHeight / 430, 0.75));

/** Land, borders and coast. What crosses the antimeridian goes on beyond it, so that it has no cut to be drawn. */
async function world() {
  const response = await fetch(new URL("./vendor/countries-50m.json", import.meta.url));
  const topology = await response.json();
  const land = feature(topology, topology.objects.land).features.flatMap((each) => each.geometry.coordinates);
  const lines = (mesh) => drawn({ type: "MultiLineString", coordinates: mesh.coordinates.map(continued) });
  return [
    drawn({ type: "MultiPolygon", coordinates: land.map((rings) => rings.map(continued).map(closed)) }),
    lines(mesh(topology, topology.objects.countries, (a, b) => a !== b)),
    lines(mesh(topology, topology.objects.land)),
  ];
}

const drawn = (geometry, properties = {}) => ({ type: "Feature", properties, geometry });
const collection = (features) => ({ type: "FeatureCollection", features });

/** A line without jumps from 180 degrees to -180. */
function continued(line) {
  let turn = 0;
  return line.map(([lng, lat], i) => {
    if (i) turn += 360 * Math.round((line[i - 1][0] - lng) / 360);
    return [lng + turn, lat];
  });
}

/** A ring that goes around a pole is closed along the edge of the map. */
function closed(ring) {
  const [first, last] = [ring[0], ring.at(-1)];
  if (Math.abs(last[0] - first[0]) < 180) return ring;
  const edge = first[1] < 0 ? -89.9 : 89.9;
  return [...ring, [last[0], edge], [first[0], edge], first];
}

function graticule() {
  const lines = [];
  for (let lng = -180; lng < 180; lng += 30) lines.push([[lng, -85], [lng, 85]]);
  for (let lat = -60; lat <= 60; lat += 30) lines.push([[-180, lat], [0, lat], [180, lat]]);
  return drawn({ type: "MultiLineString", coordinates: lines });
}
