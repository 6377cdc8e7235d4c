/**
 * The map of replicas: one row per broker, one cell per replica. Shape, letter and colour show a replica's state.
 * The map is one tab stop: arrow keys move between cells, Enter opens the explanation.
 */

import { element, keyed, set, setText } from "./elements.js";
import { listed } from "./format.js";
import { table } from "./tables.js";
import { href } from "../shell/routes.js";

/** Role, letter and word. */
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
  const told = element("p", { class: "map-told small", "aria-live": "off" }, "Point to a cell, or select one with the keyboard.");
  const plain = table({
    caption: "Replicas by partition",
    keyOf: ({ topic, partition }) => `${topic}-${partition}`,
    columns: [
      { header: "Partition", names: true, text: ({ topic, partition }) => `${topic}-${partition}` },
      { header: "Leader", text: ({ leader }) => (leader === null ? "none" : String(leader)) },
      { header: "In sync", text: ({ isr }) => listed(isr) },
      { header: "Out of sync or offline", text: ({ isr, replicas }) => listed(replicas.filter((id) => !isr.includes(id))) },
    ],
  });
  const alternative = element("details", null, element("summary", null, "As a table"), plain.node);
  const tell = (event) => {
    const cell = event.target.closest?.("[data-said]");
    setText(told, cell ? cell.dataset.said : told.textContent);
  };
  rows.addEventListener("pointerover", tell);
  rows.addEventListener("focusin", tell);
  rows.addEventListener("keydown", moved);
  rows.addEventListener("click", (event) => ask(page, event.target));
  return {
    node: element("div", { class: "card stack" }, rows, told, legend(), alternative),
    /** @param {any[]} brokers @param {any[]} partitions */
    update(brokers, partitions) {
      const ids = [...new Set([...brokers.map((broker) => broker.broker_id), ...partitions.flatMap(({ replicas }) => replicas)])];
      const live = new Set(brokers.filter((broker) => broker.live !== false).map((broker) => broker.broker_id));
      const wanted = ids.sort((one, other) => one - other).map((id) => ({ id, partitions: partitions.map((partition) => ({ partition, lives: live.has(id) })) }));
      keyed(rows, wanted, ({ id }) => id, ({ id }) => rowPart(id));
      if (!rows.querySelector("[tabindex='0']")) {
        rows.querySelector(".cell")?.setAttribute("tabindex", "0");
      }
      if (alternative.open) {
        plain.update(partitions);
      } else {
        alternative.ontoggle = () => plain.update(partitions);
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
      keyed(cells, partitions, ({ partition: { topic, partition } }) => `${topic}-${partition}`, (first) => cellPart(id, first.partition)),
  };
}

function cellPart(id, first) {
  const node = element("span", { role: "gridcell", tabindex: "-1", class: "cell" });
  node.dataset.topic = first.topic;
  node.dataset.partition = first.partition;
  return {
    node,
    update({ partition, lives }) {
      const role = roleOf(partition, id, lives);
      const said = `${partition.topic}-${partition.partition} on broker ${id}: ${ROLES[role][1]}`;
      set(node, "class", `cell ${role}${partition.partition === 0 ? " begins" : ""}`);
      set(node, "aria-label", said);
      node.dataset.said = said;
      setText(node, ROLES[role][0]);
    },
  };
}

function roleOf({ leader, isr, replicas, offline_replicas: offline }, id, lives) {
  if (!replicas.includes(id)) {
    return "none";
  }
  if (leader === id) {
    return "leader";
  }
  if (!lives || offline?.includes(id)) {
    return "offline";
  }
  return isr.includes(id) ? "follower" : "behind";
}

const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function moved(event) {
  const cell = event.target.closest(".cell");
  if (cell && event.key === "Enter") {
    cell.click();
  }
  const step = STEPS[event.key];
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

function ask(page, target) {
  const cell = target.closest(".cell");
  if (cell?.dataset.topic) {
    location.hash = href(["why", "partitions", cell.dataset.topic, cell.dataset.partition]);
  }
}
