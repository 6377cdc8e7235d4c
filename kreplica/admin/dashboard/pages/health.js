/** The state of a cluster in one sentence. */

import { counted } from "../parts/format.js";

/**
 * @param {any} cluster  as `/v1/cluster` has it
 * @returns {["good"|"warn"|"bad", string]}
 */
export function healthOf(cluster) {
  const brokers = counted(cluster.live_brokers.length ?? cluster.live_brokers, "broker");
  const { offline_partitions: offline, under_replicated_partitions: behind, under_min_isr_partitions: below } = cluster;
  if (offline > 0) {
    return ["bad", `${counted(offline, "partition")} ${offline === 1 ? "has" : "have"} no leader: nobody can write or read there.`];
  }
  if (cluster.controller.broker_id === null) {
    return ["bad", "No broker is the controller: partitions serve on, but nothing can change."];
  }
  if (below > 0) {
    return ["bad", `${counted(below, "partition")} ${below === 1 ? "has" : "have"} too few copies in sync: writes with acks=all are refused there.`];
  }
  if (behind > 0) {
    return ["warn", `Everything can be written and read, but ${counted(behind, "partition")} ${behind === 1 ? "lacks" : "lack"} copies in sync.`];
  }
  return ["good", `All is well: ${brokers}, each partition has its leader and all its copies in sync.`];
}
