/** One client: the metrics that it pushed last. */

import { element, setText, show } from "../../parts/elements.js";
import { count, pluralize, shortTime } from "../../parts/format.js";
import { debounce, field } from "../../parts/forms.js";
import { table } from "../../parts/tables.js";
import { get, pathOf } from "../../shell/api.js";

const PERIOD_MS = 5000;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  const id = page.path[1];
  page.title(`Client ${id}`, ["#/clients", "Clients"]);
  const search = field({ label: "Find a metric", type: "search", value: page.query.search ?? "", autocomplete: "off", spellcheck: "false" });
  const labels = element("p", { class: "small" });
  const note = element("p", { class: "note", hidden: true });
  let metrics = [];
  const list = metricTable(id);
  const refresh = () => {
    const text = search.input.value.trim().toLowerCase();
    list.update(metrics.filter(({ name, attributes }) => `${name} ${attributeText(attributes)}`.toLowerCase().includes(text)));
  };
  search.input.addEventListener("input", debounce(() => {
    page.setQuery({ search: search.input.value.trim() });
    refresh();
  }));
  page.add(element("div", { class: "stack" }, element("div", { class: "fields", role: "search" }, search.node), labels, note, list.node));
  page.poll(PERIOD_MS, async () => {
    const pushed = await get(pathOf("clients", id), {}, page.signal);
    metrics = pushed.metrics;
    const latest = Math.max(0, ...metrics.map(({ at_ms: at }) => at));
    const measured = latest > 0 ? `, measured at ${shortTime(latest)}` : "";
    const text = attributeText(pushed.labels);
    setText(labels, `${pluralize(metrics.length, "value")}${measured}${text ? `; ${text}` : ""}`);
    show(note, !pushed.is_complete);
    setText(note, "The client has more values than are shown.");
    refresh();
  });
}

function metricTable(id) {
  return table({
    caption: `Metrics of client ${id}`,
    keyOf: ({ name, attributes }) => JSON.stringify([name, attributes]),
    empty: "No metric matches.",
    columns: [
      { header: "Metric", names: true, className: "mono", text: ({ name }) => name },
      { header: "Attributes", className: "mono", text: ({ attributes }) => attributeText(attributes) || null },
      { header: "Value", numeric: true, text: ({ value }) => valueText(value) },
      { header: "Unit", text: ({ unit }) => unit || null },
      { header: "Kind", text: ({ kind }) => (kind === "sum" ? "total" : kind) },
    ],
  });
}

function valueText(value) {
  if (value === null) {
    return "–";
  }
  return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(6)));
}

function attributeText(attributes) {
  return Object.entries(attributes).map(([name, text]) => `${name}=${text}`).join(", ");
}
