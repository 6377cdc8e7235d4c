/** Moves of a plan. */

import { chipPart } from "./elements.js";
import { bytes, listed } from "./format.js";
import { planState } from "./plan_words.js";
import { table } from "./tables.js";

const ACTIONS = { move: "move", reorder: "reorder, no data", add: "add", remove: "remove" };

/** @param {string} caption @param {boolean} carriedOut  true if the moves have states */
export function moveTable(caption, carriedOut) {
  return table({
    caption,
    keyOf: ({ number, topic, partition }) => number ?? `${topic}-${partition}`,
    empty: "There is nothing to move.",
    columns: [
      { header: "Partition", names: true, text: ({ topic, partition }) => `${topic}-${partition}` },
      ...(carriedOut ? [{ header: "State", part: chipPart(planState) }] : []),
      { header: "Action", text: ({ action }) => ACTIONS[action] ?? action },
      { header: "From", text: ({ from }) => listed(from ?? []) },
      { header: "To", text: ({ to }) => listed(to ?? []) },
      { header: "Size", numeric: true, text: ({ bytes: size, bytes_done: done }) => (!carriedOut || done === null || done === undefined ? bytes(size) : `${bytes(done)} of ${bytes(size)}`) },
      ...(carriedOut ? [{ header: "Reason", text: ({ reason }) => reason ?? "" }] : []),
    ],
  });
}
