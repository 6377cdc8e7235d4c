/** The list of plans: running and ended ones. */

import { barPart, chipPart, element, linkPart } from "../../parts/elements.js";
import { shortTime, pluralize } from "../../parts/format.js";
import { progressFraction, kindTitle, planState } from "../../parts/plan_labels.js";
import { pager, table } from "../../parts/tables.js";
import { get, pathOf } from "../../shell/api.js";
import { href } from "../../shell/routes.js";

const PERIOD_MS = 2000;
const PAGE = 50;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Plans");
  page.actions.append(element("a", { class: "button primary", href: "#/plans/new" }, "Create a plan"));
  const list = table({
    caption: "Plans",
    keyOf: ({ id }) => id,
    empty: "There are no plans. A plan moves replicas; it can be previewed, throttled, followed and cancelled.",
    columns: [
      { header: "Plan", names: true, part: linkPart(({ id }) => href(["plan", id]), ({ id }) => id) },
      { header: "Kind", text: kindTitle },
      { header: "State", part: chipPart(planState) },
      { header: "Done", part: barPart((plan) => [progressFraction(plan), `${Math.floor(progressFraction(plan) * 100)}%`]) },
      { header: "Created", className: "nowrap", text: ({ created_at_ms: at }) => shortTime(at) },
      { header: "Comment", className: "cut", text: ({ comment }) => comment },
    ],
  });
  const pages = pager(["plans"]);
  page.add(list.node, pages.node);
  page.poll(PERIOD_MS, async () => {
    const { plans, next } = await get(pathOf("plans"), { limit: PAGE, after: page.query.after }, page.signal);
    list.update(plans);
    pages.update(page.query, next ?? null, plans.length ? pluralize(plans.length, "plan") : "");
  });
}
