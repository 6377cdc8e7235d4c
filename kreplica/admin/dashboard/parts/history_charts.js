/** Charts of the cluster, a broker, a topic or a group, with the choice of their range, which is part of the address. */

import { lineChart, rangeButtons } from "./charts.js";
import { element, setText, show } from "./elements.js";
import { count, milliseconds, rate } from "./format.js";
import { loadHistory, RANGES } from "../shell/history.js";

const PERIOD_MS = 5000;

/** Shortest range of charts whose brokers have just started. */
const RANGE_MIN_MS = 120_000;

const BROKER_CHARTS = [
  { title: "Throughput", series: [["bytes_in", "In"], ["bytes_out", "Out"]], format: rate, minTop: 1000 },
  {
    title: "Processing time", series: [["produce_ms", "Produce"], ["fetch_ms", "Fetch"], ["queue_ms", "Queue delay (p99)"]],
    format: milliseconds, minTop: 1, note: "Mean time of requests to which the broker responds at once, and the delay before it reads a request.",
  },
  {
    title: "Waiting time", series: [["produce_wait_ms", "Produce: for replicas"], ["fetch_wait_ms", "Fetch: for new records"]],
    format: milliseconds, minTop: 1, note: "Fetch requests wait for new records by design (long polling): on an idle topic, up to fetch.max.wait.ms.",
  },
  {
    title: "Partitions with problems", series: [["under_replicated", "Under-replicated"], ["offline_partitions", "Offline"]],
    format: count, minTop: 2,
  },
];

/**
 * @param {import("../shell/page.js").Page} page
 * @param {object} [options]
 * @param {any[]} [options.charts]  options of `lineChart` without `onZoom`
 * @param {string[]} [options.path]  path of the history in the API
 * @param {string|number|null} [options.broker]  only this broker
 * @param {string} [options.empty]  text if no broker has values
 */
export function historyCharts(page, { charts: shownCharts = BROKER_CHARTS, path = ["history"], broker = null, empty = "" } = {}) {
  const zoom = (range) => {
    page.setQuery({ from: range ? Math.round(range.from_ms) : "", to: range ? Math.round(range.to_ms) : "" });
    refresh();
  };
  const charts = shownCharts.map((options) => ({ options, chart: lineChart({ ...options, onZoom: zoom }) }));
  const names = shownCharts.flatMap(({ series }) => series.map(([name]) => name));
  const choose = (length_ms) => {
    page.setQuery({ from: "", to: "", ...(length_ms ? { range: length_ms === RANGES[0][0] ? "" : length_ms } : {}) });
    refresh();
  };
  const ranges = rangeButtons(RANGES, choose);
  const note = element("p", { class: "note", hidden: true });
  const refresh = page.poll(PERIOD_MS, async () => {
    const { range, from, to } = page.query;
    const length_ms = Number(range) || RANGES[0][0];
    const requested = from && to ? { from_ms: Number(from), to_ms: Number(to) } : { from_ms: -length_ms, to_ms: -1 };
    const history = await loadHistory(names, requested, page.signal, { path, broker });
    const shown = from && to ? requested : knownPart({ from_ms: history.to_ms - length_ms, to_ms: history.to_ms }, history.points);
    charts.forEach(({ chart }) => chart.update(shown, history.points));
    ranges.update(length_ms, Boolean(from && to));
    const isEmpty = !history.points.some(({ values }) => Object.values(values).some((value) => value !== null));
    show(note, history.problems.length > 0 || (isEmpty && empty !== ""));
    setText(note, history.problems.length ? `Data from some brokers is missing: ${history.problems.join(" ")}` : empty);
  });
  return element("section", { class: "section" },
    element("div", { class: "head" }, element("h2", null, "Load"), ranges.node),
    note, element("div", { class: charts.length === 3 ? "charts three" : "charts" }, charts.map(({ chart }) => chart.node)));
}

/** The range without the time before the first value: the brokers started later. */
function knownPart({ from_ms, to_ms }, points) {
  const first = points.find(({ values }) => Object.values(values).some((value) => value !== null));
  return { from_ms: Math.max(from_ms, Math.min(first?.at_ms ?? from_ms, to_ms - RANGE_MIN_MS)), to_ms };
}
