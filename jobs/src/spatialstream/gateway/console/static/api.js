// The gateway: requests with the token, and streams of events that come again by themselves.

const KEY = "spatialstream-token";
const SILENT = 45_000; // ms without a word, which comes every 15 s, after which a connection is given up
const PATIENCE = 45_000; // ms within which an answer has to be there
const PASSING = [404, 408, 429]; // of the refusals: streams come and go
const LONGEST = 8_000; // ms between two attempts

// In this tab only, and never in a URL: EventSource could not send it, so events are read with fetch.
let token = sessionStorage.getItem(KEY);

export const hasToken = () => token !== null;

export function keepToken(given) {
  token = given;
  if (given === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, given);
}

/**
 * A gateway on this machine may hand its token over behind the # of its link, which is not sent. It does not stay there.
 * Whether there was one.
 */
export function takeToken() {
  const said = new URLSearchParams(location.hash.slice(1));
  if (!said.has("token")) return false;
  if (["127.0.0.1", "localhost", "[::1]"].includes(location.hostname)) keepToken(said.get("token"));
  said.delete("token");
  history.replaceState(null, "", `#${said}`);
  return true;
}

/** What the gateway refuses, in its own words (RFC 9457). */
export class Problem extends Error {
  constructor(status, said, retry) {
    super(said.detail ?? said.title ?? `status ${status}`);
    this.status = status;
    this.kind = said.type?.split(":").at(-1) ?? null;
    this.errors = said.errors ?? [];
    this.retry = retry;
  }
}

async function request(method, path, { body, headers = {}, signal } = {}) {
  const sent = token === null ? { ...headers } : { Authorization: `Bearer ${token}`, ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    const until = signal ?? AbortSignal.timeout(PATIENCE);
    response = await fetch(path, { method, headers: sent, signal: until, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { detail: "the gateway does not answer" });
  }
  if (response.ok) return response;
  let said = {};
  try {
    said = await response.json();
  } catch {
    // something between here and the gateway has answered in words of its own
  }
  throw new Problem(response.status, said, Number(response.headers.get("Retry-After")) || null);
}

export async function call(method, path, body, signal) {
  const response = await request(method, path, { body, signal });
  try {
    return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { detail: "the answer was cut off" });
  }
}

/** Keeps a token if the gateway knows it; the one from before stays otherwise. */
export async function tryToken(given) {
  await request("GET", "/console/session", { headers: { Authorization: `Bearer ${given}` } });
  keepToken(given);
}

export const streamPath = (stream, rest) => `/streams/${encodeURIComponent(stream)}/${rest}`;

/**
 * A stream of Server-Sent Events that goes on with the last id after whatever has cut it off.
 *
 * `state` is told "connecting", "live", "waiting" (until the next attempt, with its time and why) or "refused" (with the
 * problem; nothing more is tried).
 */
export class Events {
  #path; #event; #state; #controller = null; #timer = null; #watch = null; #failures = 0;

  constructor({ path, event, state, last = null }) {
    [this.#path, this.#event, this.#state, this.last] = [path, event, state, last];
  }

  open() {
    this.close();
    this.#run(new AbortController());
  }

  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    this.#controller?.abort();
    this.#controller = null;
  }

  async #run(controller) {
    this.#controller = controller;
    this.#state("connecting");
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.last !== null) headers["Last-Event-ID"] = this.last;
      const response = await request("GET", this.#path(), { headers, signal: controller.signal });
      this.#heard(controller);
      this.#state("live");
      await this.#read(response.body, controller);
      this.#again(controller, "the gateway has closed the connection", 300);
    } catch (error) {
      if (controller.signal.aborted && controller !== this.#controller) return;
      if (error instanceof Problem && error.status >= 400 && error.status < 500 && !PASSING.includes(error.status)) {
        this.#controller = null;
        this.#state("refused", { problem: error });
        return;
      }
      this.#again(controller, error instanceof Problem ? error.message : "the connection is lost", error.retry ? error.retry * 1000 : null);
    }
  }

  #heard(controller) {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => controller.abort(), SILENT);
  }

  #again(controller, why, ms) {
    clearTimeout(this.#watch);
    if (controller !== this.#controller) return;
    const wait = (ms ?? Math.min(LONGEST, 400 * 2 ** this.#failures)) * (0.8 + 0.4 * Math.random());
    this.#failures += 1;
    this.#state("waiting", { why, until: Date.now() + wait });
    this.#timer = setTimeout(() => this.#run(new AbortController()), wait);
  }

  /** What cannot be shown has come all the same, and what is after it is shown. */
  #tell(data) {
    try {
      this.#event(data);
    } catch (error) {
      reportError(error);
    }
  }

  async #read(body, controller) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let id = null;
    let data = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return; // an event that is not whole has not come
      this.#heard(controller);
      this.#failures = 0;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length) this.#tell(data.join("\n"));
          if (id !== null) this.last = id;
          [id, data] = [null, []];
        } else if (line.startsWith("data: ")) data.push(line.slice(6));
        else if (line.startsWith("id: ")) id = line.slice(4);
      }
    }
  }
}
