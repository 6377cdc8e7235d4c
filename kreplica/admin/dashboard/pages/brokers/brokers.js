/** Brokers: their load, the map of replicas, and cordons. */

import { brokerMap } from "../../parts/broker_map.js";
import { barPart, chipPart, element, linkPart, set, setText, show } from "../../parts/elements.js";
import { bytes, count, pluralize, rate, withoutUnderscores } from "../../parts/format.js";
import { checkbox, debounce, field } from "../../parts/forms.js";
import { table } from "../../parts/tables.js";
import { get, pathOf } from "../../shell/api.js";
import { faultsOf } from "../../shell/cluster_metrics.js";
import { rememberAdminUrls } from "../../shell/connection_banner.js";
import { href } from "../../shell/routes.js";
import { cordon, uncordon } from "./cordon.js";

const PERIOD_MS = 2000;
const FIELDS = "broker_id,live,rack,admin_url,is_controller,cordoned,leaders,replicas,under_replicated_leaders,version,connections,log_bytes,usable_bytes,"
  + "offline_log_dirs,bytes_in_rate,bytes_out_rate";
/** Request for the topics of the table that replaces a map that would be too large. */
const MATRIX = { fields: "name,partitions,brokers", sort: "-partitions", limit: 100 };
/** Maximum number of partitions on the map; the map of a larger cluster shows one topic. */
const MAP_PARTITIONS_MAX = 400;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Brokers");
  const sorting = {
    current: () => page.query.sort ?? "",
    choose: (sort) => {
      page.setQuery({ sort });
      refresh();
    },
  };
  const list = brokerTable(() => refresh(), sorting);
  const map = mapPart(page, () => refresh());
  page.add(list.node);
  page.section("Map of replicas", map.node);
  const refresh = page.poll(PERIOD_MS, async () => {
    const { brokers } = await get(pathOf("brokers"), { fields: FIELDS, sort: page.query.sort, limit: 10_000 }, page.signal);
    rememberAdminUrls(brokers);
    const mostReplicas = Math.max(1, ...brokers.map(({ replicas }) => replicas));
    list.update(brokers.map((broker) => ({ ...broker, mostReplicas, faults: faultsOf(broker.broker_id) })));
    await map.update(brokers);
  });
}

function brokerTable(onChange, sorting) {
  return table({
    caption: "Brokers",
    sorting,
    keyOf: ({ broker_id: id }) => id,
    empty: "No brokers are registered.",
    columns: [
      { header: "Broker", names: true, sort: "broker_id", part: linkPart(({ broker_id: id }) => href(["broker", id]), ({ broker_id: id }) => `Broker ${id}`) },
      { header: "State", part: chipPart(stateOf) },
      { header: "Rack", sort: "rack", text: ({ rack }) => rack },
      { header: "Leads", numeric: true, sort: "-leaders", text: ({ leaders }) => count(leaders) },
      { header: "Replicas", sort: "-replicas", part: barPart(({ replicas, mostReplicas }) => [replicas / mostReplicas, count(replicas)]) },
      { header: "Size", numeric: true, sort: "-log_bytes", text: ({ log_bytes: size }) => bytes(size) },
      { header: "Free", numeric: true, sort: "usable_bytes", text: freeText },
      { header: "In", numeric: true, sort: "-bytes_in_rate", text: ({ bytes_in_rate: value }) => rate(value) },
      { header: "Out", numeric: true, sort: "-bytes_out_rate", text: ({ bytes_out_rate: value }) => rate(value) },
      { header: "Connections", numeric: true, sort: "-connections", text: ({ connections }) => count(connections) },
      { header: "Version", sort: "version", text: ({ version }) => version },
      { header: "(Actions)", className: "cell-actions", part: () => actions(onChange) },
    ],
  });
}

function freeText({ usable_bytes: free, offline_log_dirs: failed }) {
  return failed ? `${bytes(free)}, ${pluralize(failed, "disk")} failed` : bytes(free);
}

/** @returns {[string, string]} */
export function stateOf({ live, cordoned, faults, under_replicated_leaders: underReplicated, is_controller: isController }) {
  if (live === false) {
    return ["bad", "Offline"];
  }
  if (faults.length) {
    const [{ severity, kind }] = faults;
    const name = withoutUnderscores(kind);
    const others = faults.length > 1 ? ` +${faults.length - 1}` : "";
    return [severity, `${name[0].toUpperCase()}${name.slice(1)}${others}`];
  }
  if (underReplicated > 0) {
    return ["warn", `${pluralize(underReplicated, "partition")} under-replicated`];
  }
  if (cordoned) {
    return ["warn", isController ? "Controller, cordoned" : "Cordoned"];
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

/** Leaders and replicas of topics by broker, for clusters that are too large for a map. */
function matrixTable() {
  return table({
    caption: "Leaders and replicas by topic and broker",
    keyOf: ({ name }) => name,
    columns: [
      { header: "Topic", names: true, part: linkPart(({ name }) => href(["topic", name]), ({ name }) => name) },
      { header: "Partitions", numeric: true, text: ({ partitions }) => count(partitions) },
      { header: "Leading replicas, by broker", text: ({ brokers }) => brokers.map(({ broker_id: id, leaders, replicas }) => `${id}: ${leaders} of ${replicas}`).join(", ") },
    ],
  });
}

function mapPart(page, onChange) {
  const topic = field({ label: "Topic", type: "search", value: page.query.topic ?? "", placeholder: "all", autocomplete: "off" });
  const internal = checkbox({ label: "Include internal topics", checked: page.query.internal === "1" });
  const note = element("p", { class: "note" });
  const map = brokerMap(page);
  const matrix = matrixTable();
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
    node: element("div", { class: "stack" }, element("div", { class: "fields" }, topic.node, internal.node), note, map.node, matrix.node),
    async update(brokers) {
      const { partitions } = await loadPartitions();
      const visible = partitions.filter((partition) => page.query.internal || page.query.topic || !partition.topic.startsWith("__"));
      const isTooLarge = partitions.length > MAP_PARTITIONS_MAX && !page.query.topic;
      show(map.node, !isTooLarge && visible.length > 0);
      show(matrix.node, isTooLarge);
      if (isTooLarge) {
        matrix.update((await get(pathOf("topics"), MATRIX, page.signal)).topics);
      }
      show(note, isTooLarge || visible.length === 0);
      setText(note, isTooLarge
        ? "The cluster has too many partitions for one map: enter a topic to see its map. The table lists the topics with the most partitions."
        : "No partition matches.");
      if (!map.node.hidden) {
        map.update(brokers, visible.slice(0, MAP_PARTITIONS_MAX));
      }
    },
  };
}
