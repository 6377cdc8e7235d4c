/** One topic: its load, partitions, groups, settings and actions. */

import { configEditor } from "../../parts/config_editor.js";
import { chipPart, element, linkPart, termList } from "../../parts/elements.js";
import { bytes, count, pluralize, commaSeparated, perSecond, rate } from "../../parts/format.js";
import { historyCharts } from "../../parts/history_charts.js";
import { pager, table } from "../../parts/tables.js";
import { tabs } from "../../parts/tabs.js";
import { get, pathOf } from "../../shell/api.js";
import { href } from "../../shell/routes.js";
import { groupList } from "../clients/groups.js";
import { retentionText } from "./topics.js";
import { addPartitions, deleteRecords, deleteTopic, electPreferred } from "./topic_changes.js";

const PERIOD_MS = 2000;
const PAGE = 100;
const FIELDS = [
  "partitions", "replication_factor", "records", "size_bytes", "disk_bytes", "bytes_in_rate", "bytes_out_rate", "retention_ms", "retention_bytes",
  "groups", "under_replicated_partitions", "offline_partitions",
].join(",");
const CHARTS = [
  { title: "Throughput", series: [["bytes_in_rate", "In"], ["bytes_out_rate", "Out to consumers"]], format: rate, minTop: 1000 },
  { title: "Messages", series: [["records_in_rate", "In"]], format: perSecond, minTop: 1 },
  { title: "Size", series: [["size_bytes", "Logs, without replicas"]], format: bytes, minTop: 1000 },
];
const NO_HISTORY = "No data: the topic is new, or 200 other topics were more active. Each broker keeps charts for 200 topics.";

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  const [, name, tab = "partitions"] = page.path;
  page.title(name, ["#/topics", "Topics"]);
  const state = { partitions: 0 };
  page.actions.append(
    element("a", { class: "button", href: href(["messages", name]) }, "Messages"),
    element("a", { class: "button", href: href(["acls"], { type: "topic", name }) }, "Access"),
    element("button", { type: "button", onclick: () => addPartitions(name, state.partitions) }, "Add partitions"),
    element("button", { type: "button", onclick: () => electPreferred(name) }, "Elect preferred leaders"),
    element("a", { class: "button", href: href(["plans", "new"], { kind: "reassign", topic: name }) }, "Move or add replicas"),
    element("button", { type: "button", class: "danger", onclick: () => deleteRecords(name, state.partitions) }, "Delete records"),
    element("button", { type: "button", class: "danger", onclick: async () => (await deleteTopic(name)) && page.go(["topics"]) }, "Delete topic"));
  page.add(tabs("Views of the topic", [
    [href(["topic", name]), "Partitions", tab === "partitions"],
    [href(["topic", name, "groups"]), "Groups", tab === "groups"],
    [href(["topic", name, "settings"]), "Settings", tab === "settings"],
  ]));
  if (tab === "settings" || tab === "groups") {
    page.add(tab === "groups" ? groupList(page, name).node : configEditor(page, ["configs", "topics", name], name));
    page.once(async () => {
      state.partitions = (await get(pathOf("topics", name), {}, page.signal)).partitions;
    });
  } else {
    partitionsOf(page, name, state);
  }
}

function partitionsOf(page, name, state) {
  const numbers = termList("numbers", {
    Partitions: ({ partitions }) => count(partitions),
    "Replication factor": ({ replication_factor: factor }) => count(factor),
    Records: ({ records }) => count(records),
    Size: ({ size_bytes: size }) => sizeOnDisk(size),
    "Size with replicas": ({ disk_bytes: size }) => sizeOnDisk(size),
    In: ({ bytes_in_rate: value }) => rate(value),
    Out: ({ bytes_out_rate: value }) => rate(value),
    Retention: retentionText,
    Groups: ({ groups }) => count(groups),
    "Under-replicated": ({ under_replicated_partitions: underReplicated }) => ({ text: count(underReplicated), worry: underReplicated > 0 }),
    Offline: ({ offline_partitions: offline }) => ({ text: count(offline), worry: offline > 0 }),
  });
  const list = partitionTable(`Partitions of ${name}`);
  const pages = pager(page.path);
  page.add(numbers.node, historyCharts(page, { charts: CHARTS, path: ["topics", name, "history"], empty: NO_HISTORY }));
  page.section("Partitions", list.node, pages.node);
  page.poll(PERIOD_MS, async () => {
    const { topics: [topic] } = await get(pathOf("topics"), { fields: FIELDS, filter: `name=${name}` }, page.signal);
    if (topic) {
      state.partitions = topic.partitions;
      numbers.update(topic);
    }
    const { partitions, next } = await get(pathOf("topics", name, "partitions"), { limit: PAGE, after: page.query.after }, page.signal);
    list.update(partitions);
    pages.update(page.query, next, pluralize(partitions.length, "partition"));
  });
}

/** The size of a log, with an explanation for topics whose records were deleted. */
function sizeOnDisk(size) {
  return element("span", { title: "Size of the log segments. Deleted records occupy disk space until their whole segment is deleted." }, bytes(size));
}

function partitionTable(caption) {
  return table({
    caption,
    keyOf: ({ partition }) => partition,
    empty: "The topic has no partitions yet.",
    columns: [
      { header: "Partition", names: true, numeric: true, text: ({ partition }) => String(partition) },
      { header: "State", part: chipPart(partitionState) },
      { header: "Leader", numeric: true, text: ({ leader }) => (leader === null ? "none" : String(leader)) },
      { header: "Epoch", numeric: true, text: ({ leader_epoch: epoch }) => count(epoch) },
      { header: "Replicas", text: ({ replicas }) => commaSeparated(replicas) },
      { header: "In sync", text: ({ isr }) => commaSeparated(isr) },
      { header: "(Actions)", className: "cell-actions",
        part: linkPart(({ topic, partition }) => href(["why", "partitions", topic, partition]), ({ partition }) => `Why ${partition}?`) },
    ],
  });
}

/** @returns {[string, string]} */
export function partitionState({ leader, isr, replicas, adding, removing, read_only: readOnly }) {
  if (leader === null) {
    return ["bad", "No leader"];
  }
  if (readOnly) {
    return ["busy", "Read-only: being removed"];
  }
  if (adding?.length || removing?.length) {
    return ["busy", "Moving"];
  }
  return isr.length < replicas.length ? ["warn", "Under-replicated"] : ["good", "In sync"];
}
