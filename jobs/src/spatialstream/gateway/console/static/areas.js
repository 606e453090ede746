// The stream's areas, and those of a file that is dropped on the page: on the map, in a list, and as regions of queries.

import { Problem, call, streamPath } from "./api.js";
import { readFeatures } from "./polygon.js";
import { pointOn } from "./web/canvas.js";
import { colour, el, say } from "./web/dom.js";
import { count, counted } from "./web/format.js";
import { corners, ringsOf } from "./web/geometry.js";
import { item } from "./web/lists.js";

const SHOWN = "spatialstream-areas"; // whether the areas are on the map
const CLICK = 4; // px by which the pointer may move in a click
const GEOJSON = { Accept: "application/geo+json" };

export class Areas {
  /** @param {HTMLElement} element a `details` @param {object} app the page */
  constructor(element, app) {
    [this.element, this.app] = [element, app];
    [this.known, this.dropped, this.loading, this.names] = [new Map(), null, null, []];
    this.shown = el("input", { type: "checkbox", onchange: () => this.#switch() });
    this.shown.checked = localStorage.getItem(SHOWN) === "true";
    this.list = el("div", { class: "listed" });
    this.file = el("div", { class: "dropped", role: "group", "aria-label": "Areas of a file", hidden: true });
    this.error = el("p", { class: "error", role: "alert" });
    element.append(el("summary", { text: "Areas" }),
      el("label", { class: "check" }, this.shown, el("span", { text: "Show them on the map; a click takes one as the region" })),
      this.list, this.file, this.error);
    element.addEventListener("toggle", () => element.open && this.load());
    this.#listen();
  }

  /** For another stream. */
  refresh() {
    [this.known, this.loading] = [new Map(), null];
    this.element.open = false;
    this.element.hidden = this.app.stream === null;
    this.list.replaceChildren();
    this.#drop(null);
    this.app.map.setAreas([]);
  }

  /** What is shown of a stream when it is known. */
  begin() {
    if (this.shown.checked) this.load();
    this.#draw();
  }

  /** Reads the areas of the stream, once or again. */
  async load() {
    const { stream } = this.app;
    if (!this.app.rights.has("ask")) {
      this.#say("Your token lacks the right to ask, so areas cannot be shown.");
      return;
    }
    try {
      const said = await call("GET", streamPath(stream, "areas"), undefined, undefined, GEOJSON);
      if (stream !== this.app.stream) return;
      this.known = new Map(said.features.map((each) => [each.id, placed(each.id, each.geometry, each.properties)]));
      this.#fill();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.#say(`The areas cannot be listed: ${problem.message}.`);
    }
    this.#draw();
    this.app.placed();
  }

  /** A region as it is drawn: of an area its polygon, and null while it is not known. */
  drawn(region) {
    if (!region?.area || region.polygon) return region ?? null;
    const area = this.known.get(region.area);
    this.loading ??= area ? null : this.load();
    return area ? { polygon: area.geometry } : null;
  }

  /** The area under a pixel, the smallest if there are several, those of the file first; null: none, or none is shown. */
  under(pixel) {
    const { map, space } = this.app;
    if (!space) return null;
    const at = space.inside(map.at(pixel));
    const within = (areas) => areas.filter((each) => holds(each, at, space)).sort((a, b) => a.size - b.size)[0] ?? null;
    return within(this.dropped?.areas ?? []) ?? (this.shown.checked ? within([...this.known.values()]) : null);
  }

  /** Takes a file of GeoJSON: one polygon as the region, several as a layer of the map. Throws if it has none. */
  take(name, text) {
    if (!this.app.space) throw new Error("The stream is not known yet: drop the file again when it is.");
    if (this.app.view !== "live") this.app.view = "live"; // where the form is
    const found = readFeatures(text);
    const areas = found.features.map((each, i) => placed(String(i + 1), each.geometry, each.properties, each.id));
    this.#drop({ name, areas, collection: found });
    if (areas.length === 1) this.app.composer.take({ polygon: areas[0].geometry });
    else {
      this.element.open = true;
      this.app.map.fit(corners(areas.flatMap((each) => each.box)));
      this.file.scrollIntoView({ block: "nearest" });
    }
  }

  /** Registers the queries of an area anew that have another geometry. */
  async renew(name) {
    try {
      const said = await call("POST", streamPath(this.app.stream, `areas/${encodeURIComponent(name)}/refresh`));
      const [first] = Object.entries(said.refused);
      const rest = first ? `; not ${first[0]}: ${first[1]}` : "";
      this.app.toast(`Registered anew: ${counted(said.refreshed, "query", "queries")} of ${name}${rest}`);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.app.toast(`The queries of ${name} are not registered anew: ${problem.message}`);
    }
    this.app.compare(name);
  }

  // -------------------------------------------------------------------------------------------------------- the panel

  #switch() {
    localStorage.setItem(SHOWN, String(this.shown.checked));
    if (this.shown.checked) this.load();
    this.#draw();
  }

  #say(text) {
    this.list.replaceChildren(el("p", { class: "empty", text }));
  }

