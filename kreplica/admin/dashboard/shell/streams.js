/**
 * Server-sent events through `fetch`, because `EventSource` hides the status and the reason of an error.
 *
 * @typedef {{name: string, data: any, id: string|null}} StreamEvent
 */

import { Problem, openStream } from "./api.js";

const RETRY_MS = 2000;

/**
 * Follow a stream until the signal; after an interruption, reconnect and continue after the last event.
 *
 * @param {string} path
 * @param {Record<string, any>} query
 * @param {AbortSignal} signal
 * @param {(event: StreamEvent) => void} onEvent
 * @param {(problem: Problem|null) => void} [onState]  null while connected; retried unless its status is 4xx
 */
export async function follow(path, query, signal, onEvent, onState = () => {}) {
  let lastEventId = null;
  while (!signal.aborted) {
    try {
      const response = await openStream(path, query, lastEventId, signal);
      onState(null);
      for await (const event of parseEvents(response.body)) {
        lastEventId = event.id ?? lastEventId;
        onEvent(event);
      }
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      onState(error instanceof Problem ? error : null);
      if (error instanceof Problem && error.status >= 400 && error.status < 500) {
        return;
      }
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
