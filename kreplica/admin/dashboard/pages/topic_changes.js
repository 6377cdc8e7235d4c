/** Changes of a topic: add partitions, elect leaders, delete it. */

import { element } from "../parts/elements.js";
import { counted } from "../parts/format.js";
import { leaveButton, openDialog } from "../parts/dialogs.js";
import { field } from "../parts/forms.js";
import { confirmWrite } from "../parts/writes.js";
import { get, pathOf } from "../shell/api.js";

/** @param {string} name @param {number} partitions  the current number */
export async function growTopic(name, partitions) {
  const total = await openDialog(`More partitions for ${name}`, (close) => {
    const number = field({ label: "New number of partitions", type: "number", min: partitions + 1, value: String(partitions + 1), required: true,
      hint: `It has ${partitions}. Keys go to other partitions afterwards, so their order across the change is lost.` });
    return {
      content: [number.node, element("div", { class: "buttons" }, leaveButton(close), element("button", { class: "primary" }, "Preview"))],
      submit: () => number.input.reportValidity() && close(Number(number.input.value)),
    };
  });
  return total === null ? null : confirmWrite({
    title: `${counted(total, "partition")} for ${name}?`,
    method: "PATCH",
    path: pathOf("topics", name),
    body: { partitions: total },
    confirm: "Add them",
    done: `${name} gets ${counted(total, "partition")}.`,
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
    title: `Let the preferred replicas of ${name} lead?`,
    explain: "The first replica of each partition becomes leader if it is in sync.",
    method: "POST",
    path: pathOf("elections"),
    body: { type: "preferred", partitions: partitions.map(({ topic, partition }) => ({ topic, partition })) },
    confirm: "Elect",
    done: `The election of preferred leaders of ${name} is requested.`,
  });
}
