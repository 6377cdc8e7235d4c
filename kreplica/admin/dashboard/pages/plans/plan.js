/** One plan: its progress, and changes to it while it runs. */

import { chip, element, set, setText, show, termList } from "../../parts/elements.js";
import { pluralize, dateTime, rate } from "../../parts/format.js";
import { areValid, checkbox, field } from "../../parts/forms.js";
import { moveTable } from "../../parts/move_table.js";
import { progressFraction, hasEnded, kindTitle, planState, progressText } from "../../parts/plan_labels.js";
import { pager } from "../../parts/tables.js";
import { confirmWrite } from "../../parts/writes.js";
import { get, pathOf } from "../../shell/api.js";
import { cluster } from "../../shell/cluster_metrics.js";
import { announce } from "../../shell/notifications.js";
import { href } from "../../shell/routes.js";
import { cordonedText } from "../brokers/cordon.js";

const PERIOD_MS = 1000;
const PAGE = 100;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  const id = page.path[1];
  page.title(id, ["#/plans", "Plans"]);
  const change = element("button", { type: "button", hidden: true, onclick: async () => (await changeThrottle(id, current)) && refresh() }, "Change throttle");
  const cancel = element("button", { type: "button", class: "danger", hidden: true, onclick: async () => (await cancelPlan(id)) && refresh() }, "Cancel plan");
  const forget = element("button", { type: "button", hidden: true, onclick: async () => (await forgetPlan(id)) && page.go(["plans"]) }, "Forget");
  page.actions.append(element("a", { class: "button", href: href(["why", "plans", id]) }, "Why?"), change, cancel, forget);
  const bar = element("progress", { max: 1, value: 0, "aria-label": `Progress of ${id}` });
  const progress = element("p");
  const cordoned = element("p", { class: "muted", hidden: true });
  const facts = termList("facts", {
    State: (plan) => chip(...planState(plan)),
    Kind: kindTitle,
    Reason: ({ reason }) => reason,
    Comment: ({ comment }) => comment,
    Throttle: ({ throttle_bytes_per_second: bytes }) => (bytes === null || bytes === undefined ? "none" : rate(bytes)),
    "Concurrent moves": ({ moves_at_once: moves }) => (moves ? `${moves} per broker` : "–"),
    Created: ({ created_at_ms: at }) => dateTime(at),
    Ended: ({ ended_at_ms: at }) => dateTime(at),
  });
  const moves = moveTable(`Moves of ${id}`, true);
  const pages = pager(page.path);
  let current = null;
  page.add(element("div", { class: "card stack" }, bar, progress, cordoned, facts.node));
  page.section("Moves", moves.node, pages.node);
  const refresh = page.poll(PERIOD_MS, async () => {
    const plan = await get(pathOf("plans", id), {}, page.signal);
    if (current !== null && current.state !== plan.state) {
      announce(`The plan is ${planState(plan)[1].toLowerCase()}.`, { onPage: true });
    }
    current = plan;
    set(bar, "value", progressFraction(plan));
    setText(progress, progressText(plan.progress));
    setText(cordoned, cordonedText(stillCordoned(plan)));
    show(cordoned, cordoned.textContent !== "");
    facts.update(plan);
    show(change, !hasEnded(plan));
    show(forget, hasEnded(plan));
    show(cancel, !hasEnded(plan) && plan.state !== "cancelling");
    const { moves: rows, next } = await get(pathOf("plans", id, "moves"), { limit: PAGE, after: page.query.after }, page.signal);
    moves.update(rows);
    pages.update(page.query, next, pluralize(rows.length, "move"));
  });
}

/** The brokers that a plan has drained and left cordoned. @param {any} plan @returns {number[]} */
function stillCordoned(plan) {
  const brokers = hasEnded(plan) && plan.kind === "drain" ? plan.request.brokers ?? [] : [];
  return brokers.filter((/** @type {number} */ id) => cluster?.cordoned_brokers?.includes(id));
}

/** @param {string} id @param {any} plan */
function changeThrottle(id, plan) {
  const throttle = plan?.throttle_bytes_per_second;
  const speed = field({ label: "Maximum MB/s per broker", type: "number", min: 0.001, step: "any", value: throttle ? String(throttle / 1e6) : "",
    hint: "Empty: no limit. The throttle applies to moving replicas, until the plan ends." });
  return confirmWrite({
    title: "Throttle of the plan",
    method: "PATCH", path: pathOf("plans", id), confirm: "Change", done: "",
    form: {
      nodes: [speed.node],
      read() {
        const text = speed.input.value.trim();
        const bytes = text === "" ? null : Math.round(Number(text) * 1e6);
        return areValid(speed) && bytes !== (throttle ?? null) ? {
          body: { throttle_bytes_per_second: bytes },
          summary: bytes === null ? "The throttle is removed." : `At most ${rate(bytes)} per broker.`,
          done: bytes === null ? "The plan is no longer throttled." : `The plan moves at most ${rate(bytes)} per broker.`,
        } : null;
      },
    },
  });
}

/** @param {string} id */
function forgetPlan(id) {
  return confirmWrite({
    title: `Forget ${id}?`, explain: "The plan has ended. Its record is deleted; the moved replicas stay in place.", method: "DELETE", path: pathOf("plans", id),
    confirm: "Forget", done: `${id} was deleted.`,
  });
}

/** @param {string} id */
function cancelPlan(id) {
  const revert = checkbox({ label: "Revert the moves that are finished", checked: false });
  return confirmWrite({
    title: `Cancel ${id}?`,
    explain: "Waiting moves are skipped, and ongoing moves are reverted. Finished moves are kept unless you revert them.",
    method: "POST", path: pathOf("plans", id, "cancel"),
    form: {
      nodes: [revert.node],
      read: () => ({
        body: { rollback: revert.input.checked },
        summary: revert.input.checked ? "All moves are reverted." : "Finished moves are kept.",
      }),
    },
    confirm: "Cancel the plan", dismiss: "Keep it running", danger: true,
    done: "The plan is being cancelled.",
  });
}
