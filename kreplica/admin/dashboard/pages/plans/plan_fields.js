/**
 * Form fields for each kind of plan.
 *
 * @typedef {{nodes: HTMLElement[], read: () => Record<string, any>}} PlanFields
 */

import { element } from "../../parts/elements.js";
import { checkboxes, field, splitNames, numberOf, topicField } from "../../parts/forms.js";
import { Problem, get, pathOf } from "../../shell/api.js";
import { announce } from "../../shell/notifications.js";

const LOADED_MAX = 1000;

/** @type {Record<string, (brokers: any[], query: Record<string, string>) => PlanFields>} */
const KINDS = {
  rebalance(_, query) {
    const topics = topicField({ label: "Topics", name: "topics", value: query.topic ?? "", hint: "Separated by commas. Empty: all topics." });
    return { nodes: [topics.node], read: () => (splitNames(topics.input.value).length ? { topics: splitNames(topics.input.value) } : {}) };
  },
  add_brokers: brokerFields("Brokers to fill"),
  drain: brokerFields("Brokers to drain"),
  replication_factor(_, query) {
    const topics = topicField({ label: "Topics", name: "topics", value: query.topic ?? "", required: true, hint: "Separated by commas." });
    const replicationFactor = field({ label: "Replication factor", name: "copies", type: "number", min: 1, value: "3", required: true });
    return { nodes: [topics.node, replicationFactor.node], read: () => ({ topics: splitNames(topics.input.value), replication_factor: Number(replicationFactor.input.value) }) };
  },
  reassign,
  add_partitions: partitionTotal(() => null),
  remove_partitions: partitionTotal(() => field({ label: "Wait for consumers (minutes)", name: "wait", type: "number", min: 0, step: "any",
    hint: "Time for known groups to read the remaining records. Empty: the cluster's default." })),
};

/** @param {string} kind @param {any[]} brokers @param {Record<string, string>} query  of the page's address */
export function planFields(kind, brokers, query) {
  return KINDS[kind](brokers, query);
}

function brokerFields(legend) {
  return (brokers, query) => {
    const selected = splitNames(query.brokers ?? "");
    const boxes = checkboxes(legend, brokers.map(({ broker_id: id, replicas }) => [String(id), `Broker ${id} (${replicas})`]), selected);
    return {
      nodes: [boxes.node],
      read() {
        if (boxes.selected().length === 0) {
          throw new Problem(400, { title: "No broker", detail: "choose at least one broker" });
        }
        return { brokers: boxes.selected().map(Number) };
      },
    };
  };
}

function partitionTotal(makeWaitField) {
  return (_, query) => {
    const topic = topicField({ label: "Topic", name: "topic", value: query.topic ?? "", required: true });
    const total = field({ label: "New number of partitions", name: "partitions", type: "number", min: 1, required: true });
    const wait = makeWaitField();
    return {
      nodes: [topic.node, total.node, ...(wait ? [wait.node] : [])],
      read() {
        const minutes = wait ? numberOf(wait.input) : undefined;
        return { topic: topic.input.value.trim(), partitions: Number(total.input.value), ...(minutes === undefined ? {} : { wait_ms: Math.round(minutes * 60_000) }) };
      },
    };
  };
}

function reassign(_, query) {
  const lines = field({ label: "Partitions and their replicas", name: "assignments", tag: "textarea", rows: 8, required: true, spellcheck: "false",
    placeholder: "orders 0 1,2,3", hint: "One per line: topic, partition, brokers. The first broker is the preferred leader." });
  const topic = topicField({ label: "Start with the current assignment of a topic", name: "topic", value: query.topic ?? "" });
  const loadAssignment = async () => {
    const { partitions } = await get(pathOf("topics", topic.input.value.trim(), "partitions"), { limit: LOADED_MAX });
    lines.input.value = partitions.map(({ topic: name, partition, replicas }) => `${name} ${partition} ${replicas.join(",")}`).join("\n");
  };
  const button = element("button", { type: "button", onclick: () => loadAssignment().catch((error) => announce(error.message)) }, "Fill in");
  if (query.topic) {
    loadAssignment().catch(() => {});
  }
  return { nodes: [element("div", { class: "fields" }, topic.node, button), lines.node], read: () => ({ assignments: parseAssignments(lines.input.value) }) };
}

/** @param {string} text */
function parseAssignments(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [, topic, partition, replicas] = /^(\S+)\s+(\d+)\s+(\d+(?:\s*,\s*\d+)*)$/.exec(line) ?? [];
    if (topic === undefined) {
      throw new Problem(400, { title: "Not an assignment", detail: `“${line}”: expected topic, partition, brokers`, what_to_do: "Write, for example: orders 0 1,2,3" });
    }
    return { topic, partition: Number(partition), replicas: replicas.split(",").map(Number) };
  });
}
