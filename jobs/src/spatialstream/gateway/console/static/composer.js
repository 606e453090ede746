// The form of a query, and its region on the map.

import { KINDS } from "./kinds.js";
import { hasInside, moved, placesOf, polygonOf, readPolygon } from "./polygon.js";
import { SELECTIONS, isContinuous, isRanked, nameOf, parseRanked, parseWords, regionOf, takes, wordsText } from "./query.js";
import { pointOn } from "./web/canvas.js";
import { el, icon, say } from "./web/dom.js";
import { corners, rounded } from "./web/geometry.js";

const SPANS = [["1m", "1 minute"], ["5m", "5 minutes"], ["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["1d", "1 day"], ["7d", "7 days"]];
const STEPS = [["5s", "5 seconds"], ["10s", "10 seconds"], ["1m", "1 minute"], ["5m", "5 minutes"], ["1h", "1 hour"]];
const BETWEEN = "between"; // in place of a half-life
const HALF_LIVES = [["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["1d", "1 day"], ["7d", "7 days"], [BETWEEN, "none: between two times"]];
const NOTES = ["An object must have all words; a | b for either, -c for without.", "The best are near, recent and about these words, of which one is enough; -c for without."];
const DURATIONS = [["1h", "1 hour"], ["1d", "1 day"], ["7d", "7 days"], ["", "until cancelled"]];
const FIELDS = { box: ["West", "South", "East", "North"], circle: ["Longitude", "Latitude", "Radius, km"], at: ["Longitude", "Latitude"] };
const NEAR = 10; // px, at which a click is on a corner
const MOST_HANDLES = 60; // more corners cannot be told apart
const PLAIN = { box: ["Left", "Bottom", "Right", "Top"], circle: ["x", "y", "Radius"], at: ["x", "y"] };

export class Composer {
  /** @param {HTMLFormElement} form @param {object} app the page: `map`, `space`, `properties`, `fields`, `ranking`, `mayWrite`, `submit(query)` */
  constructor(form, app) {
    [this.form, this.app] = [form, app];
    this.region = null;
    this.at = null;
    this.replaced = null; // the continuous query to be replaced by the next one registered
    this.handles = [];
    this.drawing = null;
    this.hint = document.getElementById("hint");
    form.append(...this.#parts());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit(event.submitter?.value ?? "once");
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.drawing === null) return;
      event.preventDefault(); // but leave nothing else
      this.#stopDrawing();
    });
    document.addEventListener("dragover", (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault());
    document.addEventListener("drop", async (event) => {
      const [file] = event.dataTransfer?.files ?? [];
      if (!file) return;
      event.preventDefault();
      this.#take(() => file.text(), (text) => this.app.areas.take(file.name, text));
    });
    this.#update();
  }

  /** The types of what is chosen to be selected, by whether they are asked `once` or `continuous`. */
  get types() {
    return SELECTIONS.get(this.form.elements.selection.value);
  }

  /** Whether a query of that has a field, asked in either way. */
  #takes(field) {
    return Object.values(this.types).some((type) => takes(type, field));
  }

  #parts() {
    const radio = ([value, types], i) => el("label", {}, el("input", { type: "radio", name: "selection", value, checked: i === 0, onchange: () => this.#update() }), el("span", { text: nameOf(Object.values(types)[0]) }));
    const draw = (shape, name, text) => el("button", { type: "button", "data-shape": shape, "aria-pressed": "false", onclick: () => this.draw(shape) }, icon(name), el("span", { text }));
    const select = (name, choices, chosen) => el("select", { name }, choices.map(([value, text]) => el("option", { value, text, selected: value === chosen })));
    this.where = el("div", { class: "where", role: "group", "aria-label": "Where" },
      draw("box", "box", "Box"), draw("circle", "circle", "Circle"), draw("polygon", "polygon", "Polygon"), draw("at", "pin", "Point"), draw("everywhere", "world", "Everywhere"));
    this.fields = el("div", { class: "numbers" });
    this.named = el("p", { class: "named", hidden: true });
    this.text = el("textarea", { name: "geojson", rows: 3, spellcheck: "false", autocomplete: "off", onchange: () => this.#take(() => this.text.value, (text) => this.take(this.#near({ polygon: readPolygon(text) }))) });
    this.margin = el("label", { class: "row", hidden: true }, el("span", { text: "And within, m" }), el("input", { name: "within", type: "number", min: 0, step: "any", value: 0, inputmode: "decimal", onchange: () => this.#margin() }));
    this.geojson = el("label", { class: "geojson", hidden: true }, el("span", { text: "GeoJSON: paste it, or drop a file on the page" }), this.text);
    this.byView = el("button", { type: "button", class: "link", text: "what the map shows", onclick: () => this.#fromView() });
    this.lookBack = el("label", { class: "row" }, el("span", { text: "Over the last" }), select("span", SPANS, "15m"));
    this.howMany = el("label", { class: "row" }, el("span", { text: "How many" }), el("input", { name: "k", type: "number", min: 1, max: 100, value: 10, inputmode: "numeric" }));
    this.step = el("label", { class: "row" }, el("span", { text: "Repeat every" }), select("step", STEPS, "10s"));
    this.lifetime = el("label", { class: "row" }, el("span", { text: "Duration" }), select("lifetime", DURATIONS, "1d"));
    this.once = el("button", { type: "submit", value: "once", class: "primary", text: "Run once" });
    this.register = el("button", { type: "submit", value: "continuous", class: "primary second", text: "Register" });
    this.error = el("p", { class: "error", role: "alert" });
    this.properties = el("p", { class: "note", id: "condition-note" });
    this.wrongCondition = el("p", { class: "error", role: "alert", id: "condition-error" });
    this.condition = el("div", { class: "condition", hidden: true },
      el("label", { class: "words" }, el("span", { text: "Where" }), el("input", { name: "condition", type: "text", placeholder: "any properties", autocomplete: "off", spellcheck: "false", "aria-describedby": "condition-note condition-error", oninput: () => this.#tellCondition("") })),
      this.properties, this.wrongCondition);
    const row = (text, input) => el("label", { class: "row" }, el("span", { text }), input);
    const when = (name) => el("input", { name, type: "datetime-local", step: 1 });
    this.radius = row("Within, km", el("input", { name: "radius", type: "number", min: 0, step: "any", value: 50, inputmode: "decimal", oninput: () => this.#show() }));
    this.aging = row("Half-life of words", select("halfLife", HALF_LIVES, "6h"));
    this.aging.addEventListener("change", () => this.#update());
    this.between = [row("From, UTC", when("first")), row("Until, UTC", when("last"))];
    this.shown = el("fieldset", { class: "shown", hidden: true });
    this.wordsNote = el("p", { class: "note", id: "words-note" });
    this.note = el("p", { class: "note", id: "composer-note" });
    this.instead = el("p", { class: "note", role: "status", hidden: true });
    return [
      el("div", { class: "kinds", role: "radiogroup", "aria-label": "What" }, [...SELECTIONS].map(radio)),
      this.where,
      el("div", { class: "exactly" }, this.named, this.fields, this.geojson, this.margin, this.byView),
      el("label", { class: "words" }, el("span", { text: "Words" }), el("input", { name: "words", type: "text", placeholder: "any text", autocomplete: "off", spellcheck: "false", "aria-describedby": "words-note" })),
      this.wordsNote,
      this.condition,
      el("div", { class: "rows" }, this.radius, this.aging, ...this.between, this.lookBack, this.howMany, this.step, this.lifetime),
      this.shown,
      el("div", { class: "actions" }, this.once, this.register),
      this.instead, this.note, this.error,
    ];
  }

  /** Shows the fields of the chosen query type. */
  #update() {
    this.form.inert = this.app.space === null; // places have no meaning before the stream's space is known
    this.#offer();
    const ranks = this.#takes("words");
    const aged = this.form.elements.halfLife.value !== BETWEEN;
    [this.radius.hidden, this.aging.hidden] = [!ranks, !ranks];
    this.between.forEach((each) => (each.hidden = !ranks || aged));
    this.lookBack.hidden = ranks && !aged;
    say(this.radius.querySelector("span"), this.app.space?.geographic === false ? "Within" : "Within, km");
    say(this.wordsNote, NOTES[Number(ranks)]);
    this.form.elements.words.placeholder = ranks ? "flood river" : "any text";
    this.step.hidden = !this.#takes("step");
    this.howMany.hidden = !this.#takes("k");
    const properties = Object.entries(this.app.properties ?? {});
    this.condition.hidden = !properties.length || !this.#takes("where");
    say(this.properties, `A condition in CQL2 on ${properties.map(([name, type]) => `${name} (${type})`).join(", ")}.`);
    this.once.hidden = this.types.once === undefined;
    this.register.hidden = this.types.continuous === undefined || (ranks && !aged);
    this.shown.hidden = !this.app.fields?.length || !this.#takes("fields");
    for (const each of this.where.children) {
      const shape = each.dataset.shape;
      each.hidden = (shape === "at") !== this.#takes("at");
      each.setAttribute("aria-pressed", String(shape === this.drawing || (this.drawing === null && shape === this.shape)));
    }
    say(this.byView, this.#takes("at") ? "the middle of the map" : "what the map shows");
    this.#numbers();
    this.#show();
    const reason = this.app.readOnlyReason?.() ?? null;
    const muted = this.app.mutedReason?.() ?? null;
    say(this.note, [muted, reason].filter(Boolean).join(" "));
    for (const [button, why] of [[this.once, muted], [this.register, reason]]) {
      button.disabled = why !== null || button.hidden;
      if (why !== null) button.setAttribute("aria-describedby", "composer-note");
      else button.removeAttribute("aria-describedby");
    }
  }

  /** Offers what the stream answers, and the fields that it keeps. */
  #offer() {
    const best = (each) => isRanked(Object.values(SELECTIONS.get(each.value))[0]);
    const radios = [...this.form.elements.selection];
    radios.filter(best).forEach((each) => (each.parentElement.hidden = !this.app.ranking));
    if (!this.app.ranking && radios.some((each) => each.checked && best(each))) radios[0].checked = true;
    const fields = this.app.fields ?? [];
    if (this.shown.dataset.of === fields.join()) return;
    this.shown.dataset.of = fields.join();
    this.shown.replaceChildren(el("legend", { text: "Rows show" }),
      ...fields.map((name) => el("label", {}, el("input", { type: "checkbox", name: "field", value: name, checked: true }), el("span", { text: name }))));
  }

  /** The disk in which a query that ranks looks; null: it does not, or the place is not chosen. */
  get #disk() {
    if (!this.#takes("radius") || !this.at) return null;
    const radius = this.#radius();
    return radius > 0 ? { circle: [...this.at, radius] } : null;
  }

  #radius() {
    return Number(this.form.elements.radius.value) * (this.app.space.geographic ? 1000 : 1);
  }

  /** The shape of the chosen place. */
  get shape() {
    if (this.app.space === null) return null;
    if (this.#takes("at")) return this.at ? "at" : null;
    if (!this.region) return null;
    if (this.app.space.isEverywhere(this.region)) return "everywhere";
    return ["area", "box", "circle", "polygon"].find((each) => this.region[each]);
  }

  /** Takes a region into the form. */
  take(region, fits = true) {
    this.#stopDrawing();
    say(this.error, "");
    this.region = region;
    if (this.#takes("at")) this.form.elements.selection.value = [...SELECTIONS].find(([, types]) => takes(Object.values(types)[0], "region"))[0];
    this.#update();
    if (fits) this.app.map.fit(this.app.extent({ region }));
  }

  /** Draws the region anew: what it is on the map may be known only now. */
  redraw() {
    this.#show();
  }

  refresh() {
    this.#stopDrawing();
    this.#update();
  }

  /** Puts a query into the form, to be changed; the query registered next replaces a continuous one. */
  edit(query, replaced = null) {
    this.#replace(replaced);
    const { elements } = this.form;
    elements.selection.value = KINDS[query.type].selects;
    const { area, within } = query.region ?? {};
    this.region = area ? { area, ...(within && { within }) } : (query.region ?? null);
    this.at = query.at ?? null;
    elements.words.value = wordsText(query);
    elements.condition.value = typeof query.where === "object" && query.where !== null ? JSON.stringify(query.where) : (query.where ?? "");
    this.#tellCondition("");
    if (query.k) elements.k.value = query.k;
    if (query.radius) elements.radius.value = rounded(query.radius / (this.app.space.geographic ? 1000 : 1), 3);
    const at = (ms) => new Date(ms).toISOString().slice(0, 19);
    if (query.between) [elements.first.value, elements.last.value] = query.between.map(at);
    for (const each of this.shown.querySelectorAll("input")) each.checked = query.fields?.includes(each.value) ?? true;
    const choose = (select, value) => {
      if ([...select.options].some((each) => each.value === value)) select.value = value;
    };
    choose(elements.span, isContinuous(query) ? query.window : query.duration);
    choose(elements.step, query.step);
    choose(elements.halfLife, query.between ? BETWEEN : query.halfLife);
    if (isContinuous(query)) choose(elements.lifetime, query.duration ?? "");
    this.#update();
    this.app.map.fit(this.app.extent({ ...query, region: regionOf(query) }));
    elements.words.focus();
  }

  #replace(card) {
    this.replaced = card;
    this.instead.hidden = card === null;
    if (card !== null) {
      this.instead.replaceChildren(`Registering replaces ${card.summary.title}. `,
        el("button", { type: "button", class: "link", text: "Keep both", onclick: () => this.#replace(null) }));
    }
  }

  #query(how) {
    const { elements } = this.form;
    const type = this.types[how];
    const query = { type, ...(isRanked(type) ? parseRanked : parseWords)(elements.words.value) };
    if (takes(type, "at")) {
      if (!this.at) return this.#wrong("A place is required: choose Point and click on the map, or type its coordinates.");
      query.at = this.at;
    } else {
      if (!this.region) return this.#wrong("A region is required: draw a box, a circle or a polygon on the map, choose one of the areas, or Everywhere.");
      query.region = this.region;
    }
    const condition = this.condition.hidden ? "" : elements.condition.value.trim();
    if (condition && !takes(type, "where")) return this.#tellCondition(`A query of this type that is ${how === "once" ? "run once" : "registered"} takes no condition.`);
    if (condition) {
      try {
        query.where = condition.startsWith("{") ? JSON.parse(condition) : condition;
      } catch (problem) {
        return this.#tellCondition(`This is not CQL2 as JSON: ${problem.message}`);
      }
    }
    if (takes(type, "k")) query.k = Number(elements.k.value);
    if (isRanked(type) && !this.#rank(query)) return null;
    const shown = [...this.shown.querySelectorAll("input")];
    if (!this.shown.hidden && takes(type, "fields") && !shown.every((each) => each.checked)) query.fields = shown.filter((each) => each.checked).map((each) => each.value);
    if (how === "once") {
      if (!query.between) query.duration = elements.span.value;
    } else {
      if (takes(type, "window")) query.window = elements.span.value;
      if (takes(type, "step")) query.step = elements.step.value;
      if (elements.lifetime.value) query.duration = elements.lifetime.value;
    }
    return query;
  }

  /** Puts into a query by what it ranks, besides the words; whether that is complete. */
  #rank(query) {
    const { elements } = this.form;
    if (!query.words.length) return this.#wrong("Words are required: those by which objects rank.");
    query.radius = this.#radius();
    if (elements.halfLife.value !== BETWEEN) query.halfLife = elements.halfLife.value;
    else {
      query.between = [elements.first.value, elements.last.value].map((each) => Date.parse(`${each}Z`));
      if (!query.between.every(Number.isFinite)) return this.#wrong("Two times are required: from when, and until when.");
    }
    return query;
  }

  /** Says at the condition what is wrong with it. */
  #tellCondition(text) {
    say(this.wrongCondition, text);
    this.form.elements.condition.setAttribute("aria-invalid", String(text !== ""));
    return null;
  }

  #wrong(text) {
    say(this.error, text);
    return null;
  }

  async #submit(how) {
    say(this.error, "");
    this.#tellCondition("");
    const query = this.#query(how);
    if (query === null) return;
    const button = how === "continuous" ? this.register : this.once;
    button.setAttribute("aria-busy", "true");
    try {
      await this.app.submit(query, this.replaced);
    } catch (problem) {
      if (problem.errors?.[0]?.pointer?.endsWith("/where")) this.#tellCondition(problem.errors[0].detail);
      else this.#wrong(problem.errors?.[0] ? `${problem.errors[0].pointer?.replace("#/", "") ?? ""}: ${problem.errors[0].detail}`.replace(/^: /, "") : problem.message);
    } finally {
      button.removeAttribute("aria-busy");
    }
  }

  // ---------------------------------------------------------------------------------------------- places, by numbers

  /** The region with the margin of the form. */
  #near(region) {
    const within = Number(this.margin.querySelector("input").value);
    return within > 0 ? { ...region, within } : region;
  }

  /** Takes the margin of the form. */
  #margin() {
    const { within, ...region } = this.region ?? {};
    if (region.polygon || region.area) this.region = this.#near(region);
    this.#show();
  }

  #numbers() {
    const shape = this.shape === "everywhere" ? null : this.shape;
    const { space } = this.app;
    const names = (space?.geographic ? FIELDS : PLAIN)[shape] ?? [];
    const values = shape === "at" ? this.at : names.length ? [...this.region[shape]] : [];
    this.geojson.hidden = shape !== "polygon";
    this.named.hidden = shape !== "area";
    this.margin.hidden = shape !== "polygon" && shape !== "area";
    say(this.margin.querySelector("span"), space?.geographic === false ? "And within" : "And within, m");
    const within = this.margin.querySelector("input");
    if (document.activeElement !== within) within.value = (!this.margin.hidden && this.region.within) || 0;
    if (shape === "area") say(this.named, `In the area ${this.region.area}`);
    if (shape === "polygon" && document.activeElement !== this.text) this.text.value = JSON.stringify(this.region.polygon);
    if (shape === "circle" && space.geographic) values[2] /= 1000;
    if (this.fields.children.length !== names.length || this.fields.dataset.shape !== shape) {
      this.fields.dataset.shape = shape ?? "";
      this.fields.replaceChildren(...names.map((name) => el("label", {}, el("span", { text: name }), el("input", { type: "number", step: "any", onchange: () => this.#typed() }))));
    }
    [...this.fields.querySelectorAll("input")].forEach((input, i) => {
      if (document.activeElement !== input) input.value = rounded(values[i], 3);
    });
  }

  #typed() {
    const numbers = [...this.fields.querySelectorAll("input")].map((each) => Number(each.value));
    if (!numbers.every(Number.isFinite)) return;
    const shape = this.fields.dataset.shape;
    if (shape === "circle" && this.app.space.geographic) numbers[2] *= 1000;
    if (shape === "at") this.at = numbers;
    else this.region = { [shape]: numbers };
    this.#show();
  }

  /** Takes what a text has, or says what is wrong with it. */
  async #take(read, taken) {
    say(this.error, "");
    try {
      taken(await read());
    } catch (problem) {
      this.#wrong(problem.message);
    }
  }

  #fromView() {
    const { map, space } = this.app;
    const [low, high] = map.corners;
    const [[west, south], [east, north]] = [space.inside(low), space.inside(high)];
    const whole = space.geographic && high[0] - low[0] >= 360;
    this.#stopDrawing();
    if (this.#takes("at")) this.at = this.#placed(map.center);
    else this.region = { box: (whole ? [-180, south, 180, north] : [west, south, east, north]).map((each) => rounded(each)) };
    this.#update();
  }

  #placed(place) {
    return this.app.space.inside(place).map((each) => rounded(each));
  }

  // ------------------------------------------------------------------------------------------------ places, by hand

  /** Starts drawing with a shape in the middle of the map, whose numbers may also be edited; a second call ends it. */
  draw(shape) {
    const was = this.drawing;
    this.#stopDrawing();
    if (shape === was) return;
    if (shape === "everywhere") {
      this.region = this.app.space.everywhere;
      this.#update();
      return;
    }
    if (this.shape !== shape) this.#middle(shape);
    this.drawing = shape;
    const { map } = this.app;
    const { surface } = map;
    surface.classList.add("drawing");
    say(this.hint, { box: "Drag from corner to corner", circle: "Drag from the middle outwards", polygon: "Click corner after corner, at the end the first one again", at: "Click on a place" }[shape]);
    this.hint.hidden = false;
    map.pans(false);
    const where = (event) => map.at(pointOn(surface, event));
    this.handlers = shape === "polygon" ? this.#corners(where) : this.#drag(shape, where);
    for (const [name, handler] of this.handlers) surface.addEventListener(name, handler, true);
    this.#update();
  }

  /** Handlers that drag a shape from one place to another. */
  #drag(shape, where) {
    const { surface } = this.app.map;
    let [start, before] = [null, null];
    const down = (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      event.preventDefault();
      event.stopPropagation();
      [start, before] = [where(event), this.region];
      surface.setPointerCapture(event.pointerId);
      if (shape === "at") this.#drawn(shape, start, start);
    };
    const move = (event) => start && shape !== "at" && this.#drawn(shape, start, where(event));
    const up = (event) => {
      if (!start) return;
      if (shape !== "at") this.#drawn(shape, start, where(event));
      const large = shape === "at" || this.#isLarge();
      start = null;
      if (!large) this.region = before;
      if (large) this.#stopDrawing();
      else this.#update();
    };
    return [["pointerdown", down], ["pointermove", move], ["pointerup", up], ["pointercancel", up]];
  }

  /** Handlers that put a polygon together by clicks. */
  #corners(where) {
    const { map, space } = this.app;
    const places = [];
    const show = (...more) => places.length && map.setDraft({ polygon: polygonOf([...places, ...more], space) });
    const isFirst = (event) => Math.hypot(...pointOn(map.surface, event).map((each, i) => each - map.pixel(places[0])[i])) < NEAR;
    this.finish = () => {
      if (places.length > 2) this.region = { polygon: polygonOf(places, space) };
    };
    const down = (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      event.preventDefault();
      event.stopPropagation();
      if (places.length > 2 && isFirst(event)) {
        this.#stopDrawing();
        return;
      }
      this.#unhandled();
      places.push(where(event));
      show();
    };
    return [["pointerdown", down], ["pointermove", (event) => show(where(event))]];
  }

  /** A place in the middle of the map, or a region of half its size, for users who cannot draw. */
  #middle(shape) {
    const { map, space } = this.app;
    const { center } = map;
    const [low, high] = map.corners.map((corner) => corner.map((each, i) => (center[i] + each) / 2));
    if (shape === "at") this.#drawn(shape, center, center);
    else if (shape === "box") this.#drawn(shape, low, high);
    else if (shape === "polygon") this.region = { polygon: polygonOf([low, [high[0], low[1]], high, [low[0], high[1]]], space) };
    else {
      const far = (edge) => space.distance(space.inside(center), space.inside(edge));
      this.#drawn(shape, center, [[high[0], center[1]], [center[0], high[1]]].reduce((a, b) => (far(b) < far(a) ? b : a)));
    }
  }

  #isLarge() {
    const [a, b] = corners(this.app.space.outline(this.region)).map((each) => this.app.map.pixel(each));
    return Math.abs(a[0] - b[0]) > 6 && Math.abs(a[1] - b[1]) > 6;
  }

  #drawn(shape, from, to) {
    const { space } = this.app;
    const [a, b] = [space.inside(from), space.inside(to)];
    if (shape === "at") this.at = this.#placed(to);
    else if (shape === "circle") this.region = { circle: [...a.map((each) => rounded(each)), Math.round(space.geographic ? space.distance(a, b) : 1e6 * space.distance(a, b)) / (space.geographic ? 1 : 1e6)] };
    else {
      // from left to right on the map, whichever corner was first, so a box may cross the antimeridian
      const [west, east] = from[0] <= to[0] ? [a[0], b[0]] : [b[0], a[0]];
      this.region = { box: [west, Math.min(a[1], b[1]), east, Math.max(a[1], b[1])].map((each) => rounded(each)) };
    }
    this.#numbers();
    this.#show();
  }

  #stopDrawing() {
    if (this.drawing === null) return;
    const { map } = this.app;
    for (const [name, handler] of this.handlers) map.surface.removeEventListener(name, handler, true);
    map.surface.classList.remove("drawing");
    map.pans(true);
    this.hint.hidden = true;
    this.drawing = null;
    this.finish?.();
    this.finish = null;
    this.#update();
  }

  /** Takes the region off the map and out of the form. */
  clear() {
    this.region = null;
    this.at = null;
    this.#replace(null);
    this.#update();
  }

  /** Draws the region with handles to drag. */
  #show() {
    const { map, space } = this.app;
    if (!space) return;
    const region = this.#takes("at") ? this.#disk : this.region;
    const drawn = region && !space.isEverywhere(region) ? this.app.areas.drawn(region) : null;
    map.setDraft(drawn);
    const places = region?.area ? [] : this.#places(drawn);
    if (this.handles.length !== places.length) {
      this.#unhandled();
      this.handles = places.map((_, i) => this.#handle(i));
    }
    this.handles.forEach((handle, i) => handle.put(places[i]));
  }

  #unhandled() {
    this.handles.forEach((each) => each.remove());
    this.handles = [];
  }

  #places(region) {
    if (this.#takes("at")) return this.at ? [this.at] : [];
    if (!region) return [];
    if (region.box) {
      const [west, south, east, north] = region.box;
      return [[west, south], [east, south], [east, north], [west, north]];
    }
    if (region.polygon) {
      if (!hasInside(region.polygon)) return [];
      const places = placesOf(region.polygon);
      return places.length > MOST_HANDLES ? [] : places;
    }
    const side = this.app.space.outline(region).reduce((a, b) => (b[0] > a[0] ? b : a));
    return [region.circle.slice(0, 2), this.app.space.inside(side)];
  }

  #handle(i) {
    let fixed = null; // of a box, the corner opposite to the one that is dragged: where it is, and its longitude on the map
    const begun = ([lng]) => {
      if (this.#takes("at") || !this.region.box) return;
      const [west, south, east, north] = this.region.box;
      const ring = this.app.space.outline(this.region);
      const turn = this.app.space.geographic ? 360 * Math.round((lng - ring[i][0]) / 360) : 0; // it may be on another copy of the world
      fixed = { x: i === 0 || i === 3 ? east : west, y: i < 2 ? north : south, lng: ring[(i + 2) % 4][0] + turn };
    };
    const dragged = (place) => {
      const { space } = this.app;
      if (space === null) return;
      const to = this.#placed(place);
      if (this.#takes("at")) this.at = to;
      else if (this.region.polygon) this.region = { ...this.region, polygon: moved(this.region.polygon, i, place, space) };
      else if (this.region.circle) {
        const [x, y, radius] = this.region.circle;
        this.region = { circle: i === 0 ? [...to, radius] : [x, y, space.geographic ? Math.round(space.distance([x, y], to)) : space.distance([x, y], to)] };
      } else {
        // beyond the opposite corner it is the other side, and not the rest of the globe
        const [west, east] = place[0] <= fixed.lng ? [to[0], fixed.x] : [fixed.x, to[0]];
        this.region = { box: [west, Math.min(to[1], fixed.y), east, Math.max(to[1], fixed.y)] };
      }
      this.#numbers();
      this.#show();
    };
    return this.app.map.handle({ begun, dragged });
  }
}
