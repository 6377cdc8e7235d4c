/** Overview: health, load and recent events. */

import { brokerMap } from "../../parts/broker_map.js";
import { element, setText, show, termList } from "../../parts/elements.js";
import { count } from "../../parts/format.js";
import { historyCharts } from "../../parts/history_charts.js";
import { entryList } from "../../parts/timeline_entries.js";
import { get, pathOf } from "../../shell/api.js";
import { cluster, refreshMetrics, onMetrics } from "../../shell/cluster_metrics.js";
import { rememberAdminUrls } from "../../shell/connection_banner.js";
import { cordonedText } from "../brokers/cordon.js";
import { faultInjection } from "./fault_injection.js";
import { healthPart } from "./health.js";

const PERIOD_MS = 1000;
const ENTRIES = 8;
/** Maximum number of partitions on the map; a larger one would be unreadable. */
const MAP_PARTITIONS_MAX = 150;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Overview");
  const health = healthPart();
  const numbers = termList("numbers", {
    Brokers: (now) => count(now.live_brokers.length),
    Controller: (now) => (now.controller.broker_id === null ? { text: "none", worry: true } : `Broker ${now.controller.broker_id}`),
    Topics: (now) => count(now.topics),
    Partitions: (now) => count(now.partitions),
    "Under-replicated": (now) => ({ text: count(now.under_replicated_partitions), worry: now.under_replicated_partitions > 0 }),
    Offline: (now) => ({ text: count(now.offline_partitions), worry: now.offline_partitions > 0 }),
  });
  const cordoned = element("p", { class: "muted", hidden: true });
  page.add(health.node, cordoned, numbers.node, historyCharts(page));
  const faults = faultInjection(page);
  const map = mapSection(page);
  const loadEvents = recentEvents(page);
  onMetrics(page.signal, () => {
    health.update(cluster.health);
    numbers.update(cluster);
    setText(cordoned, cordonedText(cluster.cordoned_brokers ?? []));
    show(cordoned, cordoned.textContent !== "");
  });
  const refresh = page.poll(PERIOD_MS, async () => {
    const { brokers } = await get(pathOf("brokers"), {}, page.signal);
    rememberAdminUrls(brokers);
    await faults.update(brokers);
    await map.update(brokers);
  });
  faults.onChange(() => {
    refresh();
    refreshMetrics();
  });
  page.once(loadEvents);
}

function mapSection(page) {
  const map = brokerMap(page);
  const node = page.section("Partition leaders", map.node);
  node.hidden = true;
  return {
    async update(brokers) {
      node.hidden = cluster === null || cluster.partitions === 0 || cluster.partitions > MAP_PARTITIONS_MAX;
      if (!node.hidden) {
        const { partitions } = await get(pathOf("partitions"), { limit: MAP_PARTITIONS_MAX }, page.signal);
        const withoutInternal = partitions.filter(({ topic }) => !topic.startsWith("__"));
        node.hidden = withoutInternal.length === 0;
        map.update(brokers, withoutInternal);
      }
    },
  };
}

function recentEvents(page) {
  const list = entryList(ENTRIES, false);
  page.section("Recent events", list.node, element("p", null, element("a", { href: "#/timeline" }, "Complete timeline")));
  return async () => {
    list.replace((await get(pathOf("timeline"), { limit: ENTRIES }, page.signal)).entries);
    page.follow(pathOf("events"), {}, (event) => list.add(event.data));
  };
}
