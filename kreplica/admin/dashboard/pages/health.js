/** The health of a cluster in one sentence. */

import { pluralize } from "../parts/format.js";

/**
 * @param {any} cluster  the document of `/v1/cluster`
 * @param {string[]} warnings  warnings of the brokers in `/v1/figures`
 * @returns {["good"|"warn"|"bad", string]}
 */
export function healthOf(cluster, warnings) {
  const brokers = pluralize(cluster.live_brokers.length ?? cluster.live_brokers, "broker");
  const { offline_partitions: offline, under_replicated_partitions: underReplicated, under_min_isr_partitions: underMinIsr } = cluster;
  if (offline > 0) {
    return ["bad", `${pluralize(offline, "partition")} ${offline === 1 ? "has" : "have"} no leader: writes and reads fail.`];
  }
  if (cluster.controller.broker_id === null) {
    return ["bad", "No broker is the controller: clients can read and write, but leaders and replicas cannot change."];
  }
  if (underMinIsr > 0) {
    return ["bad", `${pluralize(underMinIsr, "partition")} ${underMinIsr === 1 ? "has" : "have"} too few in-sync replicas: writes with acks=all fail.`];
  }
  if (underReplicated > 0) {
    return ["warn", `All partitions can be written and read, but ${pluralize(underReplicated, "partition")} ${underReplicated === 1 ? "lacks" : "lack"} in-sync replicas.`];
  }
  if (warnings.length > 0) {
    return ["warn", warnings.join(" ")];
  }
  return ["good", `All is well: ${brokers}, every partition has a leader, and all replicas are in sync.`];
}
