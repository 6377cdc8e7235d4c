/** One group: its members and its lag. */

import { barPart, chip, chipPart, element, linkPart, termList } from "../../parts/elements.js";
import { count, dateTime, durationOf, commaSeparated, perSecond, pluralize, ranges, shortTime } from "../../parts/format.js";
import { historyCharts } from "../../parts/history_charts.js";
import { table } from "../../parts/tables.js";
import { get, pathOf } from "../../shell/api.js";
import { href } from "../../shell/routes.js";
import { groupState, groupStatus } from "./groups.js";
import { deleteGroup, resetOffsets } from "./group_changes.js";

const PERIOD_MS = 2000;
/** Maximum number of partitions; those with the most lag are shown. */
const ROWS_MAX = 300;
const CHARTS = [
  { title: "Lag", series: [["lag", "Messages behind"]], format: count, minTop: 10 },
  { title: "Consumption", series: [["consumed_rate", "Messages committed"]], format: perSecond, minTop: 1 },
  { title: "Members", series: [["members", "Members"]], format: count, minTop: 2 },
];
const NO_HISTORY = "No data: the group is new, or 200 other groups were more active. Each broker keeps charts for 200 groups.";

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  const name = page.path[1];
  page.title(name, ["#/groups", "Groups"]);
  page.actions.append(
    element("a", { class: "button", href: href(["why", "groups", name]) }, "Why?"),
    element("button", { type: "button", onclick: async () => (await resetOffsets(name)) && refresh() }, "Reset offsets"),
    element("button", { type: "button", class: "danger", onclick: async () => (await deleteGroup(name)) && page.go(["groups"]) }, "Delete"));
  const numbers = termList("numbers", {
    State: ({ group }) => chip(...groupState(group)),
    Members: ({ group }) => count(group.members?.length ?? group.members),
    Coordinator: ({ group }) => (group.coordinator === null || group.coordinator === undefined ? "–" : `Broker ${group.coordinator}`),
    "Messages behind": ({ lag }) => count(lag.lag),
    "Never committed": ({ lag }) => neverCommitted(lag),
    Status: ({ lag }) => chip(...groupStatus(lag)),
    "No commit since": ({ lag }) => noCommitText(lag),
  });
  const members = memberTable(name);
  const lags = lagTable(name);
  page.add(numbers.node, historyCharts(page, { charts: CHARTS, path: ["groups", name, "history"], empty: NO_HISTORY }));
  page.section("Lag by partition", lags.node);
  page.section("Members", members.node);
  const refresh = page.poll(PERIOD_MS, async () => {
    const group = await get(pathOf("groups", name), {}, page.signal);
    const lag = await get(pathOf("groups", name, "lag"), {}, page.signal);
    numbers.update({ group, lag });
    members.update(group.members ?? []);
    lags.update(withMostLag(lag.partitions));
  });
}

/** Partitions without a committed offset, whose records are all part of the lag. */
function neverCommitted({ partitions_without_commit: number, lag_without_commit: lag }) {
  return number ? `${pluralize(number, "partition")}, ${pluralize(lag, "message")}` : "none";
}

/** The time since which nothing was committed although there was lag. */
function noCommitText({ no_commit_since_ms: since }) {
  return since === null || since === undefined ? null : `${shortTime(since)} (${durationOf(Date.now() - since)})`;
}

function withMostLag(partitions) {
  const highestLag = Math.max(1, ...partitions.map(({ lag }) => lag ?? 0));
  const rows = partitions.map((partition) => ({ ...partition, highestLag }));
  return rows.length <= ROWS_MAX ? rows : rows.sort((one, other) => (other.lag ?? 0) - (one.lag ?? 0)).slice(0, ROWS_MAX);
}

function lagTable(name) {
  return table({
    caption: `Lag of ${name} by partition`,
    keyOf: ({ topic, partition }) => `${topic}-${partition}`,
    empty: "The group has committed no offsets.",
    columns: [
      { header: "Partition", names: true, part: linkPart(({ topic }) => href(["topic", topic]), ({ topic, partition }) => `${topic}-${partition}`) },
      { header: "Status", part: chipPart(groupStatus) },
      { header: "Lag", part: barPart(({ lag, highestLag }) => [(lag ?? 0) / highestLag, count(lag)]) },
      { header: "Committed", numeric: true, text: ({ committed_offset: offset }) => (offset === null ? "never" : count(offset)) },
      { header: "Log end", numeric: true, text: ({ log_end_offset: offset }) => count(offset) },
      { header: "Last commit", className: "nowrap", text: ({ committed_at_ms: at }) => dateTime(at) },
    ],
  });
}

function memberTable(name) {
  return table({
    caption: `Members of ${name}`,
    keyOf: ({ member_id: id }) => id,
    empty: "The group has no members.",
    columns: [
      { header: "Member", names: true, className: "mono", text: ({ member_id: id }) => id },
      { header: "Client", text: ({ client_id: client }) => client },
      { header: "Host", text: ({ client_host: host }) => host },
      { header: "Instance", text: ({ instance_id: instance }) => instance },
      { header: "Reads", text: ({ assignment }) => commaSeparated((assignment ?? []).map(({ topic, partitions }) => `${topic}: ${ranges(partitions)}`)) },
    ],
  });
}
