/** Browses messages by partition, offset and time, and searches them. */

import { element, show } from "../../parts/elements.js";
import { timeFieldText, timeFieldValue } from "../../parts/format.js";
import { field, selectField, setOptions } from "../../parts/forms.js";
import { readFormats } from "../../parts/message_formats.js";
import { messageFilters } from "./message_filters.js";
import { messageResults } from "./message_results.js";

const HOUR_MS = 3_600_000;

/** @param {import("../../shell/page.js").Page} page @param {string} topic @param {number} partitions */
export async function browse(page, topic, partitions) {
  const [kind, value = ""] = (page.query.from ?? "").split(/:(.*)/s);
  const order = selectField({ label: "Order", name: "order" }, [["", "Newest first"], ["oldest", "Oldest first"]], page.query.order ?? "");
  const from = selectField({ label: "From", name: "from" }, startChoices(order.input.value), kind);
  const offset = field({ label: "Offset", name: "offset", type: "number", min: 0, value: kind === "offset" ? value : "0" });
  const start_ms = kind === "timestamp" ? Number(value) : Date.now() - HOUR_MS;
  const time = field({ label: "Time", hint: "In UTC.", name: "time", type: "datetime-local", step: 1, value: timeFieldText(start_ms) });
  const filters = messageFilters(page.query, partitions, await readFormats(page.signal));
  const starts = { offset: () => `offset:${offset.input.value}`, timestamp: () => `timestamp:${timeFieldValue(time.input.value)}` };
  const results = messageResults(page, topic, filters.showError);
  const updateVisibility = () => {
    show(offset.node, from.input.value === "offset");
    show(time.node, from.input.value === "timestamp");
  };
  from.input.addEventListener("change", updateVisibility);
  order.input.addEventListener("change", () => setOptions(from.input, startChoices(order.input.value)));
  updateVisibility();
  page.add(
    element("form", {
      class: "fields card message-search", role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        page.setQuery({ order: order.input.value, from: starts[from.input.value]?.() ?? "", ...filters.query() });
        results.reload();
      },
    }, order.node, from.node, offset.node, time.node, filters.nodes, element("button", { class: "primary" }, "Show")),
    results.node);
  results.reload();
}

/** @param {string} order @returns {[string, string][]} */
function startChoices(order) {
  return [["", order === "oldest" ? "The beginning" : "The end"], ["offset", "An offset"], ["timestamp", "A time"]];
}
