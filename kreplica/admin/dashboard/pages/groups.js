/** The list of consumer groups. */

import { chipPart, element, linkPart, setText, show } from "../parts/elements.js";
import { count, counted } from "../parts/format.js";
import { delayed, field } from "../parts/forms.js";
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
  const draw = () => {
    const { search: word = "", after = "" } = page.query;
    const found = groups.filter(({ group }) => group.includes(word) && group > after);
    const shown = found.slice(0, PAGE);
    list.update(shown);
    pages.update(page.query, found.length > PAGE ? shown.at(-1).group : null, `${counted(shown.length, "group")} of ${count(groups.length)}`);
  };
  search.input.addEventListener("input", delayed(() => {
    page.remember({ search: search.input.value.trim(), after: "" });
    draw();
  }, 80));
  page.poll(PERIOD_MS, async () => {
    const answer = await get(pathOf("groups"), {}, page.signal);
    groups = answer.groups.sort((one, other) => (one.group < other.group ? -1 : 1));
    show(note, !answer.is_complete);
    setText(note, `Not all coordinators answered: groups may be missing. ${(answer.problems ?? []).map(String).join(" ")}`);
    draw();
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
  const words = String(state);
  if (words === "Stable") {
    return ["good", words];
  }
  return words === "Empty" || words === "Dead" ? ["", words] : ["busy", words];
}
