/** The list of consumer groups, with their lag. */

import { dataList } from "../../parts/data_list.js";
import { chipPart, linkPart } from "../../parts/elements.js";
import { commaSeparated, count, pluralize, shortTime } from "../../parts/format.js";
import { href } from "../../shell/routes.js";

const FIELDS = "group,state,status,type,members,topics,lag,partitions_without_commit,last_commit_at_ms,coordinator";

const FILTERS = [
  ["", "All groups"], ["status!=OK", "Groups with problems"], ["members>0", "Groups with members"], ["members=0", "Groups without members"],
  ["partitions_without_commit>0", "Groups with uncommitted partitions"], ["lag>1000", "Lag above 1,000"],
];

/** Label of each status. @type {Record<string, [string, string]>} */
const STATUS = {
  OK: ["good", "Keeps up"], WARN: ["warn", "Falls behind"], STALLED: ["bad", "Stalled"], STOPPED: ["bad", "Stopped"],
};

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Groups");
  page.add(groupList(page).node);
}

/** The list of all groups, or of those that read a topic. @param {import("../../shell/page.js").Page} page @param {string} [topic] */
export function groupList(page, topic) {
  return dataList(page, {
    path: ["groups"], caption: "Groups", noun: "group", search: "Find a group", filters: FILTERS, fields: FIELDS, keyOf: ({ group }) => group,
    query: () => ({ topic }),
    columns: [
      { header: "Group", names: true, sort: "group", part: linkPart(({ group }) => href(["group", group]), ({ group }) => group || "(no name)") },
      { header: "State", sort: "state", part: chipPart(groupState) },
      { header: "Status", sort: "-status", part: chipPart(groupStatus) },
      { header: "Members", numeric: true, sort: "-members", text: ({ members }) => count(members) },
      { header: "Topics", className: "cut", text: ({ topics }) => (topics === null ? null : topicsText(topics)) },
      { header: "Lag", numeric: true, sort: "-lag", text: ({ lag }) => count(lag) },
      { header: "Never committed", numeric: true, sort: "-partitions_without_commit", text: ({ partitions_without_commit: never }) => (never ? pluralize(never, "partition") : "0") },
      { header: "Last commit", className: "nowrap", sort: "-last_commit_at_ms", text: ({ last_commit_at_ms: at }) => (at === null ? "never" : shortTime(at)) },
      { header: "Protocol", sort: "type", text: ({ type }) => type },
      { header: "Coordinator", numeric: true, sort: "coordinator", text: ({ coordinator }) => `Broker ${coordinator}` },
    ],
  });
}

function topicsText(topics) {
  return topics.length > 1 ? `${topics[0]} and ${topics.length - 1} more` : commaSeparated(topics);
}

/** @returns {[string, string]} */
export function groupState({ state }) {
  const label = String(state);
  if (label === "Stable") {
    return ["good", label];
  }
  return label === "Empty" || label === "Dead" ? ["", label] : ["busy", label];
}

/** @returns {[string, string]} */
export function groupStatus({ status }) {
  return STATUS[status] ?? ["", status === null || status === undefined ? "–" : String(status).toLowerCase()];
}
