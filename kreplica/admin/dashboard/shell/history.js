/**
 * The history of charts, which every broker keeps for six hours, merged across all brokers.
 *
 * @typedef {{at_ms: number, values: Record<string, number|null>}} Point
 * @typedef {{from_ms: number, to_ms: number, step_ms: number, points: Point[], problems: string[]}} History
 */

import { get, pathOf } from "./api.js";

/** Ranges that can be chosen: length in milliseconds and label. @type {[number, string][]} */
export const RANGES = [[900_000, "15 minutes"], [3_600_000, "1 hour"], [21_600_000, "6 hours"]];

/** How to combine the values of several brokers; series that are not listed are summed. */
const MERGES = {
  queue_ms: highest,
  offline_partitions: highest,
  // While the coordinator moves, the previous one may still have a value.
  lag: highest,
  consumed_rate: highest,
  members: highest,
  produce_ms: weighted("produce_requests"),
  produce_wait_ms: weighted("produce_requests"),
  fetch_ms: weighted("fetch_requests"),
  fetch_wait_ms: weighted("fetch_requests"),
};

/** Series whose maximum is shown if a point covers a minute: a short problem must stay visible. */
const PEAKS = new Set(["queue_ms", "produce_ms", "produce_wait_ms", "fetch_ms", "under_replicated", "offline_partitions", "under_min_isr", "lag"]);

/**
 * @param {string[]} names  series
 * @param {{from_ms: number, to_ms: number}} range  negative times are relative to now
 * @param {AbortSignal} signal
 * @param {{path?: string[], broker?: string|number|null}} [source]  path in the API, and one broker instead of all
 * @returns {Promise<History>}
 */
export async function loadHistory(names, range, signal, { path = ["history"], broker = null } = {}) {
  const needed = new Set([...names, ...names.map((name) => MERGES[name]?.weight).filter(Boolean)]);
  const query = { series: [...needed].join(","), from: Math.round(range.from_ms), to: Math.round(range.to_ms) };
  const { from_ms, step_ms, points: count, brokers, problems } = await get(pathOf(...path), query, signal);
  const rows = brokers.filter(({ broker_id: id }) => broker === null || String(id) === String(broker));
  const points = [];
  for (let index = 0; index < count; index += 1) {
    const values = Object.fromEntries(names.map((name) => [name, merged(name, rows, index, step_ms)]));
    points.push({ at_ms: from_ms + index * step_ms, values });
  }
  return { from_ms, to_ms: from_ms + Math.max(count - 1, 1) * step_ms, step_ms, points, problems };
}

function merged(name, rows, index, step_ms) {
  const kind = step_ms > 5000 && PEAKS.has(name) ? "peak" : "mean";
  const values = rows.map(({ series }) => valueAt(series[name][kind], index));
  const merge = MERGES[name] ?? total;
  const weights = merge.weight ? rows.map(({ series }) => series[merge.weight].mean[index] ?? 0) : [];
  return merge(values, weights);
}

/** The value of a point; for the latest point, which a broker may not have sampled yet, the value before it. */
function valueAt(points, index) {
  const isLatest = index === points.length - 1;
  return points[index] ?? (isLatest ? points[index - 1] : null) ?? null;
}

function total(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
}

function highest(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? Math.max(...known) : null;
}

/** The mean of brokers' means, by their numbers of requests. */
function weighted(weight) {
  const merge = (values, weights) => {
    let sum = 0;
    let requests = 0;
    values.forEach((value, index) => {
      if (value !== null) {
        sum += value * Math.max(weights[index], 0.001);
        requests += Math.max(weights[index], 0.001);
      }
    });
    return requests ? sum / requests : null;
  };
  merge.weight = weight;
  return merge;
}
