/** Changes of a topic: add partitions, elect leaders, delete it. */

import { element } from "../parts/elements.js";
import { pluralize } from "../parts/format.js";
import { dismissButton, openDialog } from "../parts/dialogs.js";
import { field } from "../parts/forms.js";
import { confirmWrite } from "../parts/writes.js";
import { get, pathOf } from "../shell/api.js";

/** @param {string} name @param {number} partitions  the current number */
export async function addPartitions(name, partitions) {
  const total = await openDialog(`More partitions for ${name}`, (close) => {
    const number = field({ label: "New number of partitions", type: "number", min: partitions + 1, value: String(partitions + 1), required: true,
      hint: `It has ${partitions}. Keys map to other partitions afterwards, so records with the same key are no longer in order across the change.` });
    return {
      content: [number.node, element("div", { class: "buttons" }, dismissButton(close), element("button", { class: "primary" }, "Preview"))],
      submit: () => number.input.reportValidity() && close(Number(number.input.value)),
    };
  });
  return total === null ? null : confirmWrite({
    title: `${pluralize(total, "partition")} for ${name}?`,
    method: "PATCH",
    path: pathOf("topics", name),
    body: { partitions: total },
    confirm: "Add partitions",
    done: `${name} gets ${pluralize(total, "partition")}.`,
  });
}

/** @param {string} name */
export function deleteTopic(name) {
  return confirmWrite({
    title: `Delete ${name}?`,
    explain: "All its messages are deleted on all brokers. This cannot be undone.",
    method: "DELETE",
    path: pathOf("topics", name),
    confirm: "Delete",
    danger: true,
    typed: name,
    done: `${name} is being deleted.`,
  });
}

/** @param {string} name */
export async function electPreferred(name) {
  const { partitions } = await get(pathOf("topics", name, "partitions"), { limit: 1000 });
  return confirmWrite({
    title: `Elect the preferred leaders of ${name}?`,
    explain: "The first replica of each partition becomes its leader if it is in sync.",
    method: "POST",
    path: pathOf("elections"),
    body: { type: "preferred", partitions: partitions.map(({ topic, partition }) => ({ topic, partition })) },
    confirm: "Elect",
    done: `The election of preferred leaders of ${name} is requested.`,
  });
}
