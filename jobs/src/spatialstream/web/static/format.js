// Numbers, times and places as people read them.

const WHOLE = new Intl.NumberFormat("en");

export const count = (n) => WHOLE.format(Math.round(n));

/** 1 row, 2 rows. */
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A number with no more digits than say something. */
const plain = (n, digits) => String(Number(n.toPrecision(digits)));

/** 1234 as 1.2 k: for figures that change many times a second. */
export function short(n) {
  const size = Math.abs(n);
  for (const [unit, name] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (size >= unit) return `${(n / unit).toFixed(size >= 100 * unit ? 0 : 1)}${name}`;
  }
  return size >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(1);
}

/** ms as the largest unit that it has two of, such as 90 s. */
export function span(ms) {
  const size = Math.abs(ms);
  if (size < 1000) return `${Math.round(ms)} ms`;
  if (size < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  for (const [unit, name] of [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"]]) {
    if (size >= 2 * unit) return `${Math.round(ms / unit)} ${name}`;
  }
  return `${Math.round(ms / 1000)} s`;
}

/** A duration as the interface takes it ("15m") in words. */
export function duration(text) {
  const match = /^(\d+)(ms|s|m|h|d|w)$/.exec(text);
  if (!match) return text;
  const [, n, unit] = match;
  const names = { ms: "ms", s: "second", m: "minute", h: "hour", d: "day", w: "week" };
  return unit === "ms" ? span(Number(n)) : `${n === "1" ? "" : `${n} `}${names[unit]}${n === "1" ? "" : "s"}`;
}

/** The same in ms; null: it is none. */
export function milliseconds(text) {
  if (typeof text === "number") return text;
  const match = /^(\d+)(ms|s|m|h|d|w)$/.exec(text ?? "");
  return match && Number(match[1]) * { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }[match[2]];
}

/** A moment: the time of day, and the day if it is not today's. */
export function moment(ms, now = Date.now()) {
  const at = new Date(ms);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date(now).toDateString() ? time : `${at.toISOString().slice(0, 10)} ${time}`;
}

/** A moment in UTC, with what it has of seconds and ms; of a period of `within` ms, no more of them than tell its moments apart. */
export function utc(ms, within = 0) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return `${ms} ms`;
  const text = at.toISOString().replace("T", " ").replace("Z", "");
  if (ms % 60_000 === 0 || within > 7_200_000) return text.slice(0, -7);
  return ms % 1000 === 0 || within > 120_000 ? text.slice(0, -4) : text;
}

export function distance(metres, geographic) {
  if (!geographic) return plain(metres, 5);
  if (metres < 1000) return `${Math.round(metres)} m`;
  return metres < 100_000 ? `${(metres / 1000).toFixed(1)} km` : `${count(metres / 1000)} km`;
}

/** A place: 52.52 N 13.40 E, or plain coordinates. */
export function place([x, y], space) {
  if (!space.geographic) return `${plain(x, 6)}, ${plain(y, 6)}`;
  return `${Math.abs(y).toFixed(2)}° ${y < 0 ? "S" : "N"} ${Math.abs(x).toFixed(2)}° ${x < 0 ? "W" : "E"}`;
}
