"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { places, queries, time, space } = data;
  const $ = (id) => document.getElementById(id);
  const TURN = 360, RADIANS = Math.PI / 180, PLAY_SECONDS = 24, FIRST_ITEMS = 100;
  const KINDS = {
    SRQ: ["Snapshot range", "objects in a region, once"],
    SKQ: ["Snapshot nearest", "the k objects nearest to a point, once"],
    STQ: ["Snapshot top terms", "the k most frequent terms in a region, once"],
    CRQ: ["Continuous range", "each object in a region, as it arrives"],
    CKQ: ["Continuous nearest", "the k nearest objects, at each change"],
    CTQ: ["Continuous top terms", "the k most frequent terms in a region, at every step"],
  };
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  // ---------------------------------------------------------------------------------------------------------- state

  const state = { query: -1, from: time.first, until: time.last, item: -1, hover: -1, playing: false };
  const chosen = () => queries[state.query];
  const whole = () => state.from === time.first && state.until === time.last;
  const answers = (query) => query.rows.filter((row) => row.t <= state.until);

  /** The row that holds at the chosen time, for queries whose rows replace each other. */
  function current(query) {
    let low = 0, high = query.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (query.rows[middle].t <= state.until) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  /** Numbers of the places that belong to the answer at the chosen time. */
  function matches(query) {
    if (!query) return [];
    switch (query.type) {
      case "CRQ":
        return query.rows.filter((row) => row.t >= state.from && row.t <= state.until).map((row) => row.o[0]);
      case "SRQ":
        return answers(query).flatMap((row) => row.o).filter((i) => places.t[i] >= state.from);
      case "SKQ":
      case "CKQ": {
        const row = query.rows[current(query)];
        return row ? row.o : [];
      }
      default: {
        const row = query.rows[current(query)];
        if (!row) return [];
        const after = row.t - query.window, first = query.type === "CTQ" ? query.t : -Infinity;
        return query.counted.filter((i) => places.t[i] > after && places.t[i] >= first && places.t[i] <= row.t);
      }
    }
  }

  // ---------------------------------------------------------------------------------------------------------- words

  const number = new Intl.NumberFormat("en");
  const count = (n, one, many = one + "s") => `${number.format(n)} ${n === 1 ? one : many}`;

  /** A time in UTC; a short one has the precision that the whole period asks for. */
  function moment(t, short = false) {
    const date = new Date(t);
    if (Number.isNaN(date.getTime())) return `${t} ms`;
    const text = date.toISOString().replace("T", " ").replace("Z", ""), extent = time.last - time.first;
    if (t % 60000 === 0 || (short && extent > 7200000)) return text.slice(0, -7);
    return t % 1000 === 0 || (short && extent > 120000) ? text.slice(0, -4) : text;
  }

  function far(distance) {
    if (data.distance !== "distance_m") return String(Number(distance.toPrecision(5)));
    if (distance < 1000) return `${distance.toFixed(0)} m`;
    return `${number.format(Number((distance / 1000).toFixed(distance < 100000 ? 1 : 0)))} km`;
  }

  function position(x, y) {
    if (!space.geographic) return `${Number(x.toPrecision(6))}, ${Number(y.toPrecision(6))}`;
    return `${Math.abs(y).toFixed(2)}°${y < 0 ? "S" : "N"} ${Math.abs(x).toFixed(2)}°${x < 0 ? "W" : "E"}`;
  }

  /** An element with texts and elements in it; texts are never read as markup. */
  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (key === "type-colour") element.style.setProperty("--type", `var(--${value})`);
      else if (key in element) element[key] = value;
      else element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }

  // --------------------------------------------------------------------------------------------------------- canvas

  const css = {};
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "card", "ink", "soft", "line", "sea", "land", "shore", "grid", "dot", "recent", "focus",
      ...Object.keys(KINDS)]) css[name] = style.getPropertyValue(`--${name}`).trim();
  }

  /** Fit a canvas to its place on the page and to the screen's pixels. */
  function resize(canvas) {
    const { width, height } = canvas.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return { context, width, height, ratio };
  }

  let due = false;
  function redraw() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; drawMap(); drawTimeline(); });
  }

  // ------------------------------------------------------------------------------------------------------------ map

  const map = $("map"), layers = $("layers");
  const [west, south, east, north] = space.bounds;
  const view = { x: (west + east) / 2, y: (south + north) / 2, scale: 0 };  // middle, pixels per unit
  let size = { width: 1, height: 1 };

  const toX = (x, shift = 0) => (x + shift - view.x) * view.scale + size.width / 2;
  const toY = (y) => (view.y - y) * view.scale + size.height / 2;
  const fromX = (px) => (px - size.width / 2) / view.scale + view.x;
  const fromY = (py) => view.y - (py - size.height / 2) / view.scale;

  const smallest = () => space.geographic
    ? size.width / TURN : 0.7 * Math.min(size.width / (east - west), size.height / (north - south));
  const largest = () => size.width / ((east - west) * (space.geographic ? 0.0005 : 0.002));

  function settle(target) {
    target.scale = Math.min(largest(), Math.max(smallest(), target.scale));
    if (space.geographic) {
      const half = size.height / 2 / target.scale;
      target.y = half >= 90 ? 0 : Math.min(90 - half, Math.max(half - 90, target.y));
      target.x -= TURN * Math.round(target.x / TURN);
    } else {
      target.x = Math.min(east, Math.max(west, target.x));
      target.y = Math.min(north, Math.max(south, target.y));
    }
    return target;
  }

  /** Whole turns by which the world has to be drawn to fill the map. */
  function turns() {
    if (!space.geographic) return [0];
    const result = [];
    const first = Math.floor((fromX(0) + 180) / TURN), last = Math.floor((fromX(size.width) + 180) / TURN);
    for (let i = first; i <= last; i++) result.push(i * TURN);
    return result;
  }

  let flight = 0;
  function fly(target) {
    settle(target);
    cancelAnimationFrame(flight);
    if (calm.matches || document.hidden) { Object.assign(view, target); redraw(); return; }
    const start = { ...view }, began = performance.now();
    if (space.geographic) start.x += TURN * Math.round((target.x - start.x) / TURN);
    const step = (now) => {
      const part = Math.min(1, (now - began) / 450), eased = part < 0.5 ? 2 * part * part : 1 - 2 * (1 - part) ** 2;
      view.x = start.x + (target.x - start.x) * eased;
      view.y = start.y + (target.y - start.y) * eased;
      view.scale = start.scale * (target.scale / start.scale) ** eased;
      redraw();
      if (part < 1) flight = requestAnimationFrame(step); else Object.assign(view, target);
    };
    flight = requestAnimationFrame(step);
  }

  const everything = () => settle({
    x: (west + east) / 2, y: (south + north) / 2,
    scale: Math.min(size.width / (east - west), size.height / (north - south)) * (space.geographic ? 1 : 0.94),
  });

  /** The view that holds the points (flat x, y, x, y), across the antimeridian if that is shorter. */
  function around(points) {
    if (!points.length) return everything();
    let lowY = Infinity, highY = -Infinity;
    const xs = [];
    for (let i = 0; i < points.length; i += 2) {
      xs.push(points[i]);
      lowY = Math.min(lowY, points[i + 1]);
      highY = Math.max(highY, points[i + 1]);
    }
    const extent = (list) => list.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);
    let [lowX, highX] = extent(xs);
    if (space.geographic) {
      const [a, b] = extent(xs.map((x) => (x < 0 ? x + TURN : x)));
      if (b - a < highX - lowX) [lowX, highX] = [a, b];
    }
    if (space.geographic && highX - lowX > 300) [lowX, highX] = [-180, 180];
    const least = (east - west) / 60;
    const spanX = Math.max(least, highX - lowX), spanY = Math.max(least / 2, highY - lowY);
    const scale = Math.min((size.width - 90) / spanX, (size.height - 80) / spanY);
    return { x: (lowX + highX) / 2, y: (lowY + highY) / 2, scale };
  }

  function fit(query) {
    const points = query.rings.flat();
    if (query.at) points.push(...query.at);
    if (query.at) for (const i of matches(query)) points.push(places.x[i], places.y[i]);
    return around(points);
  }

  // Paths in units of the space, made once; edges that only close a shape along the map's edge are not stroked.
  const landFill = new Path2D(), landLine = new Path2D();
  const onEdge = (ax, ay, bx, by) => space.geographic
    && ((Math.abs(ax) === 180 && ax === bx) || (Math.abs(ay) === 90 && ay === by));

  function trace(flat, fill, line) {
    const n = flat.length;
    fill.moveTo(flat[0], flat[1]);
    for (let i = 2; i < n; i += 2) fill.lineTo(flat[i], flat[i + 1]);
    fill.closePath();
    let drawing = false;
    for (let i = 0; i < n; i += 2) {
      const ax = flat[i], ay = flat[i + 1], bx = flat[(i + 2) % n], by = flat[(i + 3) % n];
      if (onEdge(ax, ay, bx, by)) { drawing = false; continue; }
      if (!drawing) line.moveTo(ax, ay);
      line.lineTo(bx, by);
      drawing = true;
    }
  }

  for (const packed of data.land) {
    const flat = [];
    let x = 0, y = 0;
    for (let i = 0; i < packed.length; i += 2) flat.push((x += packed[i]) / 20, (y += packed[i + 1]) / 20);
    trace(flat, landFill, landLine);
  }
  for (const query of queries) {
    query.fill = new Path2D();
    query.line = new Path2D();
    for (const ring of query.rings) trace(ring, query.fill, query.line);
    query.area = query.rings.reduce((sum, ring) => sum + spread(ring), 0);
  }

  /** Points of the great circle (or the straight line) between two points, longitudes without jumps. */
  function between(ax, ay, bx, by) {
    if (!space.geographic) return [[ax, ay], [bx, by]];
    const vector = (x, y) => [Math.cos(y * RADIANS) * Math.cos(x * RADIANS), Math.cos(y * RADIANS) * Math.sin(x * RADIANS), Math.sin(y * RADIANS)];
    const a = vector(ax, ay), b = vector(bx, by);
    const angle = Math.acos(Math.min(1, Math.max(-1, a[0] * b[0] + a[1] * b[1] + a[2] * b[2])));
    if (angle < 1e-6 || Math.PI - angle < 1e-6) return [[ax, ay], [ax + ((((bx - ax) % TURN) + 540) % TURN) - 180, by]];
    const steps = Math.max(2, Math.ceil(angle * 24)), line = [];
    let previous = ax;
    for (let i = 0; i <= steps; i++) {
      const p = Math.sin((1 - i / steps) * angle) / Math.sin(angle), q = Math.sin((i / steps) * angle) / Math.sin(angle);
      const [x, y, z] = [0, 1, 2].map((j) => p * a[j] + q * b[j]);
      let longitude = Math.atan2(y, x) / RADIANS;
      longitude -= TURN * Math.round((longitude - previous) / TURN);
      previous = longitude;
      line.push([longitude, Math.asin(Math.min(1, Math.max(-1, z))) / RADIANS]);
    }
    return line;
  }

  function niceStep(least) {
    if (space.geographic) for (const step of [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30]) if (step >= least) return step;
    if (space.geographic) return 60;
    const power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
  }

  function drawGrid(context) {
    const step = niceStep(110 / view.scale);
    const left = Math.max(fromX(0), space.geographic ? -Infinity : west), right = Math.min(fromX(size.width), space.geographic ? Infinity : east);
    const low = Math.max(fromY(size.height), south), high = Math.min(fromY(0), north);
    context.strokeStyle = css.grid;
    context.fillStyle = css.soft;
    context.lineWidth = 1;
    context.font = "10.5px system-ui, sans-serif";
    context.beginPath();
    const label = (value, names) => space.geographic
      ? `${Number(Math.abs(value).toFixed(2))}°${value === 0 || Math.abs(value) === 180 ? "" : names[value < 0 ? 0 : 1]}`
      : String(Number(value.toPrecision(6)));
    const texts = [];
    for (let i = Math.ceil(left / step); i * step <= right; i++) {
      const px = Math.round(toX(i * step)) + 0.5;
      context.moveTo(px, Math.max(0, toY(north)));
      context.lineTo(px, Math.min(size.height, toY(south)));
      const value = space.geographic ? i * step - TURN * Math.round((i * step) / TURN) : i * step;
      if (px > 40 && px < layers.offsetLeft - 40) texts.push([label(value, "WE"), px + 3, size.height - 6]);
    }
    for (let i = Math.ceil(low / step); i * step <= high; i++) {
      const py = Math.round(toY(i * step)) + 0.5;
      context.moveTo(Math.max(0, space.geographic ? 0 : toX(west)), py);
      context.lineTo(Math.min(size.width, space.geographic ? size.width : toX(east)), py);
      if (py > 16 && py < size.height - 34) texts.push([label(i * step, "SN"), size.width - 36, py - 3]);
    }
    context.stroke();
    return texts;
  }

  /** Draw in units of the space: strokes keep their width in pixels. */
  function inSpace(context, ratio, shift, draw) {
    context.save();
    context.setTransform(ratio * view.scale, 0, 0, -ratio * view.scale,
      ratio * ((shift - view.x) * view.scale + size.width / 2), ratio * (view.y * view.scale + size.height / 2));
    draw(1 / view.scale);
    context.restore();
  }

  function dots(context, shift, numbers, radius) {
    context.beginPath();
    for (const i of numbers) {
      const px = toX(places.x[i], shift), py = toY(places.y[i]);
      if (px < -9 || px > size.width + 9 || py < -9 || py > size.height + 9) continue;
      context.moveTo(px + radius, py);
      context.arc(px, py, radius, 0, 2 * Math.PI);
    }
  }

  let visible = [], matched = [];

  function drawMap() {
    const drawn = resize(map), { context, ratio } = drawn;
    const { width, height } = drawn;
    if (!width) return;
    if (size.width !== width || size.height !== height) {
      const first = !view.scale, scale = view.scale * (width / size.width);
      size = { width, height };
      Object.assign(view, first ? everything() : settle({ ...view, scale }));
    }
    const query = chosen(), copies = turns();
    visible = [];
    for (let i = 0; i < places.t.length; i++) if (places.t[i] >= state.from && places.t[i] <= state.until) visible.push(i);
    matched = matches(query);

    for (const shift of copies) inSpace(context, ratio, shift, (pixel) => {
      context.fillStyle = css.land;
      context.fill(landFill, "evenodd");
      context.strokeStyle = css.shore;
      context.lineWidth = 0.7 * pixel;
      context.stroke(landLine);
    });
    const texts = drawGrid(context);
    if (data.tree && $("show-tree").checked) for (const shift of copies) drawTree(context, shift);
    for (const shift of copies) {
      drawRegions(context, ratio, shift, query);
      if ($("show-objects").checked) {
        context.fillStyle = css.dot;
        context.globalAlpha = query ? 0.3 : 0.5;
        dots(context, shift, visible, 2.1);
        context.fill();
        if (state.until < time.last) {
          const since = state.until - (time.last - time.first) * 0.015;
          context.fillStyle = css.recent;
          context.globalAlpha = 0.85;
          dots(context, shift, visible.filter((i) => places.t[i] > since), 3.2);
          context.fill();
        }
        context.globalAlpha = 1;
      }
      if (query) drawAnswer(context, shift, query);
      drawMarked(context, shift);
    }
    context.font = "10.5px system-ui, sans-serif";
    context.strokeStyle = css.sea;
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.fillStyle = css.soft;
    for (const [text, x, y] of texts) { context.strokeText(text, x, y); context.fillText(text, x, y); }
  }

  function drawTree(context, shift) {
    context.lineWidth = 1;
    data.tree.boxes.forEach(([w, s, e, n], i) => {
      context.globalAlpha = 0.1;
      context.fillStyle = context.strokeStyle = data.tree.colours[data.tree.slots[i]];
      context.fillRect(toX(w, shift), toY(n), (e - w) * view.scale, (n - s) * view.scale);
      context.globalAlpha = 0.75;
      context.strokeRect(toX(w, shift) + 0.5, toY(n) + 0.5, (e - w) * view.scale - 1, (n - s) * view.scale - 1);
    });
    context.globalAlpha = 1;
  }

  function drawRegions(context, ratio, shift, query) {
    const others = $("show-regions").checked, wide = 0.25 * (east - west) * (north - south);
    for (const one of queries) {
      const mine = one === query;
      if (!mine && !others) continue;
      context.strokeStyle = context.fillStyle = css[one.type];
      inSpace(context, ratio, shift, (pixel) => {
        if (mine || (!query && one.area < wide && queries.length <= 40)) {
          context.globalAlpha = mine && one.area < wide ? 0.14 : 0.06;
          context.fill(one.fill, "evenodd");
        }
        context.globalAlpha = mine ? 1 : query ? 0.35 : 0.75;
        context.lineWidth = (mine ? 2.2 : 1.1) * pixel;
        context.stroke(one.line);
      });
      if (one.at && !mine) star(context, toX(one.at[0], shift), toY(one.at[1]), 5.5, css[one.type], query ? 0.45 : 0.9);
    }
    context.globalAlpha = 1;
  }

  function star(context, px, py, radius, colour, alpha) {
    context.globalAlpha = alpha;
    context.beginPath();
    for (let i = 0; i < 8; i++) {
      const turn = (i * Math.PI) / 4, reach = i % 2 ? radius * 0.42 : radius;
      context.lineTo(px + reach * Math.sin(turn), py - reach * Math.cos(turn));
    }
    context.closePath();
    context.fillStyle = colour;
    context.strokeStyle = css.card;
    context.lineWidth = 1.2;
    context.fill();
    context.stroke();
    context.globalAlpha = 1;
  }

  function drawAnswer(context, shift, query) {
    const colour = css[query.type];
    if (query.at) {
      context.strokeStyle = colour;
      context.lineWidth = 1.2;
      context.globalAlpha = 0.75;
      context.beginPath();
      for (const i of matched) {
        between(query.at[0], query.at[1], places.x[i], places.y[i]).forEach(([x, y], j) => {
          if (j) context.lineTo(toX(x, shift), toY(y)); else context.moveTo(toX(x, shift), toY(y));
        });
      }
      context.stroke();
      context.globalAlpha = 1;
    }
    context.fillStyle = colour;
    context.strokeStyle = css.card;
    context.lineWidth = 1;
    const counted = query.type.endsWith("TQ");
    context.globalAlpha = counted ? 0.7 : 1;
    dots(context, shift, matched, counted ? 2.8 : 4.2);
    context.fill();
    if (!counted) context.stroke();
    context.globalAlpha = 1;
    if (query.at) star(context, toX(query.at[0], shift), toY(query.at[1]), 9, colour, 1);
  }

  function drawMarked(context, shift) {
    for (const i of new Set([state.item, state.hover])) {
      if (i < 0) continue;
      context.strokeStyle = css.ink;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(toX(places.x[i], shift), toY(places.y[i]), 7.5, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // ------------------------------------------------------------------------------------------- pointing at the map

  function placeAt(px, py) {
    const pool = $("show-objects").checked ? [...visible, ...matched] : matched;
    const answer = new Set(matched);
    let best = -1, nearest = 81;
    for (const shift of turns()) for (const i of pool) {
      const dx = toX(places.x[i], shift) - px, dy = toY(places.y[i]) - py;
      const square = (dx * dx + dy * dy) * (answer.has(i) ? 0.5 : 1);
      if (square < nearest) { nearest = square; best = i; }
    }
    return best;
  }

  /** The query whose point or smallest region lies under the pointer. */
  function queryAt(px, py) {
    const context = map.getContext("2d");
    let best = -1, area = Infinity;
    queries.forEach((query, q) => {
      for (const shift of turns()) {
        if (query.at) {
          if (Math.hypot(toX(query.at[0], shift) - px, toY(query.at[1]) - py) < 10) { best = q; area = 0; }
          continue;
        }
        context.save();
        context.setTransform(1, 0, 0, 1, 0, 0);
        const inside = context.isPointInPath(query.fill, fromX(px) - shift, fromY(py), "evenodd");
        context.restore();
        if (!inside) continue;
        if (query.area < area) { area = query.area; best = q; }
      }
    });
    return best;
  }

  function spread(ring) {
    let total = 0;
    for (let i = 0, n = ring.length; i < n; i += 2) total += ring[i] * ring[(i + 3) % n] - ring[(i + 2) % n] * ring[i + 1];
    return Math.abs(total) / 2;
  }

  const tip = $("tip");
  function showTip(i, px, py) {
    tip.hidden = i < 0;
    if (i < 0) return;
    const query = chosen(), row = query && query.at ? query.rows[current(query)] : null;
    const rank = row && row.d ? row.o.indexOf(i) : -1;
    const lines = [moment(places.t[i]), position(places.x[i], places.y[i]), `id ${places.id[i]}`];
    if (rank >= 0) lines.unshift(`${rank + 1}. nearest, ${far(row.d[rank])}`);
    tip.replaceChildren(make("b", {}, places.label[i] || "(no text)"), ...lines.map((line) => make("span", {}, line)));
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(size.width - width - 4, px + 14))}px`;
    tip.style.top = `${py + 16 + height < size.height ? py + 16 : Math.max(4, py - height - 12)}px`;
  }

  const here = (event, element) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const pointers = new Map();
  let travelled = 0, pinch = 0;

  function zoom(factor, px = size.width / 2, py = size.height / 2) {
    cancelAnimationFrame(flight);
    const x = fromX(px), y = fromY(py);
    view.scale = Math.min(largest(), Math.max(smallest(), view.scale * factor));
    view.x = x - (px - size.width / 2) / view.scale;
    view.y = y + (py - size.height / 2) / view.scale;
    settle(view);
    redraw();
  }

  map.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== map) return;  // else the wheel scrolls the page
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), ...here(event, map));
  }, { passive: false });
  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, here(event, map));
    travelled = 0;
    pinch = 0;
    cancelAnimationFrame(flight);
    map.classList.add("moving");
  });
  map.addEventListener("pointermove", (event) => {
    const [px, py] = here(event, map), before = pointers.get(event.pointerId);
    if (!before) {
      const found = placeAt(px, py);
      if (found !== state.hover) { state.hover = found; redraw(); }
      map.classList.toggle("over", found >= 0 || queryAt(px, py) >= 0);
      showTip(found, px, py);
      return;
    }
    pointers.set(event.pointerId, [px, py]);
    if (pointers.size === 2) {
      const [[ax, ay], [bx, by]] = [...pointers.values()], gap = Math.hypot(ax - bx, ay - by);
      if (pinch) zoom(gap / pinch, (ax + bx) / 2, (ay + by) / 2);
      pinch = gap;
      travelled = 99;
      return;
    }
    travelled += Math.abs(px - before[0]) + Math.abs(py - before[1]);
    if (travelled < 4) return;
    tip.hidden = true;
    view.x -= (px - before[0]) / view.scale;
    view.y += (py - before[1]) / view.scale;
    settle(view);
    redraw();
  });
  const release = (event) => {
    const [px, py] = here(event, map);
    if (event.type === "pointerup" && travelled < 4 && pointers.size === 1) {
      const found = placeAt(px, py);
      if (found >= 0) { state.item = found; showTip(found, px, py); redraw(); } else {
        const q = queryAt(px, py);
        if (q >= 0) select(q, false);
      }
    }
    pointers.delete(event.pointerId);
    pinch = 0;
    if (!pointers.size) map.classList.remove("moving");
  };
  map.addEventListener("pointerup", release);
  map.addEventListener("pointercancel", release);
  map.addEventListener("pointerleave", () => { tip.hidden = true; state.hover = -1; redraw(); });
  map.addEventListener("dblclick", (event) => zoom(2, ...here(event, map)));
  map.addEventListener("keydown", (event) => {
    const step = 60 / view.scale;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (moves[event.key]) {
      view.x += moves[event.key][0];
      view.y += moves[event.key][1];
      settle(view);
      redraw();
    } else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") fly(everything());
    else return;
    event.preventDefault();
  });
  $("closer").addEventListener("click", () => zoom(1.6));
  $("farther").addEventListener("click", () => zoom(1 / 1.6));
  $("whole").addEventListener("click", () => fly(everything()));
  for (const name of ["show-objects", "show-regions", "show-tree"]) $(name).addEventListener("change", redraw);

  // ------------------------------------------------------------------------------------------------------- timeline

  const line = $("timeline");
  const lineSize = { width: 1, height: 1 };
  const PAD = 8;  // as the slider's thumb, so that both have the same scale
  const span = Math.max(1, time.last - time.first);
  const lineX = (t) => PAD + ((t - time.first) / span) * (lineSize.width - 2 * PAD);
  const lineT = (px) => time.first + Math.min(1, Math.max(0, (px - PAD) / (lineSize.width - 2 * PAD))) * span;

  /** Times of the chosen query's matches or rows, each once. */
  function marks(query) {
    if (query.type === "CRQ") return query.rows.map((row) => row.t);
    if (query.type === "SRQ" || query.type === "SKQ") return query.rows.flatMap((row) => row.o.map((i) => places.t[i]));
    return query.rows.map((row) => row.t);
  }

  function drawTimeline() {
    const { context, width, height } = resize(line);
    Object.assign(lineSize, { width, height });
    const bottom = height - 17, most = Math.max(1, ...time.counts), query = chosen();
    if (query) {
      const left = Math.max(PAD, lineX(query.span[0])), right = Math.min(width - PAD, lineX(query.span[1]));
      context.fillStyle = css[query.type];
      context.globalAlpha = 0.1;
      if (right > left) context.fillRect(left, 0, right - left, bottom);
      context.globalAlpha = 1;
    }
    const bars = (counts, colour, least) => {
      counts.forEach((n, i) => {
        if (!n) return;
        const t = time.start + i * time.width;
        const left = Math.max(PAD, lineX(t)), right = Math.min(width - PAD, lineX(t + time.width));
        const tall = Math.max(least, (n / most) * (bottom - 6));
        const inside = t + time.width > state.from && t <= state.until;
        context.globalAlpha = inside ? 1 : 0.3;
        context.fillStyle = colour;
        context.fillRect(left, bottom - tall, Math.max(1, right - left - (right - left > 3 ? 1 : 0)), tall);
      });
      context.globalAlpha = 1;
    };
    bars(time.counts, css.shore, 1);
    if (query) {
      const times = marks(query);
      if (query.type === "CKQ" || query.type.endsWith("TQ")) {
        context.fillStyle = css[query.type];
        for (const t of times) { context.globalAlpha = t <= state.until ? 0.85 : 0.3; context.fillRect(lineX(t) - 0.5, 2, 1.2, 9); }
        context.globalAlpha = 1;
      } else {
        const counts = new Array(time.counts.length).fill(0);
        for (const t of times) counts[Math.floor((t - time.start) / time.width)]++;
        bars(counts, css[query.type], 3);
      }
    }
    context.fillStyle = css.line;
    context.fillRect(PAD, bottom, width - 2 * PAD, 1);
    context.font = "10.5px system-ui, sans-serif";
    context.fillStyle = css.soft;
    const labels = Math.max(1, Math.floor(width / 130)), step = niceTime(span / labels);
    for (let t = Math.ceil(time.first / step) * step; t <= time.last; t += step) {
      const px = lineX(t), text = tick(t, step), half = context.measureText(text).width / 2;
      context.fillRect(px, bottom, 1, 4);
      context.fillText(text, Math.min(width - 2 * half - 1, Math.max(1, px - half)), height - 3);
    }
    if (!whole()) {
      context.fillStyle = css.focus;
      context.globalAlpha = 0.09;
      context.fillRect(lineX(state.from), 0, lineX(state.until) - lineX(state.from), bottom);
      context.globalAlpha = 1;
      context.fillRect(lineX(state.until) - 0.75, 0, 1.5, bottom);
      if (state.from > time.first) context.fillRect(lineX(state.from) - 0.75, 0, 1.5, bottom);
    }
  }

  function niceTime(least) {
    const second = 1000, minute = 60 * second, hour = 60 * minute, day = 24 * hour;
    for (const step of [1, 2, 5, 10, 20, 50, 100, 200, 500, second, 2 * second, 5 * second, 10 * second, 30 * second, minute, 2 * minute, 5 * minute,
      10 * minute, 30 * minute, hour, 3 * hour, 6 * hour, 12 * hour]) if (step >= least) return step;
    let step = day;
    while (step < least) step *= 2;
    return step;
  }

  function tick(t, step) {
    const text = moment(t, true);
    if (step >= 86400000) return text.slice(0, 10);
    if (t % 86400000 === 0) return text.slice(5, 10);
    if (step >= 60000) return text.slice(11);
    const exact = new Date(t).toISOString();
    return exact.slice(14, step >= 1000 ? 19 : 23);
  }

  let brush = null;
  line.addEventListener("pointerdown", (event) => {
    line.setPointerCapture(event.pointerId);
    brush = { px: here(event, line)[0], moved: false };
    pause();
  });
  line.addEventListener("pointermove", (event) => {
    const [px] = here(event, line);
    if (!brush) {
      const i = Math.floor((lineT(px) - time.start) / time.width);
      const from = time.start + i * time.width;
      line.title = `${moment(from, true)} to ${moment(from + time.width, true)}: ${count(time.counts[i] || 0, "object")}`;
      return;
    }
    if (Math.abs(px - brush.px) > 4) brush.moved = true;
    if (brush.moved) period(lineT(Math.min(px, brush.px)), lineT(Math.max(px, brush.px)));
  });
  line.addEventListener("pointerup", (event) => {
    if (brush && !brush.moved) period(time.first, lineT(here(event, line)[0]));
    brush = null;
  });
  line.addEventListener("pointercancel", () => { brush = null; });

  const slider = $("until");
  slider.addEventListener("input", () => {
    pause();
    const until = Number(slider.value) >= 1000 ? time.last : time.first + (Number(slider.value) / 1000) * span;
    period(Math.min(state.from, until), until);
  });

  function period(from, until) {
    state.from = Math.max(time.first, Math.round(from));
    state.until = Math.min(time.last, Math.round(until));
    slider.value = String(((state.until - time.first) / span) * 1000);
    const text = whole() ? "whole period"
      : state.from === time.first ? `up to ${moment(state.until, true)}` : `${moment(state.from, true)} to ${moment(state.until, true)}`;
    $("now").textContent = text;
    slider.setAttribute("aria-valuetext", text);
    $("all-time").hidden = whole();
    showAnswer();
    redraw();
  }
  $("all-time").addEventListener("click", () => { pause(); period(time.first, time.last); });

  function pause() {
    state.playing = false;
    $("play").textContent = "▶ Play";
    $("play").setAttribute("aria-pressed", "false");
  }
  $("play").addEventListener("click", () => {
    if (state.playing) { pause(); return; }
    state.playing = true;
    $("play").textContent = "❚❚ Pause";
    $("play").setAttribute("aria-pressed", "true");
    if (state.until >= time.last) period(time.first, time.first);
    let before = performance.now();
    const step = (now) => {
      if (!state.playing) return;
      const until = state.until + ((now - before) / 1000 / PLAY_SECONDS) * span;
      if (until - state.until >= 1 || until >= time.last) { period(state.from, until); before = now; }
      if (state.until >= time.last) { pause(); return; }
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  });

  // -------------------------------------------------------------------------------------------------------- queries

  function listQueries() {
    const box = $("queries"), wanted = $("find").value.trim().toLowerCase();
    box.replaceChildren();
    let type = "";
    queries.forEach((query, q) => {
      if (wanted && !`${query.id} ${query.title} ${query.says} ${query.type}`.toLowerCase().includes(wanted)) return;
      if (query.type !== type) {
        type = query.type;
        box.append(make("h3", { "type-colour": type }, make("b", {}, type), ` · ${KINDS[type][0]}`));
      }
      const unit = query.type === "CRQ" || query.type === "SRQ" ? ["match", "matches"]
        : query.type === "CKQ" ? ["change", "changes"] : query.type === "CTQ" ? ["step", "steps"] : ["answer", "answers"];
      const total = query.type === "SRQ" ? query.rows.reduce((sum, row) => sum + row.n, 0) : query.total;
      const button = make("button", { type: "button", className: "query", "type-colour": query.type, "aria-pressed": String(q === state.query) },
        make("b", {}, query.title || query.id), make("span", {}, query.title ? `${query.id} · ` : "", count(total, ...unit)));
      button.dataset.query = q;
      button.addEventListener("click", () => select(q === state.query ? -1 : q));
      box.append(button);
    });
    if (!box.children.length) box.append(make("p", { className: "soft" }, wanted ? "No query like that." : "No queries."));
  }

  function select(q, move = true) {
    state.query = q;
    state.item = -1;
    shownItems = FIRST_ITEMS;
    for (const button of $("queries").querySelectorAll("button")) {
      const mine = Number(button.dataset.query) === q;
      button.setAttribute("aria-pressed", String(mine));
      if (mine && !move) button.scrollIntoView({ block: "nearest" });
    }
    const type = q < 0 ? "" : queries[q].type;
    document.documentElement.style.setProperty("--type", type ? `var(--${type})` : "var(--soft)");
    $("legend-matches").textContent = !type ? "matches of a chosen query"
      : type === "CKQ" ? "moments at which the answer changed" : type.endsWith("TQ") ? "moments of an answer" : "matches";
    $("clear").hidden = q < 0;
    $("found").scrollTop = 0;
    drawnAnswer = "";
    showAnswer();
    if (move) fly(q < 0 ? everything() : fit(queries[q]));
    redraw();
  }
  $("clear").addEventListener("click", () => select(-1));
  $("find").addEventListener("input", listQueries);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && state.query >= 0) select(-1); });

  // -------------------------------------------------------------------------------------------------------- answers

  let shownItems = FIRST_ITEMS, drawnAnswer = "";

  function showAnswer() {
    const query = chosen();
    const key = query ? `${state.query}|${current(query)}|${state.from}|${query.type === "CRQ" ? "" : current(query)}|${shownItems}` : "none";
    if (key === drawnAnswer) return;
    drawnAnswer = key;
    const box = $("found");
    if (!query) { $("found-title").textContent = "Answers"; box.replaceChildren(...introduction()); return; }
    $("found-title").replaceChildren(make("span", { className: "badge" }, query.type), query.title || query.id);
    const parts = [make("p", { className: "says" }, query.says)];
    if (query.type === "CKQ" || query.type === "CTQ") parts.push(stepper(query));
    if (query.type.endsWith("TQ")) parts.push(...termAnswer(query)); else parts.push(...objectAnswer(query));
    parts.push(make("details", {}, make("summary", {}, "The query as it was written"), make("pre", {}, JSON.stringify(query.record, null, 1).replace(/\n\s*/g, " "))));
    const kept = box.querySelector("details");
    if (kept && kept.open) parts[parts.length - 1].open = true;
    box.replaceChildren(...parts);
    drawSteps(query);
  }

  function introduction() {
    const kinds = make("dl", { className: "kinds" });
    for (const [type, [name, says]] of Object.entries(KINDS)) {
      if (!queries.some((query) => query.type === type)) continue;
      kinds.append(make("dt", { "type-colour": type }, `${type} · ${name}`), make("dd", {}, says));
    }
    return [make("p", {}, "Choose a query: from the list, or by its region on the map. The wheel zooms the map once you have clicked it."), kinds];
  }

  function stepper(query) {
    const at = current(query), kind = query.type === "CKQ" ? "change" : "step";
    const hidden = query.total - query.rows.length;
    const go = (i) => { pause(); period(time.first, query.rows[i].t); };
    const back = make("button", { type: "button", disabled: at <= 0, "aria-label": `Previous ${kind}` }, "◀");
    const on = make("button", { type: "button", disabled: at >= query.rows.length - 1, "aria-label": `Next ${kind}` }, "▶");
    back.addEventListener("click", () => { go(at - 1); refocus(0); });
    on.addEventListener("click", () => { go(at + 1); refocus(1); });
    const text = at < 0 ? `no ${kind} yet` : `${kind} ${number.format(hidden + at + 1)} of ${number.format(query.total)} · ${moment(query.rows[at].t, true)}`;
    return make("div", { className: "stepper" }, back, make("span", {}, text), on);
  }

  function refocus(which) {
    const buttons = $("found").querySelectorAll(".stepper button");
    if (buttons[which]) (buttons[which].disabled ? buttons[1 - which] : buttons[which]).focus();
  }

  function objectAnswer(query) {
    const row = query.rows[current(query)];
    if (!row) {
      return [make("p", { className: "count" }, query.rows.length ? "Nothing yet at this time." : "Nothing was found.")];
    }
    let numbers = matches(query), fresh = new Set();
    if (query.type === "CRQ") numbers = [...numbers].reverse();
    if (query.type === "CKQ") {
      const before = query.rows[current(query) - 1];
      const known = new Set(before ? before.o : []);
      fresh = new Set(before ? row.o.filter((i) => !known.has(i)) : []);
    }
    const list = make("ol", { className: "items" });
    numbers.slice(0, shownItems).forEach((i, rank) => {
      const when = make("span", {}, moment(places.t[i], true));
      if (fresh.has(i)) when.append(" ", make("span", { className: "new" }, "new"));
      const button = make("button", { type: "button" }, make("b", {}, places.label[i] || places.id[i]),
        make("span", { className: "far" }, row.d && query.at ? far(row.d[rank]) : ""), when);
      button.addEventListener("mouseenter", () => { state.hover = i; redraw(); });
      button.addEventListener("mouseleave", () => { state.hover = -1; redraw(); });
      button.addEventListener("focus", () => { state.hover = i; redraw(); });
      button.addEventListener("blur", () => { state.hover = -1; redraw(); });
      button.addEventListener("click", () => {
        state.item = i;
        fly({ x: places.x[i], y: places.y[i], scale: Math.max(view.scale, size.width / ((east - west) / 12)) });
      });
      list.append(make("li", {}, button));
    });
    let kept = "";
    if (row.n > row.o.length) kept = ` (of ${number.format(row.n)} in all: the page keeps the first ${number.format(row.o.length)})`;
    else if (query.type === "CRQ" && query.total > query.rows.length) {
      kept = ` (of ${number.format(query.total)} in all: the page keeps the last ${number.format(query.rows.length)})`;
    }
    const order = query.type === "CRQ" ? ", latest first" : query.at ? ", nearest first" : "";
    const parts = [make("p", { className: "count" }, `${count(numbers.length, "object")}${kept}${order}`), list];
    if (numbers.length > shownItems) {
      const more = make("button", { type: "button" }, `show ${number.format(Math.min(FIRST_ITEMS, numbers.length - shownItems))} more`);
      more.addEventListener("click", () => { shownItems += FIRST_ITEMS; showAnswer(); });
      parts.push(more);
    }
    return parts;
  }

  const highest = (query) => query.rows.reduce((most, row) => Math.max(most, row.terms.length ? row.terms[0][1] : 0), 1);

  function termAnswer(query) {
    const row = query.rows[current(query)];
    if (!row) return [make("p", { className: "count" }, "Nothing yet at this time.")];
    const parts = [];
    const most = highest(query);
    if (!row.terms.length) parts.push(make("p", { className: "count" }, "No terms: no object was there to count."));
    const bars = make("div", { className: "bars" });
    for (const [term, n] of row.terms.slice(0, 60)) {
      const bar = make("div", { className: "bar" });
      bar.style.width = `${(100 * n) / most}%`;
      bars.append(make("span", { className: "term", title: term }, term), make("div", {}, bar), make("span", { className: "n" }, number.format(n)));
    }
    parts.push(bars);
    if (query.rows.length > 1) {
      const canvas = make("canvas", { role: "img", "aria-label": "Counts of the most frequent terms at each step; darker is more." });
      parts.push(make("div", { className: "steps" }, make("h3", {}, "Steps over time (darker: more objects)"), canvas));
    }
    return parts;
  }

  /** Terms by steps: how the counts went, for the terms that were most often among the top. */
  function drawSteps(query) {
    const canvas = $("found").querySelector(".steps canvas");
    if (!canvas) return;
    const sums = new Map();
    for (const row of query.rows) for (const [term, n] of row.terms) sums.set(term, (sums.get(term) || 0) + n);
    const terms = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 14).map(([term]) => term);
    const high = 17, label = 92;
    canvas.style.height = `${terms.length * high + 4}px`;
    const { context, width } = resize(canvas);
    const most = highest(query);
    const wide = (width - label) / query.rows.length, at = current(query);
    context.font = "11.5px system-ui, sans-serif";
    terms.forEach((term, i) => {
      context.fillStyle = css.soft;
      let text = term;
      while (text.length > 2 && context.measureText(text).width > label - 8) text = `${text.slice(0, -2)}…`;
      context.fillText(text, 0, i * high + 13);
      query.rows.forEach((row, j) => {
        const found = row.terms.find(([each]) => each === term);
        context.globalAlpha = found ? 0.15 + 0.85 * (found[1] / most) : 1;
        context.fillStyle = found ? css[query.type] : css.grid;
        context.fillRect(label + j * wide, i * high + 1, Math.max(0.6, wide - (wide > 4 ? 1 : 0)), high - 2);
      });
      context.globalAlpha = 1;
    });
    if (at >= 0) {
      context.strokeStyle = css.ink;
      context.lineWidth = 1.5;
      context.strokeRect(label + at * wide - 0.5, 0.75, Math.max(2, wide), terms.length * high);
    }
    const stepAt = (event) => {
      const [px, py] = here(event, canvas), j = Math.floor((px - label) / wide);
      return [j >= 0 && j < query.rows.length ? j : -1, Math.floor(py / high)];
    };
    canvas.onclick = (event) => { const [j] = stepAt(event); if (j >= 0) { pause(); period(time.first, query.rows[j].t); } };
    canvas.onmousemove = (event) => {
      const [j, i] = stepAt(event);
      const found = j >= 0 ? query.rows[j].terms.find(([each]) => each === terms[i]) : null;
      canvas.title = j < 0 || !terms[i] ? "" : `${moment(query.rows[j].t, true)} · ${terms[i]}: ${found ? count(found[1], "object") : "not among the top"}`;
    };
  }

  // ----------------------------------------------------------------------------------------------------------- head

  function figures() {
    const { summary } = data, box = $("figures");
    const add = (name, value, wide = false) => {
      box.append(make("div", { className: wide ? "wide" : "" }, make("dt", {}, name), value instanceof Node ? value : make("dd", {}, value)));
    };
    add("objects", number.format(summary.objects));
    add("queries", number.format(summary.queries));
    const entries = Object.entries(summary.results);
    add("result rows", number.format(entries.reduce((sum, [, n]) => sum + n, 0)));
    if (entries.length) {
      const types = make("dd", { className: "types" });
      for (const [type, n] of entries) types.append(make("span", { className: "type", "type-colour": type }, make("b", {}, type), ` ${number.format(n)}`));
      add("by type", types, true);
    }
    if (summary.rejected !== undefined) add("rejected", number.format(summary.rejected));
    if (summary.seconds !== undefined) {
      add("seconds", summary.seconds.toFixed(1));
      if (summary.seconds > 0) add("objects/s", number.format(Math.round(summary.objects / summary.seconds)));
    }
    $("period").textContent = time.counts.some(Boolean)
      ? `${moment(time.first, true)} to ${moment(time.last, true)} UTC` : "no objects";
    const drawn = places.t.length, parts = [];
    if (data.objects > drawn) parts.push(`The map draws ${number.format(drawn)} of ${count(data.objects, "object")}: all that a query found, and a sample of the others. `);
    if (data.asked > queries.length) parts.push(`The list holds ${number.format(queries.length)} of ${count(data.asked, "query", "queries")}. `);
    $("parts").textContent = parts.join("");
    $("credit").hidden = !data.land.length;
    $("find").hidden = queries.length <= 20;
    $("tree-card").hidden = !data.tree;
    $("show-tree-label").hidden = !data.tree;
  }

  readColours();
  figures();
  listQueries();
  select(-1, false);
  period(time.first, time.last);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    drawnAnswer = "";
    showAnswer();
    redraw();
  });
  new ResizeObserver(redraw).observe($("map-box"));
  new ResizeObserver(redraw).observe(line);
})();
