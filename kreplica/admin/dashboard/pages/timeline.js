/** The timeline: decisions of brokers and the controller, updated live. */

import { element, setText } from "../parts/elements.js";
import { choice, setChoices } from "../parts/forms.js";
import { entryList, worded } from "../parts/timeline_entries.js";
import { get, pathOf } from "../shell/api.js";

const PAGE = 100;
const ROWS_MAX = 1000;

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  page.title("Timeline");
  const chosen = page.query.kind ?? "";
  const kinds = new Set(chosen ? [chosen] : []);
  const kind = choice({ label: "Kind", name: "kind" }, []);
  const state = element("span", { class: "muted small" }, "Connecting.");
  const list = entryList(ROWS_MAX, true);
  const older = element("button", { type: "button", hidden: true, onclick: () => page.once(loadOlder) }, "Older");
  const problems = element("p", { class: "note", hidden: true });
  let last = null;

  const learn = (entries) => {
    const before = kinds.size;
    entries.forEach((entry) => kinds.add(entry.kind));
    if (kinds.size !== before || kind.input.options.length === 0) {
      setChoices(kind.input, [["", "All"], ...[...kinds].sort().map((name) => /** @type {[string, string]} */ ([name, worded(name)]))], chosen);
    }
  };
  const load = async (before) => {
    const answer = await get(pathOf("timeline"), { limit: PAGE, kind: chosen, before }, page.signal);
    last = answer.entries.at(-1)?.id ?? last;
    older.hidden = answer.entries.length < PAGE || list.size() + answer.entries.length >= ROWS_MAX;
    problems.hidden = !answer.problems?.length;
    setText(problems, `Not all brokers answered: ${(answer.problems ?? []).map((problem) => (typeof problem === "string" ? problem : JSON.stringify(problem))).join(" ")}`);
    learn(answer.entries);
    return answer.entries;
  };
  const loadOlder = async () => list.append(await load(last));
  kind.input.addEventListener("change", () => page.go(page.path, { kind: kind.input.value }));
  learn([]);
  page.add(element("div", { class: "stack" }, element("div", { class: "fields" }, kind.node, state), problems, list.node, older));
  page.once(async () => {
    list.begin(await load(null));
    page.follow(pathOf("events"), {}, ({ data }) => {
      learn([data]);
      if (!chosen || data.kind === chosen) {
        list.add(data);
      }
    }, (problem) => setText(state, problem ? "The stream was interrupted; reconnecting." : "Live: new entries appear automatically."));
  });
}
