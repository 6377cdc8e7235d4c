/** A form that creates a plan, with a preview. */

import { element, setText } from "../../parts/elements.js";
import { bytes, pluralize } from "../../parts/format.js";
import { checkbox, field, numberOf } from "../../parts/forms.js";
import { KINDS } from "../../parts/plan_labels.js";
import { problemArea } from "../../parts/problems.js";
import { request, get, pathOf } from "../../shell/api.js";
import { announce } from "../../shell/notifications.js";
import { planFields } from "./plan_fields.js";
import { planPreview } from "./plan_preview.js";

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Create a plan", ["#/plans", "Plans"]);
  const problem = problemArea();
  const kindFields = element("div", { class: "stack" });
  const preview = element("section", { class: "section" });
  const general = generalFields();
  const state = { kind: page.query.kind in KINDS ? page.query.kind : "rebalance", fields: null, brokers: [] };
  const selectKind = (kind) => {
    state.kind = kind;
    state.fields = planFields(kind, state.brokers, page.query);
    kindFields.replaceChildren(...state.fields.nodes);
    preview.replaceChildren();
    problem.show(null);
  };
  const form = element("form", {
    class: "form",
    onsubmit: (event) => {
      event.preventDefault();
      showPreview();
    },
  }, kindChoice(state.kind, (kind) => {
    page.setQuery({ kind });
    selectKind(kind);
  }), kindFields, general.node, problem.node, element("div", { class: "buttons" }, element("button", { class: "primary" }, "Preview")));

  const showPreview = async () => {
    problem.show(null);
    preview.replaceChildren(element("p", { class: "muted" }, "Computing the moves…"));
    try {
      const body = { kind: state.kind, ...state.fields.read(), ...general.read() };
      const { document } = await request("POST", pathOf("plans"), { body, dryRun: true, signal: page.signal });
      preview.replaceChildren(...planPreview(document, () => start(body)));
      preview.querySelector("h2").focus();
      announce(`${pluralize(document.moves_count, "move")}, ${bytes(document.bytes)} to copy. The plan has not started.`, { onPage: true });
    } catch (error) {
      preview.replaceChildren();
      problem.show(error);
    }
  };
  const start = async (body) => {
    try {
      const { document } = await request("POST", pathOf("plans"), { body });
      announce(`${document.plan.id} was created.`);
      page.go(["plan", document.plan.id]);
    } catch (error) {
      problem.show(error);
      problem.node.scrollIntoView({ block: "center" });
    }
  };
  page.add(form, preview);
  page.once(async () => {
    state.brokers = (await get(pathOf("brokers"), {}, page.signal)).brokers;
    selectKind(state.kind);
  });
}

function kindChoice(selected, selectKind) {
  return element("fieldset", null, element("legend", null, "Kind of plan"),
    element("div", { class: "plan-kinds" }, Object.entries(KINDS).map(([kind, [title, description]]) =>
      element("label", null,
        element("input", { type: "radio", name: "kind", value: kind, checked: kind === selected, onchange: () => selectKind(kind) }),
        element("strong", null, title), element("span", { class: "hint" }, description)))));
}

function generalFields() {
  const throttle = field({ label: "Throttle (MB/s per broker)", name: "throttle", type: "number", min: 0.001, step: "any", hint: "Empty: no limit." });
  const movesAtOnce = field({ label: "Concurrent moves per broker", name: "moves_at_once", type: "number", min: 1, hint: "Empty: 5." });
  const comment = field({ label: "Comment", name: "comment", autocomplete: "off", hint: "A note that is shown with the plan." });
  const force = checkbox({ label: "Continue even if the last in-sync replica would be removed", name: "force" });
  const summary = element("summary");
  setText(summary, "Speed and comment");
  return {
    node: element("details", { open: true }, summary,
      element("div", { class: "stack" }, element("div", { class: "pair" }, throttle.node, movesAtOnce.node), comment.node, force.node)),
    read() {
      const megabytesPerSecond = numberOf(throttle.input);
      return {
        throttle_bytes_per_second: megabytesPerSecond === undefined ? undefined : Math.round(megabytesPerSecond * 1e6),
        moves_at_once: numberOf(movesAtOnce.input),
        comment: comment.input.value.trim() || undefined,
        force: force.input.checked || undefined,
      };
    },
  };
}
