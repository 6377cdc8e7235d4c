/** Preview of a plan: moves, bytes, duration, and each broker's replicas before and after. */

import { barPart, element, termList } from "../../parts/elements.js";
import { bytes, count, pluralize, duration } from "../../parts/format.js";
import { moveTable } from "../../parts/move_table.js";
import { table } from "../../parts/tables.js";
import { znodesOf } from "../../parts/writes.js";

/** Maximum number of listed moves. */
const ROWS_MAX = 200;

/**
 * @param {any} document  the response to a dry run
 * @param {() => Promise<void>} start
 */
export function planPreview(document, start) {
  const numbers = termList("numbers", {
    Moves: () => count(document.moves_count),
    "Data to copy": () => bytes(document.bytes),
    "Estimated duration": () => (document.eta_seconds === null ? "unknown" : duration(document.eta_seconds)),
  });
  numbers.update(null);
  const moves = moveTable("Planned moves", false);
  moves.update(document.moves.slice(0, ROWS_MAX));
  const button = element("button", {
    class: "primary", type: "button", disabled: document.moves_count === 0,
    onclick: async () => {
      button.disabled = true;
      await start();
      button.disabled = false;
    },
  }, "Start the plan");
  return [
    element("div", { class: "head" }, element("h2", { tabindex: "-1" }, "Preview"), button),
    element("div", { class: "stack" },
      ...document.warnings.map((warning) => element("p", { class: "note" }, warning)),
      numbers.node, brokerTable(document.brokers ?? []), moves.node,
      document.moves_count > Math.min(ROWS_MAX, document.moves.length) ? element("p", { class: "muted small" }, `${pluralize(document.moves_count, "move")} in total; only the first are shown.`) : null,
      znodesOf(document)),
  ];
}

function brokerTable(brokers) {
  const mostReplicas = Math.max(1, ...brokers.flatMap((broker) => [broker.replicas_before, broker.replicas_after]));
  const list = table({
    caption: "Replicas of each broker before and after",
    keyOf: ({ broker_id: id }) => id,
    empty: "No broker gains or loses replicas.",
    columns: [
      { header: "Broker", names: true, text: ({ broker_id: id }) => `Broker ${id}` },
      { header: "Replicas before", part: barPart(({ replicas_before: replicas }) => [replicas / mostReplicas, count(replicas)]) },
      { header: "Replicas after", part: barPart(({ replicas_after: replicas }) => [replicas / mostReplicas, count(replicas)]) },
      { header: "Leads before", numeric: true, text: ({ leaders_before: leaders }) => count(leaders) },
      { header: "Leads after", numeric: true, text: ({ leaders_after: leaders }) => count(leaders) },
      { header: "Receives", numeric: true, text: ({ bytes_in: size }) => bytes(size) },
      { header: "Sends", numeric: true, text: ({ bytes_out: size }) => bytes(size) },
    ],
  });
  list.update(brokers);
  return list.node;
}
