/** Quotas for users, client IDs and addresses, and the clients that were throttled. */

import { chipPart, element, setText } from "../../parts/elements.js";
import { shortTime, pluralize, milliseconds } from "../../parts/format.js";
import { buttonsPart } from "../../parts/row_buttons.js";
import { pager, table } from "../../parts/tables.js";
import { get, pathOf } from "../../shell/api.js";
import { deleteQuota, setQuota } from "./quota_changes.js";
import { entityText, quotaText, valueText } from "./quota_labels.js";

const PERIOD_MS = 5000;
const PAGE = 200;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Quotas");
  let refresh = () => {};
  const refreshAfter = async (change) => (await change) && refresh();
  page.actions.append(element("button", { type: "button", class: "primary", onclick: () => refreshAfter(setQuota(null)) }, "Set quota"));
  const list = quotaTable(refreshAfter);
  const pages = pager(["quotas"]);
  page.add(element("div", { class: "stack" }, list.node, pages.node));
  refresh = page.poll(PERIOD_MS, async () => {
    const { quotas, next } = await get(pathOf("quotas"), { limit: PAGE, after: page.query.after }, page.signal);
    const rows = quotas.flatMap(({ quotas: values, ...entity }) =>
      Object.entries(values).map(([name, value]) => ({ entity, name, value })));
    list.update(rows);
    pages.update(page.query, next, pluralize(rows.length, "quota"));
  });
  page.section("Throttled clients", throttledClients(page));
}

function quotaTable(refreshAfter) {
  return table({
    caption: "Quotas",
    keyOf: ({ entity, name }) => JSON.stringify([entity, name]),
    empty: "No quotas are set.",
    columns: [
      { header: "Applies to", names: true, text: ({ entity }) => entityText(entity) },
      { header: "Quota", text: ({ name }) => quotaText(name) },
      { header: "For each broker", numeric: true, text: ({ name, value }) => valueText(name, value) },
      { header: "(Actions)", className: "cell-actions", part: buttonsPart((quota) => [
        ["Change", () => refreshAfter(setQuota(quota))],
        ["Delete", () => refreshAfter(deleteQuota(quota.entity, quota.name))],
      ]) },
    ],
  });
}

/** The clients that the brokers throttled in the last hour, and an explanation. */
function throttledClients(page) {
  const explanation = element("p", { role: "status" });
  const problems = element("p", { class: "wrong small" });
  const explain = async ({ user, client_id, address }) => {
    const response = await get(pathOf("why", "client"), { principal: user, client_id, address }, page.signal);
    setText(explanation, response.summary);
    explanation.className = `health ${response.state === "throttled" ? "bad" : "good"}`;
  };
  const list = table({
    caption: "Clients throttled in the last hour",
    keyOf: (row) => JSON.stringify([row.broker_id, row.quota, row.user, row.client_id, row.address]),
    empty: "No clients were throttled in the last hour.",
    columns: [
      { header: "Client", names: true, text: ({ user, client_id: client }) => [user, client].filter(Boolean).join(", ") || "any" },
      { header: "Address", text: ({ address }) => address },
      { header: "Quota", text: ({ quota }) => quotaText(quota) },
      { header: "Broker", numeric: true, text: ({ broker_id: broker }) => broker },
      { header: "Now", part: chipPart(({ until_ms: until }) => (until === null ? ["", "no"] : ["warn", "throttled"])) },
      { header: "Count", numeric: true, text: ({ count }) => count },
      { header: "Duration", numeric: true, text: ({ throttled_ms: ms }) => milliseconds(ms) },
      { header: "Last", text: ({ last_at_ms: at }) => shortTime(at) },
      { header: "(Actions)", className: "cell-actions", part: buttonsPart((row) => [["Explain", () => page.once(() => explain(row))]]) },
    ],
  });
  page.poll(PERIOD_MS, async () => {
    const response = await get(pathOf("throttled-clients"), {}, page.signal);
    list.update(response.clients);
    setText(problems, response.problems.join(" "));
  });
  return element("div", { class: "stack" }, list.node, problems, explanation);
}