  #fill() {
    const areas = [...this.known.values()];
    if (!areas.length) this.#say("The stream knows no areas yet: drop a GeoJSON file on the page to keep some.");
    else this.list.replaceChildren(el("ul", {}, areas.map((each) => el("li", {}, this.#item(each, { area: each.name })))));
  }

  #item(area, region) {
    return item(area.name, [`${count(area.vertices)} vertices`], { class: "object", title: "Take it as the region", onclick: () => this.app.composer.take(region) });
  }

  /** Shows what has been dropped; null: nothing. */
  #drop(dropped) {
    this.dropped = dropped;
    this.file.hidden = dropped === null;
    say(this.error, "");
    if (dropped !== null) this.#offer();
    else this.file.replaceChildren();
    this.#draw();
  }

  #offer() {
    const { name, areas, collection } = this.dropped;
    const reason = this.app.unwritableReason();
    const one = areas.length === 1;
    const choices = namings(areas);
    const called = one ? el("input", { name: "area", type: "text", autocomplete: "off", spellcheck: "false", value: choices[0]?.of(areas[0]) ?? name.replace(/\.\w+$/, "") })
      : el("select", { name: "naming", onchange: () => this.#naming(called.value) }, choices.map((each) => el("option", { value: each.key, text: each.title })));
    const keep = el("button", { type: "button", class: "primary second", text: one ? "Keep it as an area" : `Keep ${areas.length} areas`, disabled: reason !== null || !called.value, onclick: () => this.#keep(keep, called.value) });
    const skipped = collection.skipped ? `, and ${counted(collection.skipped, "feature")} that ${collection.skipped === 1 ? "is" : "are"} no polygon` : "";
    this.listed = el("ul", {});
    this.file.replaceChildren(
      el("h3", { text: name }),
      el("p", { class: "note", text: one ? "It is the region of the form. A stream may keep it, so that queries can name it." : `${counted(areas.length, "polygon")}${skipped}, dashed on the map; a click takes one as the region.` }),
      el("div", { class: "listed" }, this.listed),
      choices.length || one ? el("label", { class: "row" }, el("span", { text: one ? "Name" : "Names are in" }), called) : el("p", { class: "note", text: "No property has a name for each of them." }),
      el("div", { class: "actions" }, keep, el("button", { type: "button", class: "quiet", text: "Take it off the map", onclick: () => this.#drop(null) })),
      el("p", { class: "note", text: reason ?? "" }));
    if (one) called.addEventListener("input", () => (keep.disabled = reason !== null || !called.value.trim()));
    else this.#naming(called.value);
  }

  /** Calls the areas of the file what a property of theirs says. */
  #naming(key) {
    const chosen = namings(this.dropped.areas).find((each) => each.key === key);
    this.dropped.areas.forEach((each, i) => (each.name = chosen?.of(each) ?? String(i + 1)));
    this.listed.replaceChildren(...this.dropped.areas.map((each) => el("li", {}, this.#item(each, { polygon: each.geometry }))));
    this.#draw();
  }

  /** Has the stream keep what has been dropped. */
  async #keep(button, said) {
    const { areas } = this.dropped;
    const one = areas.length === 1;
    say(this.error, "");
    button.setAttribute("aria-busy", "true");
    try {
      const features = areas.map((each) => ({ type: "Feature", id: each.name, properties: {}, geometry: each.geometry }));
      const loaded = one ? await call("PUT", streamPath(this.app.stream, `areas/${encodeURIComponent(said.trim())}`), areas[0].geometry)
        : await call("POST", streamPath(this.app.stream, "areas"), { type: "FeatureCollection", features });
      this.#drop(null);
      this.element.open = true;
      const told = [[loaded.new, "new"], [loaded.changed, "changed"], [loaded.same, "unchanged"]].filter(([names]) => names.length);
      this.app.toast(`Areas: ${told.map(([names, how]) => `${names.length} ${how}`).join(", ")}`);
      await this.load();
      if (one) this.app.composer.take({ area: said.trim() });
      loaded.changed.forEach((each) => this.app.compare(each));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.element.open = true;
      say(this.error, problem.message);
    } finally {
      button.removeAttribute("aria-busy");
    }
  }

  // ---------------------------------------------------------------------------------------------------------- the map

  #draw() {
    if (!this.app.space) return;
    const layer = (areas, style) => areas.map((each) => ({ rings: ringsOf(each.geometry), name: each.name, box: each.box, ...style }));
    const known = this.shown.checked ? layer([...this.known.values()], { hue: colour("ink"), opacity: 0.6, width: 1.1 }) : [];
    this.app.map.setAreas([...known, ...layer(this.dropped?.areas ?? [], { hue: colour("accent"), opacity: 0.9, width: 1.3, dash: [5, 3] })]);
  }

  recolour() {
    this.#draw();
  }

  #listen() {
    const { surface } = this.app.map;
    let down = null;
    surface.addEventListener("pointerdown", (event) => (down = event.button === 0 && event.isPrimary ? pointOn(surface, event) : null));
    surface.addEventListener("pointerup", (event) => {
      const up = pointOn(surface, event);
      const clicked = down !== null && Math.hypot(up[0] - down[0], up[1] - down[1]) < CLICK;
      down = null;
      if (!clicked || this.app.view !== "live" || this.app.composer.drawing !== null || event.target.closest(".handle, button")) return;
      const area = this.under(up);
      if (area) this.app.composer.take(this.known.get(area.name) === area ? { area: area.name } : { polygon: area.geometry }, false);
    });
  }
}

/** An area with what is looked up often. */
function placed(name, geometry, properties, id) {
  const rings = ringsOf(geometry);
  const box = corners(rings.flat());
  const vertices = rings.reduce((sum, ring) => sum + ring.length - 1, 0);
  return { name, geometry, properties: properties ?? {}, id, rings, box, vertices, size: (box[1][0] - box[0][0]) * (box[1][1] - box[0][1]) };
}

/** Whether a place is within: an odd number of edges is to its east. Longitudes of an area may go on beyond 180. */
function holds({ rings, box: [[west, south], [east, north]] }, [x, y], space) {
  if (y < south || y > north) return false;
  return (space.geographic ? [x, x + 360, x - 360] : [x]).some((at) => at >= west && at <= east && rings.filter((ring) => crossed(ring, at, y)).length % 2 === 1);
}

function crossed(ring, x, y) {
  let inside = false;
  for (let i = 1; i < ring.length; i += 1) {
    const [[ax, ay], [bx, by]] = [ring[i - 1], ring[i]];
    if (ay > y !== by > y && x < ax + ((y - ay) / (by - ay)) * (bx - ax)) inside = !inside;
  }
  return inside;
}

/** What may name areas: their ids and the properties that tell all of them apart, `name` first. */
function namings(areas) {
  const keys = [...new Set(areas.flatMap((each) => Object.keys(each.properties)))].sort((a, b) => (b === "name") - (a === "name"));
  const all = [...keys.map((key) => ({ key: `property ${key}`, title: key, value: (each) => each.properties[key] })), { key: "id", title: "the feature's id", value: (each) => each.id }];
  const text = (value) => (typeof value === "string" && value.trim() ? value.trim() : Number.isInteger(value) ? String(value) : null);
  const tells = ({ value }) => {
    const names = areas.map((each) => text(value(each)));
    return !names.includes(null) && new Set(names).size === areas.length;
  };
  // a text is a name rather than a number
  const texts = ({ value }) => areas.every((each) => typeof value(each) === "string");
  return all.filter(tells).sort((a, b) => texts(b) - texts(a)).map((each) => ({ ...each, of: (area) => text(each.value(area)) }));
}
