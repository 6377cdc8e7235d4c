/** Polls the state of the cluster once a second, and the brokers' warnings every five seconds. */

import { get, pathOf } from "./api.js";
import { poll } from "./polling.js";

const PERIOD_MS = 1000;
/** Number of polls of the cluster for each poll of the warnings, which come from all brokers. */
const POLLS_PER_WARNINGS = 5;

/** The last response of `/v1/cluster`. @type {any} */
export let cluster = null;

/** The last response of `/v1/figures`. @type {any} */
let metrics = null;

/** @type {Set<() => void>} */
const listeners = new Set();

let polls = 0;

let refresh = () => {};

/** Start polling. @param {AbortSignal} signal */
export function startMetrics(signal) {
  refresh = poll(signal, PERIOD_MS, () => load(signal), () => {});
}

/** Poll at once after a change. */
export function refreshMetrics() {
  refresh();
}

/** The cluster's health is published before the warnings, which may take longer. */
async function load(signal) {
  cluster = await get(pathOf("cluster"), {}, signal);
  listeners.forEach((listener) => listener());
  if (polls % POLLS_PER_WARNINGS === 0) {
    metrics = await get(pathOf("figures"), {}, signal);
    listeners.forEach((listener) => listener());
  }
  polls += 1;
}

/** A sentence for each warning of a broker. @returns {string[]} */
export function warnings() {
  return metrics === null ? [] : metrics.brokers.flatMap(({ broker_id, warnings: texts }) => (texts ?? []).map((text) => `Broker ${broker_id}: ${text}`));
}

/** @param {AbortSignal} signal @param {() => void} listener  called after each response, and at once if there was one */
export function onMetrics(signal, listener) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener), { once: true });
  if (cluster !== null) {
    listener();
  }
}
