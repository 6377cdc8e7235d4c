/** Clients that push their metrics to the brokers, and the subscriptions to these metrics. */

import { dataList } from "../../parts/data_list.js";
import { chipPart, element, linkPart } from "../../parts/elements.js";
import { bytes, commaSeparated, count, durationOf, shortTime } from "../../parts/format.js";
import { table } from "../../parts/tables.js";
import { get, pathOf } from "../../shell/api.js";
import { href } from "../../shell/routes.js";
import { newSubscription } from "./subscription.js";

const PERIOD_MS = 5000;
const FIELDS = "client_instance_id,client_id,software_name,software_version,user,address,broker_id,state,subscriptions,push_interval_ms,metrics,bytes,pushed_at_ms";

const FILTERS = [
  ["", "All clients"], ["metrics>0", "With metrics"], ["state=UNSUBSCRIBED", "Without a subscription"], ["software_name~librdkafka", "librdkafka clients"],
];

/** Label of each state. @type {Record<string, [string, string]>} */
const STATES = { SUBSCRIBED: ["good", "Subscribed"], UNSUBSCRIBED: ["", "No subscription"], TERMINATED: ["", "Terminated"] };

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Clients");
  page.actions.append(element("button", {
    type: "button", class: "primary",
    onclick: async () => {
      const name = await newSubscription();
      if (name !== null) {
        page.go(["subscription", name]);
      }
    },
  }, "New subscription"));
  page.add(dataList(page, {
    path: ["clients"], caption: "Clients with telemetry", noun: "client", none: "No client sends metrics.", filters: FILTERS, fields: FIELDS, keyOf: ({ client_instance_id: id }) => id,
    columns: [
      { header: "Client", names: true, sort: "client_id", part: linkPart(({ client_instance_id: id }) => href(["client", id]), ({ client_id: name }) => name || "(no client ID)") },
      { header: "Software", className: "nowrap", sort: "software_name", text: ({ software_name: name, software_version: version }) => `${name} ${version}` },
      { header: "State", sort: "state", part: chipPart(({ state }) => STATES[state] ?? ["", state]) },
      { header: "Metrics", numeric: true, sort: "-metrics", text: ({ metrics }) => count(metrics) },
      { header: "Last push", className: "nowrap", sort: "-pushed_at_ms", text: ({ pushed_at_ms: at }) => (at === null ? "never" : shortTime(at)) },
      { header: "Interval", numeric: true, sort: "push_interval_ms", text: ({ push_interval_ms: interval }) => durationOf(interval) },
      { header: "Subscriptions", className: "cut", text: ({ subscriptions }) => commaSeparated(subscriptions) },
      { header: "Size", numeric: true, sort: "-bytes", text: ({ bytes: size }) => bytes(size) },
      { header: "User", sort: "user", text: ({ user }) => user },
      { header: "Address", className: "mono", sort: "address", text: ({ address }) => address },
      { header: "Broker", numeric: true, sort: "broker_id", text: ({ broker_id: id }) => String(id) },
    ],
  }).node);
  page.section("Subscriptions", subscriptions(page));
}

function subscriptions(page) {
  const list = table({
    caption: "Client-metrics subscriptions",
    keyOf: ({ name }) => name,
    empty: "There are no subscriptions, so clients push no metrics.",
    columns: [{ header: "Subscription", names: true, part: linkPart(({ name }) => href(["subscription", name]), ({ name }) => name) }],
  });
  page.poll(PERIOD_MS, async () => {
    const { subscriptions: names } = await get(pathOf("configs", "client-metrics"), {}, page.signal);
    list.update(names.map((name) => ({ name })));
  });
  return list.node;
}
