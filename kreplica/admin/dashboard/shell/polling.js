/** Polling while the page is visible. */

import { pause } from "./streams.js";

/** Maximum delay of a retry after an error. */
const RETRY_MS = 1000;

/** Delay of a retry after a request that the user is not authorized for: permissions change rarely. */
const FORBIDDEN_RETRY_MS = 30_000;

/**
 * Run a task at once and then repeatedly, a period after each run, until the signal; not while the page is hidden.
 *
 * @param {AbortSignal} signal
 * @param {number} period_ms
 * @param {() => Promise<void>} task
 * @param {(error: Error|null) => void} told  called after each run
 * @returns {() => void} runs the task at once
 */
export function poll(signal, period_ms, task, told) {
  let hurry = new AbortController();
  const again = () => hurry.abort();
  (async () => {
    while (!signal.aborted) {
      hurry = new AbortController();
      const waiting = AbortSignal.any([signal, hurry.signal]);
      let wait_ms = period_ms;
      try {
        await task();
        told(null);
      } catch (error) {
        if (!signal.aborted) {
          told(error);
        }
        wait_ms = error.status === 403 ? FORBIDDEN_RETRY_MS : Math.min(period_ms, RETRY_MS);
      }
      await pause(wait_ms, waiting);
      await visible(waiting);
    }
  })();
  return again;
}

function visible(signal) {
  return new Promise((resolve) => {
    if (!document.hidden || signal.aborted) {
      resolve(undefined);
      return;
    }
    const seen = new AbortController();
    const done = () => {
      seen.abort();
      resolve(undefined);
    };
    document.addEventListener("visibilitychange", () => document.hidden || done(), { signal: seen.signal });
    signal.addEventListener("abort", done, { signal: seen.signal });
  });
}
