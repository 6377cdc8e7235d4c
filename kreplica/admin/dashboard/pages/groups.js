/** The list of consumer groups. */

import { chipPart, element, linkPart, setText, show } from "../parts/elements.js";
import { count, pluralize } from "../parts/format.js";
import { debounce, field } from "../parts/forms.js";
import { pager, table } from "../parts/tables.js";
import { get, pathOf } from "../shell/api.js";
import { href } from "../shell/routes.js";

const PERIOD_MS = 3000;
const PAGE = 100;

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  page.title("Groups");
  const search = field({ label: "Find a group", type: "search", value: page.query.search ?? "", autocomplete: "off", spellcheck: "false" });
  const note = element("p", { class: "note", hidden: true });
  const list = groupTable();
  const pages = pager(["groups"]);
  page.add(element("div", { class: "stack" }, element("div", { class: "fields", role: "search" }, search.node), note, list.node, pages.node));
  let groups = [];
  const render = () => {
    const { search: text = "", after = "" } = page.query;
    const matching = groups.filter(({ group }) => group.includes(text) && group > after);
    const shown = matching.slice(0, PAGE);
    list.update(shown);
    pages.update(page.query, matching.length > PAGE ? shown.at(-1).group : null, `${pluralize(shown.length, "group")} of ${count(groups.length)}`);
  };
  search.input.addEventListener("input", debounce(() => {
    page.setQuery({ search: search.input.value.trim(), after: "" });
    render();
  }, 80));
  page.poll(PERIOD_MS, async () => {
    const response = await get(pathOf("groups"), {}, page.signal);
    groups = response.groups.sort((one, other) => (one.group < other.group ? -1 : 1));
    show(note, !response.is_complete);
    setText(note, `Not all coordinators responded: some groups may be missing. ${(response.problems ?? []).map(String).join(" ")}`);
    render();
  });
}

function groupTable() {
  return table({
    caption: "Groups",
    keyOf: ({ group }) => group,
    empty: "No group matches.",
    columns: [
      { header: "Group", names: true, part: linkPart(({ group }) => href(["group", group]), ({ group }) => group || "(no name)") },
      { header: "State", part: chipPart(groupState) },
      { header: "Protocol", text: ({ type, protocol_type: protocol }) => [type, protocol].filter(Boolean).join(", ") },
      { header: "Members", numeric: true, text: ({ members }) => count(members) },
      { header: "Coordinator", numeric: true, text: ({ coordinator }) => (coordinator === null || coordinator === undefined ? null : `Broker ${coordinator}`) },
    ],
  });
}

/** @returns {[string, string]} */
export function groupState({ state }) {
  const label = String(state);
  if (label === "Stable") {
    return ["good", label];
  }
  return label === "Empty" || label === "Dead" ? ["", label] : ["busy", label];
}
