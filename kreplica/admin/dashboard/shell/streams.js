/**
 * Server-sent events through `fetch`, because `EventSource` hides the status and the reason of an error.
 *
 * @typedef {{name: string, data: any, id: string|null}} StreamEvent
 * @typedef {"connected"|"interrupted"|"rejected"} StreamState  interrupted: it reconnects; rejected: a retry would not help
 */

import { Problem, openStream } from "./api.js";

const RETRY_MS = 2000;
const TOO_MANY_REQUESTS = 429;

/**
 * Follow a stream until the signal is aborted; after an interruption, reconnect and continue after the last event.
 *
 * @param {string} path
 * @param {Record<string, any>} query
 * @param {AbortSignal} signal
 * @param {(event: StreamEvent) => void} onEvent
 * @param {(state: StreamState, problem: Problem|null) => void} [onState]  the problem is null if the stream merely ended
 */
export async function follow(path, query, signal, onEvent, onState = () => {}) {
  let lastEventId = null;
  while (!signal.aborted) {
    try {
      const response = await openStream(path, query, lastEventId, signal);
      onState("connected", null);
      for await (const event of parseEvents(response.body)) {
        if (event.name === "problem") {
          throw new Problem(event.data.status ?? 500, event.data);
        }
        lastEventId = event.id ?? lastEventId;
        onEvent(event);
      }
      onState("interrupted", null);
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      const problem = error instanceof Problem ? error : null;
      if (problem && problem.status >= 400 && problem.status < 500 && problem.status !== TOO_MANY_REQUESTS) {
        onState("rejected", problem);
        return;
      }
      onState("interrupted", problem);
    }
    await pause(RETRY_MS, signal);
  }
}

/** @param {ReadableStream<Uint8Array>} body @returns {AsyncGenerator<StreamEvent>} */
async function* parseEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let incomplete = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    const blocks = (incomplete + value).split(/\r?\n\r?\n/);
    incomplete = blocks.pop();
    yield* blocks.map(parseEvent).filter((event) => event !== null);
  }
}

/** @param {string} block @returns {StreamEvent|null} null for a comment */
function parseEvent(block) {
  let [name, id] = ["message", null];
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (field === "event") {
      name = value;
    } else if (field === "id") {
      id = value;
    } else if (field === "data") {
      data.push(value);
    }
  }
  return data.length ? { name, id, data: JSON.parse(data.join("\n")) } : null;
}

/** @param {number} wait_ms @param {AbortSignal} signal */
export function pause(wait_ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve(undefined);
      return;
    }
    const timer = setTimeout(resolve, wait_ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve(undefined);
    }, { once: true });
  });
}
