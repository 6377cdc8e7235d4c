/** Browses messages by partition, offset and time, and searches them. */

import { element, setText, show } from "../parts/elements.js";
import { count, pluralize } from "../parts/format.js";
import { selectField, field } from "../parts/forms.js";
import { messageTable } from "../parts/message_rows.js";
import { partitionChoices } from "../parts/partition_choices.js";
import { get, pathOf } from "../shell/api.js";

const LIMIT = 50;
/** Maximum number of messages scanned per request. */
const SCAN_LIMIT = 10_000;
/** Maximum number of rows; the oldest are removed. */
const ROWS_MAX = 1000;

/** @param {import("../shell/page.js").Page} page @param {string} topic @param {number} partitions */
export function browse(page, topic, partitions) {
  const [kind, value = ""] = (page.query.from ?? "latest").split(/:(.*)/s);
  const partition = selectField({ label: "Partition", name: "partition" }, partitionChoices(partitions), page.query.partition ?? "");
  const from = selectField({ label: "From", name: "from" },
    [["latest", "The latest"], ["earliest", "The beginning"], ["offset", "An offset"], ["timestamp", "A time"]], kind);
  const offset = field({ label: "Offset", name: "offset", type: "number", min: 0, value: kind === "offset" ? value : "0" });
  const time = field({ label: "Time", name: "time", type: "datetime-local", step: 1, value: localTime(kind === "timestamp" ? Number(value) : Date.now() - 3_600_000) });
  const search = field({ label: "Contains", name: "search", type: "search", value: page.query.search ?? "", autocomplete: "off", placeholder: "text or /expression/" });
  const isolation = selectField({ label: "Isolation", name: "isolation" },
    [["read_uncommitted", "All"], ["read_committed", "Committed only"]], page.query.isolation ?? "read_uncommitted");
  const updateVisibility = () => {
    show(offset.node, from.input.value === "offset");
    show(time.node, from.input.value === "timestamp");
  };
  const startPositions = { offset: () => `offset:${offset.input.value}`, timestamp: () => `timestamp:${new Date(time.input.value).getTime()}` };
  const results = resultList(page, topic);
  from.input.addEventListener("change", updateVisibility);
  updateVisibility();
  page.add(
    element("form", {
      class: "fields card", role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        page.setQuery({ partition: partition.input.value, from: startPositions[from.input.value]?.() ?? from.input.value, search: search.input.value,
          isolation: isolation.input.value === "read_committed" ? "read_committed" : "" });
        results.reload();
      },
    }, partition.node, from.node, offset.node, time.node, search.node, isolation.node, element("button", { class: "primary" }, "Show")),
    results.node);
  results.reload();
}

function resultList(page, topic) {
  const list = messageTable(`Messages of ${topic}`, "No message matches.");
  const state = element("p", { class: "muted small", role: "status" });
  const more = element("button", { type: "button", onclick: () => page.once(() => load(next)) }, "More");
  let rows = [];
  let next = null;
  let scanned = 0;
  const load = async (after) => {
    setText(state, "Reading…");
    more.disabled = true;
    const { partition, from = "latest", search, isolation } = page.query;
    const query = { partition, from, search, isolation, limit: LIMIT, scan_limit: search ? SCAN_LIMIT : null, after };
    const response = await get(pathOf("topics", topic, "messages"), query, page.signal).catch((error) => {
      setText(state, "");
      throw error;
    });
    rows = [...rows, ...response.messages].slice(-ROWS_MAX);
    next = response.next;
    scanned += response.scanned ?? response.messages.length;
    list.update(rows);
    const problems = (response.problems ?? []).map((text) => ` ${text}`).join("");
    setText(state, `${pluralize(rows.length, "message")} shown, ${count(scanned)} searched${next ? "" : ", up to the end"}.${problems}`);
    more.disabled = false;
    show(more, Boolean(next));
  };
  more.hidden = true;
  return {
    node: element("div", { class: "stack section" }, list.node, element("div", { class: "pager" }, more, state)),
    reload() {
      [rows, next, scanned] = [[], null, 0];
      page.once(() => load(null));
    },
  };
}

/** A time in the format of a `datetime-local` field. @param {number} at_ms */
function localTime(at_ms) {
  const at = new Date(at_ms - new Date(at_ms).getTimezoneOffset() * 60_000);
  return at.toISOString().slice(0, 19);
}
