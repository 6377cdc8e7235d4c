/** Brokers: their load, the map of replicas, and cordons. */

import { brokerMap } from "../parts/broker_map.js";
import { barPart, chipPart, element, linkPart, set, setText, show } from "../parts/elements.js";
import { count, counted } from "../parts/format.js";
import { checkbox, delayed, field } from "../parts/forms.js";
import { table } from "../parts/tables.js";
import { get, pathOf } from "../shell/api.js";
import { rememberBrokers } from "../shell/lost.js";
import { href } from "../shell/routes.js";
import { cordon, uncordon } from "./cordon.js";

const PERIOD_MS = 2000;
/** Maximum number of partitions on the map; beyond it, the map shows one topic, or only counts. */
const MAP_PARTITIONS_MAX = 400;

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  page.title("Brokers");
  const list = brokerTable(() => again());
  const map = mapPart(page, () => again());
  page.add(list.node);
  page.section("Map of replicas", map.node);
  const again = page.poll(PERIOD_MS, async () => {
    const { brokers } = await get(pathOf("brokers"), {}, page.signal);
    rememberBrokers(brokers);
    const most = Math.max(1, ...brokers.map(({ replicas }) => replicas));
    list.update(brokers.map((broker) => ({ ...broker, most })));
    await map.update(brokers);
  });
}

function brokerTable(changed) {
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
      { header: "Replicas", part: barPart(({ replicas, most }) => [replicas / most, count(replicas)]) },
      { header: "(Actions)", className: "cell-actions", part: () => actions(changed) },
    ],
  });
}

/** @returns {[string, string]} */
export function stateOf({ live, cordoned, under_replicated_leaders: behind, is_controller: controls }) {
  if (live === false) {
    return ["bad", "Gone"];
  }
  if (behind > 0) {
    return ["warn", `${counted(behind, "partition")} behind`];
  }
  if (cordoned) {
    return ["warn", "Cordoned"];
  }
  return ["good", controls ? "Controller" : "Live"];
}

function actions(changed) {
  let broker = null;
  const fence = element("button", {
    class: "tight", type: "button",
    onclick: async () => (await (broker.cordoned ? uncordon : cordon)(broker.broker_id)) && changed(),
  });
  const drain = element("a", { class: "button tight" }, "Drain");
  return {
    node: element("span", null, fence, " ", drain),
    update(item) {
      broker = item;
      setText(fence, item.cordoned ? "Uncordon" : "Cordon");
      set(fence, "aria-label", `${fence.textContent} broker ${item.broker_id}`);
      set(drain, "aria-label", `Drain broker ${item.broker_id}`);
      set(drain, "href", href(["plans", "new"], { kind: "drain", brokers: item.broker_id }));
    },
  };
}

function mapPart(page, changed) {
  const topic = field({ label: "Topic", type: "search", value: page.query.topic ?? "", placeholder: "all", autocomplete: "off" });
  const internal = checkbox({ label: "Include internal topics", checked: page.query.internal === "1" });
  const note = element("p", { class: "note" });
  const map = brokerMap(page);
  const choose = () => {
    page.remember({ topic: topic.input.value.trim(), internal: internal.input.checked ? "1" : "" });
    changed();
  };
  topic.input.addEventListener("input", delayed(choose));
  internal.input.addEventListener("change", choose);
  const shown = async () => {
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
      const { partitions } = await shown();
      const wanted = partitions.filter((partition) => page.query.internal || page.query.topic || !partition.topic.startsWith("__"));
      const many = partitions.length > MAP_PARTITIONS_MAX && !page.query.topic;
      show(map.node, !many && wanted.length > 0);
      show(note, many || wanted.length === 0);
      setText(note, many
        ? "The cluster has too many partitions for one picture: name a topic to see its map. The bars above count all of them."
        : "There is no partition to show.");
      if (!map.node.hidden) {
        map.update(brokers, wanted.slice(0, MAP_PARTITIONS_MAX));
      }
    },
  };
}
