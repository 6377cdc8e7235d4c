/** The state of a cluster in one sentence. */

import { counted } from "../parts/format.js";

/**
 * @param {any} cluster  the document of `/v1/cluster`
 * @param {string[]} warnings  warnings of the brokers in `/v1/figures`
 * @returns {["good"|"warn"|"bad", string]}
 */
export function healthOf(cluster, warnings) {
  const brokers = counted(cluster.live_brokers.length ?? cluster.live_brokers, "broker");
  const { offline_partitions: offline, under_replicated_partitions: behind, under_min_isr_partitions: below } = cluster;
  if (offline > 0) {
    return ["bad", `${counted(offline, "partition")} ${offline === 1 ? "has" : "have"} no leader: writes and reads fail.`];
  }
  if (cluster.controller.broker_id === null) {
    return ["bad", "No broker is the controller: partitions are served, but their leaders and replicas cannot change."];
  }
  if (below > 0) {
    return ["bad", `${counted(below, "partition")} ${below === 1 ? "has" : "have"} too few in-sync replicas: writes with acks=all are refused.`];
  }
  if (behind > 0) {
    return ["warn", `All partitions can be written and read, but ${counted(behind, "partition")} ${behind === 1 ? "lacks" : "lack"} in-sync replicas.`];
  }
  if (warnings.length > 0) {
    return ["warn", warnings.join(" ")];
  }
  return ["good", `All is well: ${brokers}, every partition has a leader, and all replicas are in sync.`];
}
