/** The list of topics, with their size, load, retention and health. */

import { dataList } from "../../parts/data_list.js";
import { chipPart, element, linkPart } from "../../parts/elements.js";
import { bytes, count, durationOf, rate } from "../../parts/format.js";
import { checkbox } from "../../parts/forms.js";
import { href } from "../../shell/routes.js";

const FIELDS = [
  "name", "health", "offline_partitions", "under_min_isr_partitions", "under_replicated_partitions", "partitions", "replication_factor",
  "records", "size_bytes", "bytes_in_rate", "bytes_out_rate", "retention_ms", "retention_bytes", "cleanup_policy", "groups",
].join(",");

const FILTERS = [
  ["", "All topics"], ["health!=healthy", "Topics with problems"], ["bytes_in_rate>0", "Topics with writes"], ["groups=0", "Topics without groups"],
  ["size_bytes>1000000000", "Topics above 1 GB"],
];

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Topics");
  page.actions.append(element("a", { class: "button primary", href: "#/topics/new" }, "Create topic"));
  const internal = checkbox({ label: "Include internal topics", checked: page.query.internal === "1" });
  const list = dataList(page, {
    path: ["topics"], caption: "Topics", noun: "topic", search: "Find a topic", filters: FILTERS, fields: FIELDS,
    keyOf: ({ name }) => name, controls: [internal.node], query: () => ({ internal: page.query.internal === "1" }),
    columns: [
      { header: "Topic", names: true, sort: "name", part: linkPart(({ name }) => href(["topic", name]), ({ name }) => name) },
      { header: "Health", sort: "health", part: chipPart(topicHealth) },
      { header: "Partitions", numeric: true, sort: "-partitions", text: ({ partitions }) => count(partitions) },
      { header: "Replicas", numeric: true, sort: "-replication_factor", text: ({ replication_factor: factor }) => count(factor) },
      { header: "Records", numeric: true, sort: "-records", text: ({ records }) => count(records) },
      { header: "Size", numeric: true, sort: "-size_bytes", text: ({ size_bytes: size }) => bytes(size) },
      { header: "In", numeric: true, sort: "-bytes_in_rate", text: ({ bytes_in_rate: value }) => rate(value) },
      { header: "Out", numeric: true, sort: "-bytes_out_rate", text: ({ bytes_out_rate: value }) => rate(value) },
      { header: "Retention", className: "nowrap", sort: "-retention_ms", text: retentionText },
      { header: "Cleanup", sort: "cleanup_policy", text: ({ cleanup_policy: policy }) => policy },
      { header: "Groups", numeric: true, sort: "-groups", text: ({ groups }) => count(groups) },
      { header: "(Actions)", className: "cell-actions", part: linkPart(({ name }) => href(["messages", name]), () => "Messages") },
    ],
  });
  internal.input.addEventListener("change", () => {
    page.setQuery({ internal: internal.input.checked ? "1" : "", page: "" });
    list.refresh();
  });
  page.add(list.node);
}

/** The limits after which records are removed. */
export function retentionText({ retention_ms: time, retention_bytes: size }) {
  const limits = [time >= 0 ? durationOf(time) : null, size >= 0 ? bytes(size) : null].filter(Boolean);
  return limits.join(", ") || "unlimited";
}

/** @returns {[string, string]} */
export function topicHealth({ health, offline_partitions: offline, under_min_isr_partitions: underMin, under_replicated_partitions: underReplicated }) {
  const states = {
    deleting: ["busy", "Being deleted"],
    offline: ["bad", `${count(offline)} offline`],
    under_min_isr: ["bad", `${count(underMin)} under min.insync.replicas`],
    under_replicated: ["warn", `${count(underReplicated)} under-replicated`],
  };
  return states[health] ?? ["good", "In sync"];
}
