// The map: land and borders from the package, the regions of questions, the leaves of the tree, and objects.

import * as maplibre from "./vendor/maplibre-gl.mjs";
import { feature, mesh } from "./vendor/topojson-client/index.js";
import { NoMap } from "./nomap.js";
import { Points } from "./points.js";
import { Space, corners } from "./geometry.js";

maplibre.setWorkerUrl(new URL("./vendor/maplibre-gl-worker.mjs", import.meta.url).href);

const NOTHING = { type: "FeatureCollection", features: [] };
const THEMES = {
  dark: { sea: "#0e171d", land: "#1b2830", coast: "#3d525e", border: "#2a3b45", grid: "#15212a", passing: [255, 196, 112, 235], ink: "#e8eef0" },
  light: { sea: "#dfe8ea", land: "#fbfaf5", coast: "#93a7ad", border: "#d3d8d3", grid: "#d3dfe2", passing: [148, 78, 8, 225], ink: "#14242c" },
};
// of loads, from the least to the most: even steps of lightness, told apart by those who do not see all colours
const RAMPS = {
  dark: ["#1d3a4a", "#1f5a6b", "#2f7d80", "#5fa37f", "#a8c374", "#f2dc73"],
  light: ["#e4eee0", "#b9d8c2", "#83bcae", "#4c9a9b", "#286f80", "#17465c"],
};
const FRAME = 33; // ms between two pictures while something comes
const SCREEN = 17; // ms for which a picture may wait until the screen takes one
const SLOWEST = 1_500; // where the machine takes long to draw one

