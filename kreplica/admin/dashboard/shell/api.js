/**
 * The client of the REST API: handles HTTP, the login, and the loss of the broker.
 *
 * @typedef {{document: any, etag: string|null, status: number}} Reply
 */

/** An error: the API's problem document, or no response (status 0). */
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

/** Called after each request: true if there was a response. @type {(answered: boolean) => void} */
let reached = () => {};

/** Lets the user log in; false if the user does not. @type {(accepted: string[]) => Promise<boolean>} */
let askToLogIn = async () => false;

/** Number of logins, so that requests that were in flight before a login are repeated. */
let logins = 0;

/** @param {{reached: (answered: boolean) => void, askToLogIn: (accepted: string[]) => Promise<boolean>}} listeners */
export function listen(listeners) {
  ({ reached, askToLogIn } = listeners);
}

/**
 * Opens a session, whose cookie the browser keeps; scripts cannot read it.
 *
 * @param {{user: string, password: string}|{token: string}} credentials
 * @throws {Problem} if they are wrong
 */
export async function openSession(credentials) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  const answer = await sent(pathOf("session"), { method: "POST", headers, body: JSON.stringify(credentials) });
  if (!answer.ok) {
    throw await problemOf(answer);
  }
  logins += 1;
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

/** The body of a streamed response. @param {string} path @param {Record<string, any>} query */
export async function openStream(path, query, lastEventId, signal) {
  const headers = { accept: "text/event-stream", ...(lastEventId ? { "last-event-id": lastEventId } : {}) };
  return fetched(withQuery(path, query), { headers, signal });
}

async function fetched(address, options) {
  for (;;) {
    const before = logins;
    const answer = await sent(address, options);
    if (answer.ok) {
      return answer;
    }
    const problem = await problemOf(answer);
    // Another request may have led to a login while this one was in flight.
    if (answer.status !== 401 || (logins === before && !(await askToLogIn(problem.document.accepts ?? ["token"])))) {
      throw problem;
    }
  }
}

async function problemOf(answer) {
  const document = await documentOf(answer).catch(() => null);
  return new Problem(answer.status, document ?? { title: answer.statusText || "No answer", detail: "" });
}

async function sent(address, options) {
  // Pages of other sites cannot send this header, so they cannot write with the cookie of the session.
  const headers = { ...options.headers, "x-kreplica-dashboard": "1" };
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
