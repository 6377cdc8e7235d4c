/** The list of topics, with search and pages. */

import { chipPart, element, linkPart } from "../parts/elements.js";
import { count, pluralize } from "../parts/format.js";
import { checkbox, debounce, field } from "../parts/forms.js";
import { pager, table } from "../parts/tables.js";
import { get, pathOf } from "../shell/api.js";
import { href } from "../shell/routes.js";

const PERIOD_MS = 3000;
const PAGE = 100;

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  page.title("Topics");
  page.actions.append(element("a", { class: "button primary", href: "#/topics/new" }, "Create topic"));
  const search = field({ label: "Find a topic", type: "search", value: page.query.search ?? "", autocomplete: "off", spellcheck: "false" });
  const internal = checkbox({ label: "Include internal topics", checked: page.query.internal === "1" });
  const list = topicTable();
  const pages = pager(["topics"]);
  page.add(element("div", { class: "stack" }, element("div", { class: "fields", role: "search" }, search.node, internal.node), list.node, pages.node));
  const refresh = page.poll(PERIOD_MS, async () => {
    const query = { limit: PAGE, after: page.query.after, search: page.query.search, internal: page.query.internal === "1" };
    const { topics, next } = await get(pathOf("topics"), query, page.signal);
    list.update(topics);
    pages.update(page.query, next, pluralize(topics.length, "topic"));
  });
  const applyFilter = () => {
    page.setQuery({ search: search.input.value.trim(), internal: internal.input.checked ? "1" : "", after: "" });
    refresh();
  };
  search.input.addEventListener("input", debounce(applyFilter));
  internal.input.addEventListener("change", applyFilter);
}

function topicTable() {
  return table({
    caption: "Topics",
    keyOf: ({ name }) => name,
    empty: "No topic matches.",
    columns: [
      { header: "Topic", names: true, part: linkPart(({ name }) => href(["topic", name]), ({ name }) => name) },
      { header: "State", part: chipPart(topicState) },
      { header: "Partitions", numeric: true, text: ({ partitions }) => count(partitions) },
      { header: "Replication factor", numeric: true, text: ({ replication_factor: factor }) => count(factor) },
      { header: "(Actions)", className: "cell-actions", part: linkPart(({ name }) => href(["messages", name]), () => "Messages") },
    ],
  });
}

/** @returns {[string, string]} */
export function topicState({ deleting, offline_partitions: offline, under_replicated_partitions: underReplicated }) {
  if (deleting) {
    return ["busy", "Being deleted"];
  }
  if (offline) {
    return ["bad", `${count(offline)} offline`];
  }
  return underReplicated ? ["warn", `${count(underReplicated)} under-replicated`] : ["good", "In sync"];
}
