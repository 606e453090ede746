// Objects on the map, in one buffer: so a layer of its own can have the GPU draw 20,000 of them at little cost, and what is new
// shines by itself. The library's own layers would cut all of them into tiles again whenever one comes.

import { still } from "./web/dom.js";

const ROOM = 20_000;
const FLOATS = 6; // x, y, when it came (s), size (px), colour (packed), kind
const STRIDE = FLOATS * 4;
const LIVES = 90; // s for which what passes stays

const VERTEX = `#version 300 es
in vec2 place; in float came; in float size; in vec4 colour; in float kind;
uniform mat4 matrix; uniform float offset; uniform float now; uniform float ratio; uniform float still; uniform float grow;
out vec4 shade; out float rim; out float edge;
void main() {
  float age = max(0.0, now - came);
  float fresh = still > 0.5 ? 0.0 : exp(-age * 3.0);
  float shown = kind > 0.5 ? 1.0 : 0.18 + 0.72 * exp(-age / 12.0);
  float gone = kind > 0.5 ? 0.0 : smoothstep(${LIVES.toFixed(1)} - 8.0, ${LIVES.toFixed(1)}, age);
  float wide = size * grow * (1.0 + (kind > 0.5 ? 3.2 : 1.1) * fresh);
  gl_Position = matrix * vec4(place.x + offset, place.y, 0.0, 1.0);
  gl_PointSize = (wide + 1.5) * ratio;
  shade = vec4(colour.rgb, colour.a * shown * (1.0 - gone));
  rim = kind > 0.5 ? size * grow / wide : 0.0;
  edge = 1.5 / (wide + 1.5);
  if (colour.a == 0.0 || gone >= 1.0) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 shade; in float rim; in float edge;
out vec4 drawn;
void main() {
  float far = length(gl_PointCoord - 0.5) * 2.0;
  float inside = 1.0 - smoothstep(1.0 - 2.0 * edge, 1.0, far);
  // a match has a core, and a halo as long as it is new
  float core = rim > 0.0 ? 1.0 - smoothstep(rim - edge, rim + edge, far) : 1.0;
  float alpha = shade.a * inside * mix(0.28, 1.0, core);
  drawn = vec4(shade.rgb * alpha, alpha);
}`;

export class Points {
  /** @param {number} room how many there are at most: then the oldest goes */
  constructor(room = ROOM) {
    [this.room, this.hidden] = [room, false];
    this.data = new Float32Array(room * FLOATS);
    this.colours = new Uint8Array(this.data.buffer);
    this.about = new Array(room).fill(null); // what each is about, for whoever points at it
    this.next = 0;
    this.dirty = [room, 0]; // from, to: what the GPU has not got yet
    this.newest = 0;
    this.started = performance.now();
  }

  now() {
    return (performance.now() - this.started) / 1000;
  }

  /** Adds an object. @param {number[]} unit where, in the unit square of the map @param {number[]} colour r, g, b, a to 255 */
  add(unit, colour, size, about, matched = false) {
    const i = this.next;
    this.next = (this.next + 1) % this.room;
    const at = i * FLOATS;
    this.newest = this.now();
    this.data.set([unit[0], unit[1], this.newest, size], at);
    this.data[at + 5] = matched ? 1 : 0;
    this.colours.set(colour, i * STRIDE + 16);
    this.about[i] = about;
    this.#changed(i);
    return i;
  }

  /** Takes an object away, if it is still the one that was put there. */
  remove(i, about) {
    if (this.about[i] !== about) return;
    this.colours.set([0, 0, 0, 0], i * STRIDE + 16);
    this.about[i] = null;
    this.#changed(i);
  }

  clear() {
    this.colours.fill(0);
    this.about.fill(null);
    this.data.fill(0);
    this.dirty = [0, this.room];
  }

  /** Paints what only passes in another colour: for another theme. */
  recolour(colour) {
    for (let i = 0; i < this.room; i += 1) {
      if (this.about[i] !== null && this.data[i * FLOATS + 5] === 0) this.colours.set(colour, i * STRIDE + 16);
    }
    this.dirty = [0, this.room];
  }

