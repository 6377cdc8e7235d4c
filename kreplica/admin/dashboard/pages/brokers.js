/** Brokers: their load, the map of replicas, and cordons. */

import { brokerMap } from "../parts/broker_map.js";
import { barPart, chipPart, element, linkPart, set, setText, show } from "../parts/elements.js";
import { count, pluralize } from "../parts/format.js";
import { checkbox, debounce, field } from "../parts/forms.js";
import { table } from "../parts/tables.js";
import { get, pathOf } from "../shell/api.js";
import { rememberAdminUrls } from "../shell/connection_banner.js";
import { href } from "../shell/routes.js";
import { cordon, uncordon } from "./cordon.js";

const PERIOD_MS = 2000;
/** Maximum number of partitions on the map; the map of a larger cluster shows one topic. */
const MAP_PARTITIONS_MAX = 400;

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  page.title("Brokers");
  const list = brokerTable(() => refresh());
  const map = mapPart(page, () => refresh());
  page.add(list.node);
  page.section("Map of replicas", map.node);
  const refresh = page.poll(PERIOD_MS, async () => {
    const { brokers } = await get(pathOf("brokers"), {}, page.signal);
    rememberAdminUrls(brokers);
    const mostReplicas = Math.max(1, ...brokers.map(({ replicas }) => replicas));
    list.update(brokers.map((broker) => ({ ...broker, mostReplicas })));
    await map.update(brokers);
  });
}

function brokerTable(onChange) {
  return table({
    caption: "Brokers",
    keyOf: ({ broker_id: id }) => id,
    empty: "No broker is registered.",
    columns: [
      { header: "Broker", names: true, part: linkPart(({ broker_id: id }) => href(["broker", id]), ({ broker_id: id }) => `Broker ${id}`) },
      { header: "State", part: chipPart(stateOf) },
      { header: "Rack", text: ({ rack }) => rack },
      { header: "Endpoints", className: "mono", text: ({ endpoints }) => endpoints.join(" ") },
      { header: "Leads", numeric: true, text: ({ leaders }) => count(leaders) },
      { header: "Replicas", part: barPart(({ replicas, mostReplicas }) => [replicas / mostReplicas, count(replicas)]) },
      { header: "(Actions)", className: "cell-actions", part: () => actions(onChange) },
    ],
  });
}

/** @returns {[string, string]} */
export function stateOf({ live, cordoned, under_replicated_leaders: underReplicated, is_controller: isController }) {
  if (live === false) {
    return ["bad", "Offline"];
  }
  if (underReplicated > 0) {
    return ["warn", `${pluralize(underReplicated, "partition")} under-replicated`];
  }
  if (cordoned) {
    return ["warn", "Cordoned"];
  }
  return ["good", isController ? "Controller" : "Live"];
}

function actions(onChange) {
  let broker = null;
  const cordonButton = element("button", {
    class: "tight", type: "button",
    onclick: async () => (await (broker.cordoned ? uncordon : cordon)(broker.broker_id)) && onChange(),
  });
  const drainLink = element("a", { class: "button tight" }, "Drain");
  return {
    node: element("span", null, cordonButton, " ", drainLink),
    update(item) {
      broker = item;
      setText(cordonButton, item.cordoned ? "Uncordon" : "Cordon");
      set(cordonButton, "aria-label", `${cordonButton.textContent} broker ${item.broker_id}`);
      set(drainLink, "aria-label", `Drain broker ${item.broker_id}`);
      set(drainLink, "href", href(["plans", "new"], { kind: "drain", brokers: item.broker_id }));
    },
  };
}

function mapPart(page, onChange) {
  const topic = field({ label: "Topic", type: "search", value: page.query.topic ?? "", placeholder: "all", autocomplete: "off" });
  const internal = checkbox({ label: "Include internal topics", checked: page.query.internal === "1" });
  const note = element("p", { class: "note" });
  const map = brokerMap(page);
  const applyFilter = () => {
    page.setQuery({ topic: topic.input.value.trim(), internal: internal.input.checked ? "1" : "" });
    onChange();
  };
  topic.input.addEventListener("input", debounce(applyFilter));
  internal.input.addEventListener("change", applyFilter);
  const loadPartitions = async () => {
    if (page.query.topic) {
      const path = pathOf("topics", page.query.topic, "partitions");
      return get(path, { limit: MAP_PARTITIONS_MAX + 1 }, page.signal).catch((error) => {
        if (error.status === 404) {
          return { partitions: [] };
        }
        throw error;
      });
    }
    return get(pathOf("partitions"), { limit: MAP_PARTITIONS_MAX + 1 }, page.signal);
  };
  return {
    node: element("div", { class: "stack" }, element("div", { class: "fields" }, topic.node, internal.node), note, map.node),
    async update(brokers) {
      const { partitions } = await loadPartitions();
      const visible = partitions.filter((partition) => page.query.internal || page.query.topic || !partition.topic.startsWith("__"));
      const isTooLarge = partitions.length > MAP_PARTITIONS_MAX && !page.query.topic;
      show(map.node, !isTooLarge && visible.length > 0);
      show(note, isTooLarge || visible.length === 0);
      setText(note, isTooLarge
        ? "The cluster has too many partitions for one map: enter a topic to see its map. The bars above count all partitions."
        : "No partition matches.");
      if (!map.node.hidden) {
        map.update(brokers, visible.slice(0, MAP_PARTITIONS_MAX));
      }
    },
  };
}
