/** Moves of a plan. */

import { chipPart } from "./elements.js";
import { bytes, commaSeparated } from "./format.js";
import { planState } from "./plan_labels.js";
import { table } from "./tables.js";

const ACTIONS = { move: "move", reorder: "reorder, no data", add: "add", remove: "remove" };

/** @param {string} caption @param {boolean} hasStarted  true if the plan has started, so that its moves have states */
export function moveTable(caption, hasStarted) {
  return table({
    caption,
    keyOf: ({ number, topic, partition }) => number ?? `${topic}-${partition}`,
    empty: "No replica needs to move.",
    columns: [
      { header: "Partition", names: true, text: ({ topic, partition }) => `${topic}-${partition}` },
      ...(hasStarted ? [{ header: "State", part: chipPart(planState) }] : []),
      { header: "Action", text: ({ action }) => ACTIONS[action] ?? action },
      { header: "From", text: ({ from }) => commaSeparated(from ?? []) },
      { header: "To", text: ({ to }) => commaSeparated(to ?? []) },
      { header: "Size", numeric: true, text: ({ bytes: size, bytes_done: done }) => (!hasStarted || done === null || done === undefined ? bytes(size) : `${bytes(done)} of ${bytes(size)}`) },
      ...(hasStarted ? [{ header: "Reason", text: ({ reason }) => reason ?? "" }] : []),
    ],
  });
}