  #changed(i) {
    this.dirty = [Math.min(this.dirty[0], i), Math.max(this.dirty[1], i + 1)];
  }

  /** What there is to be seen, in the order in which it is drawn: its place, age (s), how long it is `left`, size (px) and colour. */
  *shown() {
    const now = this.now();
    for (let i = 0; i < this.room; i += 1) {
      if (this.about[i] === null) continue;
      const at = i * FLOATS;
      const found = this.data[at + 5] === 1;
      const age = now - this.data[at + 2];
      const left = found ? Infinity : LIVES - age;
      const rgb = this.colours.subarray(i * STRIDE + 16, i * STRIDE + 19);
      if (left > 0) yield { u: this.data[at], v: this.data[at + 1], age, left, size: this.data[at + 3], found, rgb, about: this.about[i] };
    }
  }

  /** What is nearest to a place of the unit square, within a distance; what a query has found before what only passes. */
  nearest([u, v], within) {
    let [best, least] = [null, Infinity];
    for (const each of this.shown()) {
      const dx = Math.abs(each.u - u);
      const far = Math.hypot(Math.min(dx, 1 - dx), each.v - v);
      const rank = each.found ? far / 4 : far;
      if (far < within && rank < least) [best, least] = [each.about, rank];
    }
    return best;
  }
}

/** They, as a layer that the GPU draws. */
export class PointLayer extends Points {
  type = "custom";
  renderingMode = "2d";
  copies = true;

  constructor(id) {
    super();
    this.id = id;
  }

  onAdd(map, gl) {
    this.map = map;
    this.program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(this.program, shader);
    }
    gl.linkProgram(this.program);
    if (!gl.getProgramParameter(this.program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(this.program));
    this.uniforms = {};
    for (const name of ["matrix", "offset", "now", "ratio", "still", "grow"]) this.uniforms[name] = gl.getUniformLocation(this.program, name);
    this.buffer = gl.createBuffer();
    this.vertices = gl.createVertexArray();
    gl.bindVertexArray(this.vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, this.data.byteLength, gl.DYNAMIC_DRAW);
    const attribute = (name, floats, type, normal, offset) => {
      const place = gl.getAttribLocation(this.program, name);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, floats, type, normal, STRIDE, offset);
    };
    attribute("place", 2, gl.FLOAT, false, 0);
    attribute("came", 1, gl.FLOAT, false, 8);
    attribute("size", 1, gl.FLOAT, false, 12);
    attribute("colour", 4, gl.UNSIGNED_BYTE, true, 16);
    attribute("kind", 1, gl.FLOAT, false, 20);
    gl.bindVertexArray(null);
    this.dirty = [0, this.room];
  }

  render(gl, { defaultProjectionData }) {
    if (this.hidden) return;
    gl.useProgram(this.program);
    gl.bindVertexArray(this.vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    const [from, to] = this.dirty;
    if (from < to) gl.bufferSubData(gl.ARRAY_BUFFER, from * STRIDE, this.data, from * FLOATS, (to - from) * FLOATS);
    this.dirty = [ROOM, 0];
    gl.uniformMatrix4fv(this.uniforms.matrix, false, defaultProjectionData.mainMatrix);
    gl.uniform1f(this.uniforms.now, this.now());
    gl.uniform1f(this.uniforms.ratio, window.devicePixelRatio);
    gl.uniform1f(this.uniforms.still, still() ? 1 : 0);
    gl.uniform1f(this.uniforms.grow, Math.min(1.8, 0.9 + 0.09 * this.map.getZoom()));
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.disable(gl.DEPTH_TEST);
    for (const offset of this.copies ? [-1, 0, 1] : [0]) {
      gl.uniform1f(this.uniforms.offset, offset);
      gl.drawArrays(gl.POINTS, 0, ROOM);
    }
    gl.bindVertexArray(null);
  }

  onRemove(map, gl) {
    gl.deleteProgram(this.program);
    gl.deleteBuffer(this.buffer);
    gl.deleteVertexArray(this.vertices);
  }
}