const MIDDLE = [12, 24];

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export class LiveMap {
  /**
   * @param {HTMLElement} container @param {string} theme @param {object|null} view {center, zoom}
   * @param {() => number} covered how many px at its bottom are under something
   */
  constructor(container, theme, view, covered) {
    [this.theme, this.covered] = [theme, covered];
    this.space = null;
    this.passing = new Points("points", still);
    this.past = new Points("past", still);
    this.past.hidden = true;
    this.points = this.passing; // those that are shown
    this.regions = new Map();
    this.lag = 0; // ms that a picture takes
    const place = { center: view?.center ?? MIDDLE, zoom: view?.zoom ?? whole(container) };
    try {
      this.#begin(container, place);
    } catch (error) {
      console.warn(error);
      this.missing = true;
      this.map = new NoMap(container, place);
      container.replaceChildren();
      this.#tell("There is no map: this browser has no WebGL 2, or does not let the page use it. Everything else works; places have numbers.");
    }
    this.show(new Space("wgs84")); // until it is known what there is
  }

  #begin(container, place) {
    this.map = new maplibre.Map({
      container,
      style: { version: 8, sources: {}, layers: [{ id: "sea", type: "background", paint: { "background-color": THEMES[this.theme].sea } }] },
      ...place,
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
    this.map.addControl(new maplibre.NavigationControl({ showCompass: false }), "top-right");
    this.map.addControl(new maplibre.AttributionControl({ compact: true, customAttribution: "Land: Natural Earth" }), "bottom-right");
    this.ready = new Promise((resolve) => this.map.once("load", resolve)).then(() => this.#layers());
    this.map.on("webglcontextlost", () => this.#lost());
    this.#paint();
  }

  /** The browser has taken the graphics away, and may give them back; meanwhile nothing is drawn. */
  #lost() {
    this.#tell("The map is away: the browser has taken its graphics away. Everything else works. If it does not come back, load the page again.");
    this.ready = new Promise((resolve) => this.map.once("style.load", resolve)).then(() => {
      // the library brings back all but the layers of our own
      for (const each of [this.passing, this.past]) if (!this.map.getLayer(each.id)) this.map.addLayer(each, "draft");
      this.#tell(null);
      this.#recolour();
      this.#drawRegions();
    });
  }

  #tell(text) {
    const told = document.getElementById("no-map");
    told.hidden = text === null;
    told.textContent = text ?? "";
  }

  async #layers() {
    const colours = THEMES[this.theme];
    const { map } = this;
    for (const id of ["grid", "land", "borders", "coast", "leaves", "regions", "links", "draft"]) {
      map.addSource(id, { type: "geojson", data: NOTHING, tolerance: 0.4 });
    }
    map.addLayer({ id: "grid", type: "line", source: "grid", paint: { "line-color": colours.grid } });
    map.addLayer({ id: "land", type: "fill", source: "land", paint: { "fill-color": colours.land, "fill-antialias": false } });
    map.addLayer({ id: "borders", type: "line", source: "borders", paint: { "line-color": colours.border, "line-width": 0.7 } });
    map.addLayer({ id: "coast", type: "line", source: "coast", paint: { "line-color": colours.coast, "line-width": 0.8 } });
    map.addLayer({ id: "leaves", type: "fill", source: "leaves", paint: { "fill-color": ["get", "colour"], "fill-opacity": 0.62 } });
    map.addLayer({ id: "leaf-lines", type: "line", source: "leaves", paint: { "line-color": colours.ink, "line-opacity": 0.35, "line-width": 0.6 } });
    const lit = ["coalesce", ["feature-state", "lit"], 0];
    map.addLayer({ id: "regions", type: "fill", source: "regions", paint: { "fill-color": ["get", "colour"], "fill-opacity": ["+", 0.07, ["*", 0.26, lit]] } });
    map.addLayer({ id: "region-lines", type: "line", source: "regions", paint: { "line-color": ["get", "colour"], "line-width": ["+", 1.4, ["*", 2.2, lit]], "line-opacity": 0.95 } });
    map.addLayer({ id: "links", type: "line", source: "links", paint: { "line-color": ["get", "colour"], "line-width": 1, "line-opacity": 0.55 } });
    map.addLayer(this.passing);
    map.addLayer(this.past);
    map.addLayer({ id: "draft", type: "fill", source: "draft", paint: { "fill-color": colours.ink, "fill-opacity": 0.07 } });
    map.addLayer({ id: "draft-lines", type: "line", source: "draft", paint: { "line-color": colours.ink, "line-width": 1.6, "line-dasharray": [3, 2] } });
  }

  /** Shows a stream's space: the world, or a plane. */
  async show(space) {
    const changed = this.space?.text !== space.text;
    this.space = space;
    if (this.missing) return;
    this.passing.copies = this.past.copies = space.geographic;
    this.map.setRenderWorldCopies(space.geographic);
    await this.ready;
    if (!changed) return;
    const [land, borders, coast] = space.geographic ? await world() : [NOTHING, NOTHING, NOTHING];
    this.map.getSource("land").setData(space.geographic ? land : plane(space));
    this.map.getSource("borders").setData(borders);
    this.map.getSource("coast").setData(space.geographic ? coast : plane(space));
    this.map.getSource("grid").setData(space.geographic ? graticule() : NOTHING);
    if (!space.geographic) this.fit(corners(space.ring({ box: space.bounds })), 0);
  }

  setTheme(theme) {
    this.theme = theme;
    if (!this.missing) this.ready.then(() => this.#recolour());
  }

  #recolour() {
    const colours = THEMES[this.theme];
    for (const [layer, property, colour] of [
      ["sea", "background-color", colours.sea], ["grid", "line-color", colours.grid], ["land", "fill-color", colours.land],
      ["borders", "line-color", colours.border], ["coast", "line-color", colours.coast], ["leaf-lines", "line-color", colours.ink],
      ["draft", "fill-color", colours.ink], ["draft-lines", "line-color", colours.ink],
    ]) this.map.setPaintProperty(layer, property, colour);
    this.passing.recolour(colours.passing);
    this.map.triggerRepaint();
  }

  get ramp() {
    return RAMPS[this.theme];
  }

  /** Shows what has been instead of what passes, or that again. */
  replay(on) {
    this.past.clear();
    [this.passing.hidden, this.past.hidden, this.points] = [on, !on, on ? this.past : this.passing];
    this.map.triggerRepaint();
  }

  // ---------------------------------------------------------------------------------------------------------- objects

  /** An object that only passes. */
  pass(x, y, about) {
    this.points.add(this.space.unit(x, y), THEMES[this.theme].passing, 3.6, about);
  }

  /** An object that a question has found; what is given is for {@link unmark}. */
  mark(x, y, colour, about) {
    return this.points.add(this.space.unit(x, y), [...rgb(colour), 255], 6.5, about, true);
  }

  unmark(i, about) {
    this.points.remove(i, about);
  }

  /** Draws again while something is new: often enough to be seen moving, and no more than the machine can. */
  #paint() {
    const seconds = still() ? 30 : 2.5;
    const now = this.points.now();
    if (document.visibilityState === "visible" && now - this.points.newest < seconds) {
      const began = performance.now();
      this.map.once("render", () => (this.lag = 0.7 * this.lag + 0.3 * (performance.now() - began)));
      this.map.triggerRepaint();
    }
    setTimeout(() => this.#paint(), Math.max(still() ? 500 : FRAME, Math.min(SLOWEST, 3 * (this.lag - SCREEN))));
  }

  /** What is under a pixel, if anything is near enough. */
  under(point) {
    if (this.space === null) return null;
    const [x, y] = this.space.fromMap(this.map.unproject(point));
    return this.points.nearest(this.space.unit(x, y), 9 / (512 * 2 ** this.map.getZoom()));
  }

  // ---------------------------------------------------------------------------------------------------------- regions

  /** Draws the region, or the point, of a question. */
  async setRegion(id, query, colour) {
    if (this.missing) return;
    await this.ready;
    const known = this.regions.get(id);
    const number = known?.number ?? (this.regions.size ? Math.max(...[...this.regions.values()].map((each) => each.number)) + 1 : 1);
    if (known?.marker) known.marker.remove();
    const entry = { number, colour, lit: 0, marker: null, feature: null };
    if (query.region && !this.space.isEverywhere(query.region)) {
      const geometry = { type: "Polygon", coordinates: [this.space.ring(query.region)] };
      entry.feature = { type: "Feature", id: number, properties: { colour }, geometry };
    } else if (query.at) {
      const pin = document.createElement("div");
      pin.className = "pin";
      pin.style.setProperty("--colour", colour);
      entry.marker = new maplibre.Marker({ element: pin }).setLngLat(this.space.onMap(query.at)).addTo(this.map);
      pin.removeAttribute("tabindex");
      pin.setAttribute("aria-hidden", "true");
    }
    this.regions.set(id, entry);
    this.#drawRegions();
  }

  async removeRegion(id) {
    if (this.missing) return;
    await this.ready;
    this.regions.get(id)?.marker?.remove();
    this.regions.delete(id);
    this.setLinks(id, null, []);
    this.#drawRegions();
  }

  #drawRegions() {
    const features = [...this.regions.values()].map((each) => each.feature).filter(Boolean);
    this.map.getSource("regions").setData({ type: "FeatureCollection", features });
  }

  /** Lines from the point of a question to what is nearest to it. */
  setLinks(id, at, places) {
    if (this.missing) return;
    const entry = this.regions.get(id);
    if (entry) {
      const from = at && this.space.onMap(at);
      entry.links = places.map((each) => {
        const to = this.space.onMap(each);
        const lng = this.space.geographic ? from[0] + (((to[0] - from[0] + 540) % 360) - 180) : to[0];
        return { type: "Feature", properties: { colour: entry.colour }, geometry: { type: "LineString", coordinates: [from, [lng, to[1]]] } };
      });
    }
    const features = [...this.regions.values()].flatMap((each) => each.links ?? []);
    this.map.getSource("links")?.setData({ type: "FeatureCollection", features });
  }

  /** Lets the region of a question light up for a moment. */
  light(id) {
    const entry = this.regions.get(id);
    if (!entry?.feature || still()) return;
    const dim = () => {
      entry.lit = entry.lit > 0.05 ? entry.lit * 0.55 : 0;
      if (this.regions.get(id) === entry && this.map.style) this.map.setFeatureState({ source: "regions", id: entry.number }, { lit: entry.lit });
      if (entry.lit > 0) setTimeout(dim, 110);
    };
    const dark = entry.lit === 0;
    entry.lit = 1.8;
    if (dark) dim();
  }

  // ----------------------------------------------------------------------------------------------------------- leaves

  /** Draws leaves, each with a `box`, a `colour` and what else is to be known of it. */
  async setLeaves(leaves) {
    if (this.missing) return;
    await this.ready;
    const features = leaves.map((leaf, id) => ({
      type: "Feature", id, properties: { colour: leaf.colour, leaf: id },
      geometry: { type: "Polygon", coordinates: [this.space.ring({ box: leaf.box })] },
    }));
    this.leaves = leaves;
    this.map.getSource("leaves").setData({ type: "FeatureCollection", features });
  }

  leafAt(point) {
    const found = this.leaves?.length && this.map.style ? this.map.queryRenderedFeatures(point, { layers: ["leaves"] }) : [];
    return found.length ? this.leaves[found[0].properties.leaf] : null;
  }

  // ------------------------------------------------------------------------------------------------------------- view

  fit(extent, ms = 700) {
    if (extent === null) this.map.easeTo({ center: MIDDLE, zoom: whole(this.map.getContainer()), duration: still() ? 0 : ms });
    else {
      const free = this.map.getContainer().clientHeight - this.covered();
      const edge = Math.min(60, free / 5);
      this.map.fitBounds(extent, { padding: { top: edge, left: edge, right: edge, bottom: edge + this.covered() }, maxZoom: 11, duration: still() ? 0 : ms });
    }
  }

  get view() {
    const { lng, lat } = this.map.getCenter();
    return { center: [lng, lat], zoom: this.map.getZoom() };
  }

  setDraft(region) {
    if (this.missing) return;
    const features = region ? [{ type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [this.space.ring(region)] } }] : [];
    this.ready.then(() => this.map.getSource("draft").setData({ type: "FeatureCollection", features }));
  }
}

/** The zoom at which the inhabited world fits. */
const whole = (container) => Math.log2(Math.max(container.clientWidth / 530, container.clientHeight / 430, 0.75));

export const Marker = maplibre.Marker;

const rgb = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));

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

const drawn = (geometry) => ({ type: "Feature", properties: {}, geometry });

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
  return { type: "Feature", properties: {}, geometry: { type: "MultiLineString", coordinates: lines } };
}

const plane = (space) => ({ type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [space.ring({ box: space.bounds })] } });
