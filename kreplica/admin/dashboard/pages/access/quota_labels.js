/** Labels of quotas and of the entities to which they apply. */

/** Name of the entity whose quotas apply to users, client IDs or addresses without their own quota. */
export const DEFAULT = "<default>";

/** Kinds of entities: value and text. */
export const KINDS = [["user", "User"], ["client_id", "Client ID"], ["both", "Client ID of a user"], ["ip", "IP address"]];

const QUOTAS = {
  producer_byte_rate: ["Produced bytes", "bytes/s"],
  consumer_byte_rate: ["Fetched bytes", "bytes/s"],
  request_percentage: ["Request time", "% of the event loop"],
  controller_mutation_rate: ["Created and deleted partitions", "partitions/s"],
  connection_creation_rate: ["New connections", "connections/s"],
};

/** The quotas of an entity, as value and text. @param {boolean} isForAddress */
export function quotaOptions(isForAddress) {
  return Object.entries(QUOTAS)
    .filter(([name]) => (name === "connection_creation_rate") === isForAddress)
    .map(([name, [title, unit]]) => [name, `${title} (${unit})`]);
}

/** @param {string} name  such as `producer_byte_rate` */
export function quotaText(name) {
  return QUOTAS[name]?.[0] ?? name;
}

/** @param {string} name @param {number} value */
export function valueText(name, value) {
  return `${value.toLocaleString("en", { maximumFractionDigits: 6 })} ${QUOTAS[name]?.[1] ?? ""}`.trim();
}

/** @param {{user: string|null, client_id: string|null, ip: string|null}} entity */
export function entityText({ user, client_id: client, ip }) {
  const describe = (name, one, all) => (name === null ? null : name === DEFAULT ? all : `${one} ${name}`);
  return [
    describe(user, "user", "every user"), describe(client, "client ID", "every client ID"), describe(ip, "address", "every address"),
  ].filter((part) => part !== null).join(", ");
}
