/** One broker: its addresses, log directories, load, connections and settings. */

import { configEditor } from "../../parts/config_editor.js";
import { chip, element, termList } from "../../parts/elements.js";
import { historyCharts } from "../../parts/history_charts.js";
import { bytes, count, dateTime } from "../../parts/format.js";
import { table } from "../../parts/tables.js";
import { tabs } from "../../parts/tabs.js";
import { get, pathOf } from "../../shell/api.js";
import { href } from "../../shell/routes.js";
import { brokerConnections } from "./broker_connections.js";
import { stateOf } from "./brokers.js";
import { cordon, uncordon } from "./cordon.js";
import { faultItem } from "../cluster/health.js";

const PERIOD_MS = 3000;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  const [, id, tab = "state"] = page.path;
  page.title(`Broker ${id}`, ["#/brokers", "Brokers"]);
  const facts = termList("facts", {
    State: (broker) => chip(...stateOf(broker)),
    Faults: ({ faults }) => (faults.length ? element("ul", { class: "faults" }, faults.map(faultItem)) : "none"),
    Endpoints: ({ endpoints }) => element("span", { class: "mono" }, endpoints.join(" ")),
    Rack: ({ rack }) => rack ?? "none",
    "Broker epoch": ({ broker_epoch: epoch }) => String(epoch ?? "–"),
    Registered: ({ registered_at_ms: at }) => dateTime(at),
    Leads: ({ leaders }) => count(leaders),
    Replicas: ({ replicas }) => count(replicas),
    "Admin address": ({ admin_url: url }) => (url ? element("a", { href: url }, url) : "none"),
  });
  const directories = table({
    caption: `Log directories of broker ${id}`,
    keyOf: ({ path }) => path,
    empty: "The broker does not report its log directories.",
    columns: [
      { header: "Directory", names: true, className: "mono", text: ({ path }) => path },
      { header: "Problem", text: ({ error }) => error },
      { header: "Partitions", numeric: true, text: ({ partitions }) => count(Array.isArray(partitions) ? partitions.length : partitions) },
      { header: "Used by logs", numeric: true, text: ({ size_bytes: size }) => bytes(size) },
      { header: "Free", numeric: true, text: ({ usable_bytes: free }) => bytes(free) },
      { header: "Disk", numeric: true, text: ({ total_bytes: total }) => bytes(total) },
    ],
  });
  page.add(tabs("Views of the broker", [
    [href(["broker", id]), "State", tab === "state"],
    [href(["broker", id, "connections"]), "Connections", tab === "connections"],
    [href(["broker", id, "settings"]), "Settings", tab === "settings"],
  ]));
  if (tab === "connections") {
    page.add(brokerConnections(page, id));
  } else if (tab === "settings") {
    page.add(configEditor(page, ["configs", "brokers", id], `broker ${id}`, true));
  } else {
    page.add(element("div", { class: "card" }, facts.node));
    page.section("Log directories", directories.node);
    page.add(historyCharts(page, { broker: id }));
  }
  const shown = { cordoned: null };
  const refresh = page.poll(PERIOD_MS, async () => {
    const broker = await get(pathOf("brokers", id), {}, page.signal);
    facts.update(broker);
    directories.update(broker.log_dirs ?? []);
    if (shown.cordoned !== broker.cordoned) {
      shown.cordoned = broker.cordoned;
      const toggle = broker.cordoned ? uncordon : cordon;
      page.actions.replaceChildren(
        element("button", { type: "button", onclick: async () => (await toggle(Number(id))) && refresh() }, broker.cordoned ? "Uncordon" : "Cordon"),
        element("a", { class: "button", href: href(["plans", "new"], { kind: "drain", brokers: id }) }, "Drain…"));
    }
  });
}
