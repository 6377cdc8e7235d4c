/** Polling while the page is visible. */

import { pause } from "./streams.js";

/** Maximum delay before a retry after an error. */
const RETRY_MS = 1000;

/** Delay before retrying a request for which the user is not authorized: permissions rarely change. */
const FORBIDDEN_RETRY_MS = 30_000;

/**
 * Run a task at once, and again one period after each run, until the signal is aborted; pause while the page is hidden.
 *
 * @param {AbortSignal} signal
 * @param {number} period_ms
 * @param {() => Promise<void>} task
 * @param {(error: Error|null) => void} onResult  called after each run
 * @returns {() => void} runs the task at once
 */
export function poll(signal, period_ms, task, onResult) {
  let early = new AbortController();
  const runNow = () => early.abort();
  (async () => {
    while (!signal.aborted) {
      early = new AbortController();
      const delaySignal = AbortSignal.any([signal, early.signal]);
      let wait_ms = period_ms;
      try {
        await task();
        onResult(null);
      } catch (error) {
        if (!signal.aborted) {
          onResult(error);
        }
        wait_ms = error.status === 403 ? FORBIDDEN_RETRY_MS : Math.min(period_ms, RETRY_MS);
      }
      await pause(wait_ms, delaySignal);
      await visible(delaySignal);
    }
  })();
  return runNow;
}

function visible(signal) {
  return new Promise((resolve) => {
    if (!document.hidden || signal.aborted) {
      resolve(undefined);
      return;
    }
    const listening = new AbortController();
    const finish = () => {
      listening.abort();
      resolve(undefined);
    };
    document.addEventListener("visibilitychange", () => document.hidden || finish(), { signal: listening.signal });
    signal.addEventListener("abort", finish, { signal: listening.signal });
  });
}
