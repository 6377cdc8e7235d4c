/**
 * The client of the REST API: handles HTTP and the login, and detects an unreachable broker.
 *
 * @typedef {{document: any, etag: string|null, status: number}} Reply
 */

/** An error: the API's problem document, or status 0 if there was no response. */
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

/** Called after each request. @type {(isReachable: boolean) => void} */
let onReachability = () => {};

/** Opens the login dialog; false if the user cancels it. @type {(accepted: string[]) => Promise<boolean>} */
let requestLogin = async () => false;

/** Number of logins, so that requests that were in flight during a login are repeated. */
let loginCount = 0;

/** @param {{onReachability: (isReachable: boolean) => void, requestLogin: (accepted: string[]) => Promise<boolean>}} listeners */
export function setListeners(listeners) {
  ({ onReachability, requestLogin } = listeners);
}

/**
 * Opens a session. The browser stores its cookie, which scripts cannot read.
 *
 * @param {{user: string, password: string}|{token: string}} credentials
 * @throws {Problem} if they are wrong
 */
export async function openSession(credentials) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  const response = await send(pathOf("session"), { method: "POST", headers, body: JSON.stringify(credentials) });
  if (!response.ok) {
    throw await readProblem(response);
  }
  loginCount += 1;
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
  return (await request("GET", path, { query, signal })).document;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{query?: Record<string, any>, body?: any, ifMatch?: string|null, dryRun?: boolean, signal?: AbortSignal}} [options]
 * @returns {Promise<Reply>}
 * @throws {Problem}
 */
export async function request(method, path, { query = {}, body, ifMatch = null, dryRun = false, signal } = {}) {
  const headers = { accept: "application/json" };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
  }
  if (ifMatch) {
    headers["if-match"] = ifMatch;
  }
  const address = withQuery(path, dryRun ? { ...query, dry_run: "true" } : query);
  const response = await fetchWithLogin(address, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  return { document: await readDocument(response), etag: response.headers.get("etag"), status: response.status };
}

/** The body of a streamed response. @param {string} path @param {Record<string, any>} query */
export async function openStream(path, query, lastEventId, signal) {
  const headers = { accept: "text/event-stream", ...(lastEventId ? { "last-event-id": lastEventId } : {}) };
  return fetchWithLogin(withQuery(path, query), { headers, signal });
}

async function fetchWithLogin(address, options) {
  for (;;) {
    const loginsBefore = loginCount;
    const response = await send(address, options);
    if (response.ok) {
      return response;
    }
    const problem = await readProblem(response);
    // Another request may have opened a session while this one was in flight.
    if (response.status !== 401 || (loginCount === loginsBefore && !(await requestLogin(problem.document.accepts ?? ["token"])))) {
      throw problem;
    }
  }
}

async function readProblem(response) {
  const document = await readDocument(response).catch(() => null);
  return new Problem(response.status, document ?? { title: response.statusText || "No response", detail: "" });
}

async function send(address, options) {
  // Pages of other sites cannot send this header, so they cannot write with the cookie of the session.
  const headers = { ...options.headers, "x-kreplica-dashboard": "1" };
  let response;
  try {
    response = await fetch(address, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    onReachability(false);
    throw new Problem(0, {
      title: "No response",
      detail: "The broker that serves this page does not respond.",
      what_to_do: "The page retries and continues when the broker is back.",
    });
  }
  onReachability(true);
  return response;
}

async function readDocument(response) {
  const text = await response.text();
  return text === "" ? null : parseJson(text);
}

/** Parse JSON; numbers that a double cannot represent exactly keep their digits when they are written as JSON. */
export function parseJson(text) {
  if (!("rawJSON" in JSON) || !/\d{16}/.test(text)) {
    return JSON.parse(text);
  }
  return JSON.parse(text, (_, value, context) =>
    (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source) ? JSON.rawJSON(context.source) : value));
}

export function withQuery(path, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") {
      parameters.set(name, String(value));
    }
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}
