/** The partitions of a topic, to choose from. */

const CHOICES_MAX = 2000;

/**
 * @param {number} partitions
 * @param {string} [all]  text of the choice of all partitions
 * @returns {[string, string][]}
 */
export function partitionChoices(partitions, all = "All") {
  const numbers = Array.from({ length: Math.min(partitions, CHOICES_MAX) }, (_, number) => [String(number), String(number)]);
  return [["", all], .../** @type {[string, string][]} */ (numbers)];
}
