/**
 * Polls the cluster and the brokers' figures once a second, and keeps the data of charts while the window is open, so
 * that charts are complete at once when their page is opened again.
 *
 * @typedef {{at_ms: number, in: number|null, out: number|null, produce_ms: number|null, fetch_ms: number|null,
 *     under_replicated: number, offline: number}} Rates
 */

import { get, pathOf } from "./api.js";
import { poll } from "./polling.js";

const PERIOD_MS = 1000;
const SAMPLES_MAX = 180;

/** @type {Rates[]} the oldest first */
export const samples = [];

/** The last response of `/v1/cluster`. @type {any} */
export let cluster = null;

/** The last response of `/v1/figures`. @type {any} */
let figures = null;

/** @type {Set<() => void>} */
const listeners = new Set();

let hurry = () => {};

/** Start polling. @param {AbortSignal} signal */
export function startFigures(signal) {
  hurry = poll(signal, PERIOD_MS, () => take(signal), () => {});
}

/** Poll at once after a change. */
export function hurryFigures() {
  hurry();
}

/** The cluster's health is published before its figures, which come from all brokers and may take longer. */
async function take(signal) {
  cluster = await get(pathOf("cluster"), {}, signal);
  listeners.forEach((told) => told());
  const now = await get(pathOf("figures"), {}, signal);
  if (figures !== null && now.at_ms > figures.at_ms) {
    samples.push(ratesOf(figures, now, cluster));
    samples.splice(0, samples.length - SAMPLES_MAX);
  }
  figures = now;
  listeners.forEach((told) => told());
}

/** A sentence for each warning of a broker. @returns {string[]} */
export function warnings() {
  return figures === null ? [] : figures.brokers.flatMap(({ broker_id, warnings: own }) => (own ?? []).map((text) => `Broker ${broker_id}: ${text}`));
}

/** @param {AbortSignal} signal @param {() => void} told  called for each response, and at once with the last one */
export function onFigures(signal, told) {
  listeners.add(told);
  signal.addEventListener("abort", () => listeners.delete(told), { once: true });
  if (cluster !== null) {
    told();
  }
}

/** The growth of counters between two responses, summed over all brokers. @returns {Rates} */
function ratesOf(before, now, whole) {
  const seconds = (now.at_ms - before.at_ms) / 1000;
  const earlier = new Map(before.brokers.map((broker) => [broker.broker_id, broker]));
  const sum = { in: 0, out: 0, produced: 0, produce_ms: 0, fetched: 0, fetch_ms: 0 };
  for (const broker of now.brokers) {
    const was = earlier.get(broker.broker_id);
    sum.in += grown(broker.bytes_in, was?.bytes_in);
    sum.out += grown(broker.bytes_out, was?.bytes_out);
    sum.produced += grown(broker.produce?.requests, was?.produce?.requests);
    sum.produce_ms += grown(broker.produce?.time_ms, was?.produce?.time_ms);
    sum.fetched += grown(broker.fetch?.requests, was?.fetch?.requests);
    sum.fetch_ms += grown(broker.fetch?.time_ms, was?.fetch?.time_ms);
  }
  return {
    at_ms: now.at_ms,
    in: sum.in / seconds,
    out: sum.out / seconds,
    produce_ms: sum.produced ? sum.produce_ms / sum.produced : null,
    fetch_ms: sum.fetched ? sum.fetch_ms / sum.fetched : null,
    under_replicated: whole.under_replicated_partitions,
    offline: whole.offline_partitions,
  };
}

/** A counter that decreased was reset by a restart; a new one has no rate yet. */
function grown(now, before) {
  if (typeof now !== "number" || typeof before !== "number") {
    return 0;
  }
  return now >= before ? now - before : now;
}
