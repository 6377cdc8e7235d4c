/** Polls the state of the cluster, with its health report, once a second. */

import { get, pathOf } from "./api.js";
import { poll } from "./polling.js";

const PERIOD_MS = 1000;

/** The last response of `/v1/cluster`. @type {any} */
export let cluster = null;

/** @type {Set<() => void>} */
const listeners = new Set();

/** The faults of a broker in the last response, the most important first. @param {number} brokerId @returns {any[]} */
export function faultsOf(brokerId) {
  return (cluster?.health.faults ?? []).filter(({ subject }) => subject === `broker ${brokerId}`);
}

let refresh = () => {};

/** Start polling. @param {AbortSignal} signal */
export function startMetrics(signal) {
  refresh = poll(signal, PERIOD_MS, () => load(signal), () => {});
}

/** Poll at once after a change. */
export function refreshMetrics() {
  refresh();
}

async function load(signal) {
  cluster = await get(pathOf("cluster"), {}, signal);
  listeners.forEach((listener) => listener());
}

/** @param {AbortSignal} signal @param {() => void} listener  called after each response, and at once if there was one */
export function onMetrics(signal, listener) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener), { once: true });
  if (cluster !== null) {
    listener();
  }
}
