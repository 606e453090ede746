// The gateway: requests with the token, and event streams that reconnect by themselves.

const KEY = "spatialstream-token";
const SILENT = 45_000; // ms of silence after which a connection is given up; a heartbeat is sent every 15 s
const PATIENCE = 45_000; // ms within which an answer must arrive
const PASSING = [404, 408, 429]; // refusals that may pass: streams are added and removed
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

/** A problem reported by the gateway (RFC 9457). */
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
    // a proxy between here and the gateway has answered in another form
  }
  throw new Problem(response.status, said, Number(response.headers.get("Retry-After")) || null);
}

export async function call(method, path, body, signal, headers) {
  const response = await request(method, path, { body, signal, headers });
  try {
    return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { detail: "the answer was cut off" });
  }
}

/** Keeps a token if the gateway accepts it; otherwise the previous one stays. */
export async function tryToken(given) {
  await request("GET", "/console/session", { headers: { Authorization: `Bearer ${given}` } });
  keepToken(given);
}

export const streamPath = (stream, rest) => `/streams/${encodeURIComponent(stream)}/${rest}`;

/**
 * A stream of Server-Sent Events that reconnects with the last id after any interruption.
 *
 * `state` is called with "connecting", "live", "waiting" (until the next attempt, with its time and reason) or "refused" (with the
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

  /** An event that cannot be shown counts as received, and later ones are shown. */
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
      if (done) return; // an incomplete event does not count as received
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
