/** Cordons and uncordons a broker. */

import { pathOf } from "../../shell/api.js";
import { confirmWrite } from "../../parts/writes.js";

/** A sentence about cordoned brokers; empty if there are none. @param {number[]} ids */
export function cordonedText(ids) {
  if (ids.length < 2) {
    return ids.length ? `Broker ${ids[0]} is cordoned: it gets no new replicas.` : "";
  }
  return `Brokers ${ids.slice(0, -1).join(", ")} and ${ids.at(-1)} are cordoned: they get no new replicas.`;
}

/** @param {number} id */
export function cordon(id) {
  return confirmWrite({
    title: `Cordon broker ${id}?`,
    explain: "The broker gets no new replicas. It keeps and serves its existing replicas.",
    method: "PUT",
    path: pathOf("brokers", id, "cordon"),
    body: { reason: "from the dashboard" },
    confirm: "Cordon",
    done: `Broker ${id} no longer gets new replicas.`,
  });
}

/** @param {number} id */
export function uncordon(id) {
  return confirmWrite({
    title: `Uncordon broker ${id}?`,
    explain: "New replicas may be placed on it again.",
    method: "DELETE",
    path: pathOf("brokers", id, "cordon"),
    confirm: "Uncordon",
    done: `Broker ${id} gets new replicas again.`,
  });
}
