/** Cordons and uncordons a broker. */

import { pathOf } from "../../shell/api.js";
import { confirmWrite } from "../../parts/writes.js";

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
