/**
 * Asking the REST API: the one place that knows of HTTP, of the token, and of whether the broker answers.
 *
 * @typedef {{document: any, etag: string|null, status: number}} Reply
 */

const TOKEN = "kreplica.token";

/** An error: the API's problem document, or no answer (status 0). */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} document */
  constructor(status, document) {
    super(document.detail ?? document.title ?? `status ${status}`);
    this.status = status;
    this.title = document.title ?? `Status ${status}`;
    this.detail = document.detail ?? "";
    this.whatToDo = document.what_to_do ?? null;
    this.document = document;
  }
}

/** Told of each answer (true) and of each time that none came (false). @type {(answered: boolean) => void} */
let reached = () => {};

/** Asks the user for a token; null if none is given. @type {() => Promise<string|null>} */
let askForToken = async () => null;

/** @param {{reached: (answered: boolean) => void, askForToken: () => Promise<string|null>}} listeners */
export function listen(listeners) {
  ({ reached, askForToken } = listeners);
}

/** The token of this tab; it ends with it. */
export function token() {
  return sessionStorage.getItem(TOKEN);
}

/** @param {string|null} text */
export function keepToken(text) {
  if (text) {
    sessionStorage.setItem(TOKEN, text);
  } else {
    sessionStorage.removeItem(TOKEN);
  }
}

/** A path of the API. @param {(string|number)[]} parts */
export function pathOf(...parts) {
  return `/v1/${parts.map((part) => encodeURIComponent(String(part))).join("/")}`;
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>} the document
 */
export async function get(path, query, signal) {
  return (await ask("GET", path, { query, signal })).document;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{query?: Record<string, any>, body?: any, ifMatch?: string|null, dryRun?: boolean, signal?: AbortSignal}} [options]
 * @returns {Promise<Reply>}
 * @throws {Problem}
 */
export async function ask(method, path, { query = {}, body, ifMatch = null, dryRun = false, signal } = {}) {
  const headers = { accept: "application/json" };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
  }
  if (ifMatch) {
    headers["if-match"] = ifMatch;
  }
  const address = withQuery(path, dryRun ? { ...query, dry_run: "true" } : query);
  const answer = await fetched(address, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  return { document: await documentOf(answer), etag: answer.headers.get("etag"), status: answer.status };
}

/** The body of a streamed answer. @param {string} path @param {Record<string, any>} query */
export async function openStream(path, query, lastEventId, signal) {
  const headers = { accept: "text/event-stream", ...(lastEventId ? { "last-event-id": lastEventId } : {}) };
  return fetched(withQuery(path, query), { headers, signal });
}

async function fetched(address, options) {
  for (;;) {
    const used = token();
    const answer = await sent(address, options);
    if (answer.ok) {
      return answer;
    }
    // Another request may have been given a token while this one was under way without it.
    if (answer.status !== 401 || (token() === used && !(await askForToken()))) {
      const document = await documentOf(answer).catch(() => null);
      throw new Problem(answer.status, document ?? { title: answer.statusText || "No answer", detail: "" });
    }
  }
}

async function sent(address, options) {
  const authorization = token();
  const headers = authorization ? { ...options.headers, authorization: `Bearer ${authorization}` } : options.headers;
  let answer;
  try {
    answer = await fetch(address, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    reached(false);
    throw new Problem(0, {
      title: "No answer",
      detail: "The broker that serves this page does not answer.",
      what_to_do: "The page retries and continues when the broker is back.",
    });
  }
  reached(true);
  return answer;
}

async function documentOf(answer) {
  const text = await answer.text();
  return text === "" ? null : JSON.parse(text);
}

function withQuery(path, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") {
      parameters.set(name, String(value));
    }
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}
