/** Changes to a topic: add partitions, elect leaders, delete its records, delete it. */

import { element } from "../../parts/elements.js";
import { count, pluralize, timeFieldValue } from "../../parts/format.js";
import { areValid, field, selectField, showWith } from "../../parts/forms.js";
import { partitionChoices } from "../../parts/partition_choices.js";
import { table } from "../../parts/tables.js";
import { confirmWrite } from "../../parts/writes.js";
import { get, pathOf } from "../../shell/api.js";

/** Maximum number of partitions in a preview. */
const ROWS_MAX = 200;

/** @param {string} name @param {number} partitions  the current number */
export function addPartitions(name, partitions) {
  const number = field({ label: "New number of partitions", type: "number", min: partitions + 1, value: String(partitions + 1), required: true,
    hint: `The topic has ${pluralize(partitions, "partition")}. Afterwards, keys map to different partitions, so old and new records with the same key may be read out of order.` });
  return confirmWrite({
    title: `Add partitions to topic “${name}”`,
    method: "PATCH",
    path: pathOf("topics", name),
    form: {
      nodes: [number.node],
      read() {
        const total = Number(number.input.value);
        return areValid(number) ? { body: { partitions: total }, done: `The topic ${name} now has ${pluralize(total, "partition")}.` } : null;
      },
    },
    confirm: "Add partitions",
    done: "",
  });
}

/** Positions before which records are deleted: label, options of the value's field, and the position of a value. */
const POSITIONS = {
  latest: ["All records"],
  timestamp: ["Records before a time", { label: "Time", hint: "In UTC.", type: "datetime-local", step: 1 }, (text) => `timestamp:${timeFieldValue(text)}`],
  age: ["Records older than", { label: "Hours", type: "number", min: 0, step: "any" }, (text) => `timestamp:${Date.now() - Math.round(Number(text) * 3_600_000)}`],
  offset: ["Records before an offset", { label: "Offset", type: "number", min: 0, step: 1 }, (text) => `offset:${text}`],
};

/** @param {string} name @param {number} partitions */
export function deleteRecords(name, partitions) {
  const kind = selectField({ label: "Delete", name: "before" }, Object.entries(POSITIONS).map(([key, [text]]) => [key, text]), "latest");
  const values = showWith(kind, Object.fromEntries(Object.entries(POSITIONS).filter(([, [, options]]) => options)
    .map(([key, [, options]]) => [key, field({ ...options, name: key })])));
  const partition = selectField({ label: "Partition", name: "partition" }, partitionChoices(partitions, "All"));
  return confirmWrite({
    title: `Delete records of topic “${name}”`,
    explain: "The records are deleted on all brokers. This cannot be undone.",
    method: "DELETE",
    path: pathOf("topics", name, "messages"),
    form: {
      nodes: [element("div", { class: "pair" }, kind.node, partition.node), ...values.nodes],
      read() {
        const chosen = values.shown();
        const position = POSITIONS[kind.input.value][2];
        return chosen && !areValid(chosen) ? null
          : { query: { before: position && chosen ? position(chosen.input.value) : "latest", partition: partition.input.value } };
      },
    },
    confirm: "Delete records",
    danger: true,
    typed: name,
    done: `The records of ${name} were deleted.`,
    preview: ({ partitions: rows = [] }) => {
      const list = table({
        caption: "First offset before and after",
        keyOf: ({ partition: number }) => number,
        empty: "The topic has no partitions.",
        columns: [
          { header: "Partition", names: true, numeric: true, text: ({ partition: number }) => String(number) },
          { header: "First offset before", numeric: true, text: ({ before }) => count(before) },
          { header: "First offset after", numeric: true, text: ({ after }) => count(after) },
          { header: "Offsets deleted", numeric: true, text: ({ before, after }) => count(Math.max(after - before, 0)) },
        ],
      });
      list.update(rows.slice(0, ROWS_MAX));
      return element("div", { class: "stack" }, list.node,
        element("p", { class: "hint" }, "Disk space is freed later, when whole log segments are deleted."));
    },
  });
}

/** @param {string} name */
export function deleteTopic(name) {
  return confirmWrite({
    title: `Delete topic “${name}”?`,
    explain: "All its messages are deleted on all brokers. This cannot be undone.",
    method: "DELETE",
    path: pathOf("topics", name),
    confirm: "Delete",
    danger: true,
    typed: name,
    done: `The topic ${name} is being deleted.`,
  });
}

/** @param {string} name */
export async function electPreferred(name) {
  const { partitions } = await get(pathOf("topics", name, "partitions"), { limit: 1000 });
  return confirmWrite({
    title: `Elect the preferred leaders of topic “${name}”?`,
    explain: "The first replica of each partition becomes its leader if it is in sync.",
    method: "POST",
    path: pathOf("elections"),
    body: { type: "preferred", partitions: partitions.map(({ topic, partition }) => ({ topic, partition })) },
    confirm: "Elect",
    done: `The election of preferred leaders for ${name} was requested.`,
  });
}
