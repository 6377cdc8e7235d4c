/** Titles and texts of plans, moves and their states. */

import { bytes, pluralize, duration } from "./format.js";

/** Title and description of each kind of plan. @type {Record<string, [string, string]>} */
export const KINDS = {
  rebalance: ["Rebalance", "Spreads replicas and leaders evenly, with the least movement."],
  add_brokers: ["Fill new brokers", "Moves a fair share of replicas to brokers that have few."],
  drain: ["Drain brokers", "Moves all replicas away from brokers, and places no new ones there."],
  replication_factor: ["Change replication factor", "Adds or removes replicas of topics, in one step."],
  reassign: ["Move manually", "Assigns replicas to the brokers that you name."],
  add_partitions: ["Add partitions", "Adds partitions to a topic."],
  remove_partitions: ["Remove partitions", "Removes the last partitions: they become read-only, so that they can be consumed, and are then deleted."],
};

/** @type {Record<string, [string, string]>} */
const STATES = {
  preparing: ["busy", "Being created"], pending: ["busy", "Waiting to start"], running: ["busy", "Running"], cancelling: ["warn", "Being cancelled"],
  completed: ["good", "Completed"], cancelled: ["", "Cancelled"], failed: ["bad", "Failed"],
  waiting: ["", "Waiting"], moving: ["busy", "Moving"], finished: ["good", "Finished"],
};

/** The state of a plan or a move. @param {{state: string}} item @returns {[string, string]} */
export function planState({ state }) {
  return STATES[state] ?? ["", state];
}

/** @param {{state: string}} plan */
export function hasEnded({ state }) {
  return ["completed", "cancelled", "failed"].includes(state);
}

/** @param {{kind: string}} plan */
export function kindTitle({ kind }) {
  return KINDS[kind]?.[0] ?? kind;
}

/** The progress of a plan, from 0 to 1. @param {{progress?: any, state: string}} plan */
export function progressFraction({ progress, state }) {
  if (state === "completed") {
    return 1;
  }
  if (!progress) {
    return 0;
  }
  return progress.bytes > 0 ? Math.min(1, (progress.bytes_done ?? 0) / progress.bytes) : progress.moves > 0 ? progress.finished / progress.moves : 0;
}

/** @param {any} progress */
export function progressText(progress) {
  if (!progress) {
    return "";
  }
  const parts = [`${progress.finished} of ${pluralize(progress.moves, "move")}`];
  if (progress.bytes > 0) {
    parts.push(`${bytes(progress.bytes_done ?? 0)} of ${bytes(progress.bytes)}`);
  }
  if (progress.failed > 0) {
    parts.push(`${progress.failed} failed`);
  }
  if (progress.eta_seconds) {
    parts.push(`about ${duration(progress.eta_seconds)} left`);
  }
  return parts.join(", ");
}
