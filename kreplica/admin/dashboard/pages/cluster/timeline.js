/** The timeline: decisions of brokers and the controller, updated live. */

import { element, setText } from "../../parts/elements.js";
import { withoutUnderscores } from "../../parts/format.js";
import { selectField, setOptions } from "../../parts/forms.js";
import { entryList } from "../../parts/timeline_entries.js";
import { get, pathOf } from "../../shell/api.js";

const PAGE = 100;
const ROWS_MAX = 1000;
const STATES = {
  connected: "Live: new entries appear automatically.",
  interrupted: "The stream was interrupted; reconnecting.",
  rejected: "Not live: reload the page to see new entries.",
};

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Timeline");
  const selected = page.query.kind ?? "";
  const kinds = new Set(selected ? [selected] : []);
  const kind = selectField({ label: "Kind", name: "kind" }, []);
  const state = element("span", { class: "muted small" }, "Connecting.");
  const list = entryList(ROWS_MAX, true);
  const older = element("button", { type: "button", hidden: true, onclick: () => page.once(loadOlder) }, "Older");
  const problems = element("p", { class: "note", hidden: true });
  let oldestId = null;

  const addKinds = (entries) => {
    const before = kinds.size;
    entries.forEach((entry) => kinds.add(entry.kind));
    if (kinds.size !== before || kind.input.options.length === 0) {
      setOptions(kind.input, [["", "All"], ...[...kinds].sort().map((name) => /** @type {[string, string]} */ ([name, withoutUnderscores(name)]))], selected);
    }
  };
  const load = async (before) => {
    const response = await get(pathOf("timeline"), { limit: PAGE, kind: selected, before }, page.signal);
    oldestId = response.entries.at(-1)?.id ?? oldestId;
    older.hidden = response.entries.length < PAGE || list.size() + response.entries.length >= ROWS_MAX;
    problems.hidden = !response.problems?.length;
    setText(problems, `Not all brokers responded: ${(response.problems ?? []).map((problem) => (typeof problem === "string" ? problem : JSON.stringify(problem))).join(" ")}`);
    addKinds(response.entries);
    return response.entries;
  };
  const loadOlder = async () => list.append(await load(oldestId));
  kind.input.addEventListener("change", () => page.go(page.path, { kind: kind.input.value }));
  addKinds([]);
  page.add(element("div", { class: "stack" }, element("div", { class: "fields" }, kind.node, state), problems, list.node, older));
  page.once(async () => {
    list.replace(await load(null));
    page.follow(pathOf("events"), {}, ({ data }) => {
      addKinds([data]);
      if (!selected || data.kind === selected) {
        list.add(data);
      }
    }, (streamState, problem) => {
      setText(state, STATES[streamState]);
      page.showProblem(state, streamState === "rejected" ? problem : null);
    });
  });
}
