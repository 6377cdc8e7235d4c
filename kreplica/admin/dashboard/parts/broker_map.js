/**
 * The map of replicas: one row per broker, one cell per replica. Shape, letter and colour show a replica's state.
 * The map is one tab stop: arrow keys move between cells, Enter opens its explanation.
 */

import { element, updateChildren, set, setText } from "./elements.js";
import { commaSeparated } from "./format.js";
import { table } from "./tables.js";
import { href } from "../shell/routes.js";

/** Letter and label of each role of a replica. */
const ROLES = {
  leader: ["L", "leader"],
  follower: ["", "follower, in sync"],
  behind: ["!", "follower, out of sync"],
  offline: ["×", "offline"],
  none: ["", "no replica"],
};

/** @param {import("../shell/page.js").Page} page */
export function brokerMap(page) {
  const rows = element("div", { class: "map", role: "grid", "aria-label": "Replicas by broker" });
  const description = element("p", { class: "map-description small", "aria-live": "off" }, "Point at a cell, or move to one with the arrow keys.");
  const partitionTable = table({
    caption: "Replicas by partition",
    keyOf: ({ topic, partition }) => `${topic}-${partition}`,
    columns: [
      { header: "Partition", names: true, text: ({ topic, partition }) => `${topic}-${partition}` },
      { header: "Leader", text: ({ leader }) => (leader === null ? "none" : String(leader)) },
      { header: "In sync", text: ({ isr }) => commaSeparated(isr) },
      { header: "Out of sync or offline", text: ({ isr, replicas }) => commaSeparated(replicas.filter((id) => !isr.includes(id))) },
    ],
  });
  const tableSection = element("details", null, element("summary", null, "As a table"), partitionTable.node);
  const showDescription = (event) => {
    const cell = event.target.closest?.("[data-description]");
    setText(description, cell ? cell.dataset.description : description.textContent);
  };
  rows.addEventListener("pointerover", showDescription);
  rows.addEventListener("focusin", showDescription);
  rows.addEventListener("keydown", handleKey);
  rows.addEventListener("click", (event) => openExplanation(page, event.target));
  return {
    node: element("div", { class: "card stack" }, rows, description, legend(), tableSection),
    /** @param {any[]} brokers @param {any[]} partitions */
    update(brokers, partitions) {
      const ids = [...new Set([...brokers.map((broker) => broker.broker_id), ...partitions.flatMap(({ replicas }) => replicas)])];
      const live = new Set(brokers.filter((broker) => broker.live !== false).map((broker) => broker.broker_id));
      const brokerRows = ids.sort((one, other) => one - other).map((id) => ({ id, partitions: partitions.map((partition) => ({ partition, isLive: live.has(id) })) }));
      updateChildren(rows, brokerRows, ({ id }) => id, ({ id }) => rowPart(id));
      if (!rows.querySelector("[tabindex='0']")) {
        rows.querySelector(".cell")?.setAttribute("tabindex", "0");
      }
      if (tableSection.open) {
        partitionTable.update(partitions);
      } else {
        tableSection.ontoggle = () => partitionTable.update(partitions);
      }
    },
  };
}

function legend() {
  return element("ul", { class: "legend map-legend", "aria-label": "Legend" }, ["leader", "follower", "behind", "offline"].map((role) =>
    element("li", null, element("span", { class: `cell ${role}`, "aria-hidden": "true" }, ROLES[role][0]), ROLES[role][1])));
}

function rowPart(id) {
  const cells = element("div", { class: "cells", role: "presentation" });
  const name = element("span", { class: "map-name", role: "rowheader" }, `Broker ${id}`);
  return {
    node: element("div", { class: "map-row", role: "row" }, name, cells),
    update: ({ partitions }) =>
      updateChildren(cells, partitions, ({ partition: { topic, partition } }) => `${topic}-${partition}`, (first) => cellPart(id, first.partition)),
  };
}

function cellPart(id, first) {
  const node = element("span", { role: "gridcell", tabindex: "-1", class: "cell" });
  node.dataset.topic = first.topic;
  node.dataset.partition = first.partition;
  return {
    node,
    update({ partition, isLive }) {
      const role = roleOf(partition, id, isLive);
      const text = `${partition.topic}-${partition.partition} on broker ${id}: ${ROLES[role][1]}`;
      set(node, "class", `cell ${role}${partition.partition === 0 ? " begins" : ""}`);
      set(node, "aria-label", text);
      node.dataset.description = text;
      setText(node, ROLES[role][0]);
    },
  };
}

function roleOf({ leader, isr, replicas, offline_replicas: offline }, id, isLive) {
  if (!replicas.includes(id)) {
    return "none";
  }
  if (leader === id) {
    return "leader";
  }
  if (!isLive || offline?.includes(id)) {
    return "offline";
  }
  return isr.includes(id) ? "follower" : "behind";
}

const ARROW_STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function handleKey(event) {
  const cell = event.target.closest(".cell");
  if (cell && event.key === "Enter") {
    cell.click();
  }
  const step = ARROW_STEPS[event.key];
  if (!cell || !step) {
    return;
  }
  event.preventDefault();
  const rows = [...event.currentTarget.children].map((row) => [...row.querySelectorAll(".cell")]);
  const row = rows.findIndex((cells) => cells.includes(cell));
  const next = rows[row + step[0]]?.[rows[row].indexOf(cell) + step[1]];
  if (next) {
    set(cell, "tabindex", "-1");
    set(next, "tabindex", "0");
    next.focus();
  }
}

function openExplanation(page, target) {
  const cell = target.closest(".cell");
  if (cell?.dataset.topic) {
    location.hash = href(["why", "partitions", cell.dataset.topic, cell.dataset.partition]);
  }
}
