/**
 * Polls the cluster and the brokers' metrics once a second, and keeps the data of charts while the window is open, so
 * that charts are complete at once when their page is opened again.
 *
 * @typedef {{at_ms: number, in: number|null, out: number|null, produce_ms: number|null, fetch_ms: number|null,
 *     under_replicated: number, offline: number}} Rates
 */

import { get, pathOf } from "./api.js";
import { poll } from "./polling.js";

const PERIOD_MS = 1000;
const SAMPLES_MAX = 180;

/** @type {Rates[]} oldest first */
export const samples = [];

/** The last response of `/v1/cluster`. @type {any} */
export let cluster = null;

/** The last response of `/v1/figures`. @type {any} */
let metrics = null;

/** @type {Set<() => void>} */
const listeners = new Set();

let refresh = () => {};

/** Start polling. @param {AbortSignal} signal */
export function startMetrics(signal) {
  refresh = poll(signal, PERIOD_MS, () => load(signal), () => {});
}

/** Poll at once after a change. */
export function refreshMetrics() {
  refresh();
}

/** The cluster's health is published before the metrics, which come from all brokers and may take longer. */
async function load(signal) {
  cluster = await get(pathOf("cluster"), {}, signal);
  listeners.forEach((listener) => listener());
  const now = await get(pathOf("figures"), {}, signal);
  if (metrics !== null && now.at_ms > metrics.at_ms) {
    samples.push(ratesOf(metrics, now, cluster));
    samples.splice(0, samples.length - SAMPLES_MAX);
  }
  metrics = now;
  listeners.forEach((listener) => listener());
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

/** Rates of the counters between two responses, summed over all brokers. @returns {Rates} */
function ratesOf(before, now, clusterState) {
  const seconds = (now.at_ms - before.at_ms) / 1000;
  const earlier = new Map(before.brokers.map((broker) => [broker.broker_id, broker]));
  const sum = { in: 0, out: 0, produced: 0, produce_ms: 0, fetched: 0, fetch_ms: 0 };
  for (const broker of now.brokers) {
    const previous = earlier.get(broker.broker_id);
    sum.in += increase(broker.bytes_in, previous?.bytes_in);
    sum.out += increase(broker.bytes_out, previous?.bytes_out);
    sum.produced += increase(broker.produce?.requests, previous?.produce?.requests);
    sum.produce_ms += increase(broker.produce?.time_ms, previous?.produce?.time_ms);
    sum.fetched += increase(broker.fetch?.requests, previous?.fetch?.requests);
    sum.fetch_ms += increase(broker.fetch?.time_ms, previous?.fetch?.time_ms);
  }
  return {
    at_ms: now.at_ms,
    in: sum.in / seconds,
    out: sum.out / seconds,
    produce_ms: sum.produced ? sum.produce_ms / sum.produced : null,
    fetch_ms: sum.fetched ? sum.fetch_ms / sum.fetched : null,
    under_replicated: clusterState.under_replicated_partitions,
    offline: clusterState.offline_partitions,
  };
}

/** The increase of a counter: from 0 if a restart reset it, and 0 for a new counter. */
function increase(now, before) {
  if (typeof now !== "number" || typeof before !== "number") {
    return 0;
  }
  return now >= before ? now - before : now;
}
