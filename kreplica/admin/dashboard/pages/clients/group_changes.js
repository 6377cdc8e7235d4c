/** Changes of a group: reset its offsets, delete it. */

import { count, timeFieldValue } from "../../parts/format.js";
import { areValid, selectField, field, showWith, splitNames, topicField } from "../../parts/forms.js";
import { table } from "../../parts/tables.js";
import { confirmWrite } from "../../parts/writes.js";
import { pathOf } from "../../shell/api.js";

/**
 * Targets of a reset: label, and options and parser of the value if the target has one. Numbers of messages and offsets have
 * no default: the user must enter them.
 */
const TARGETS = {
  earliest: ["The beginning"],
  latest: ["The end"],
  timestamp: ["A time", { label: "Time", hint: "In UTC.", type: "datetime-local", step: 1 }, timeFieldValue],
  duration: ["A duration ago", { label: "Minutes ago", type: "number", min: 0, value: "60" }, (text) => Number(text) * 60_000],
  shift: ["Shift by a number of messages", { label: "Messages (negative: back)", type: "number", step: 1 }, Number],
  offset: ["An offset", { label: "Offset", type: "number", min: 0, step: 1 }, Number],
};

/** @param {string} group */
export function resetOffsets(group) {
  const kind = selectField({ label: "Reset to", name: "kind" }, Object.entries(TARGETS).map(([name, [text]]) => [name, text]), "earliest");
  const values = showWith(kind, Object.fromEntries(Object.entries(TARGETS).filter(([, [, options]]) => options)
    .map(([name, [, options]]) => [name, field({ ...options, name })])));
  const topics = topicField({ label: "Topics", name: "topics", hint: "Separated by commas. Empty: all topics with committed offsets." });
  return confirmWrite({
    title: `Reset offsets of group “${group}”`,
    explain: "Stop the members first: offsets of a group with active members cannot be reset.",
    method: "POST",
    path: pathOf("groups", group, "offsets"),
    form: {
      nodes: [kind.node, ...values.nodes, topics.node],
      read() {
        const chosen = values.shown();
        return chosen && !areValid(chosen) ? null
          : { body: bodyOf(kind.input.value, chosen?.input.value, splitNames(topics.input.value)) };
      },
    },
    confirm: "Reset",
    done: `The offsets of ${group} were reset.`,
    preview: ({ offsets = [] }) => offsetsPreview(offsets),
  });
}

/** The offsets before and after a reset. @param {any[]} offsets */
export function offsetsPreview(offsets) {
  const list = table({
    caption: "Offsets before and after",
    keyOf: ({ topic, partition }) => `${topic}-${partition}`,
    empty: "No offset would change.",
    columns: [
      { header: "Partition", names: true, text: ({ topic, partition }) => `${topic}-${partition}` },
      { header: "Before", numeric: true, text: ({ before }) => count(before) },
      { header: "After", numeric: true, text: ({ after }) => count(after) },
      { header: "Difference", numeric: true, text: ({ before, after }) => (before === null || after === null ? null : signed(after - before)) },
    ],
  });
  list.update(offsets.slice(0, 200));
  return list.node;
}

function signed(difference) {
  return difference > 0 ? `+${count(difference)}` : count(difference);
}

function bodyOf(kind, text, topics) {
  const parse = TARGETS[kind][2];
  const to = parse ? { kind, value: parse(text) } : { kind };
  return topics.length ? { to, topics: Object.fromEntries(topics.map((topic) => [topic, null])) } : { to };
}

/** @param {string} group */
export function deleteGroup(group) {
  return confirmWrite({
    title: `Delete group “${group}”?`,
    explain: "Its committed offsets are lost: if consumers use this group again, auto.offset.reset decides where they start.",
    method: "DELETE",
    path: pathOf("groups", group),
    confirm: "Delete",
    danger: true,
    typed: group,
    done: `The group ${group} was deleted.`,
  });
}
