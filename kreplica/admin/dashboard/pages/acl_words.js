/** ACLs in words. */

export const CLUSTER = "kafka-cluster";

/** Types of resources: value and text. */
export const TYPES = [["topic", "Topic"], ["group", "Group"], ["cluster", "Cluster"], ["transactional_id", "Transactional ID"]];

/** Operations: value and text. */
export const OPERATIONS = [
  "read", "write", "describe", "create", "delete", "alter", "describe_configs", "alter_configs", "cluster_action",
  "idempotent_write", "all",
].map((name) => [name, words(name)]);

/** @param {string} name  such as `describe_configs` */
export function words(name) {
  return name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");
}

/** @param {{resource_type: string, resource_name: string, pattern_type: string}} acl */
export function resourceText({ resource_type: type, resource_name: name, pattern_type: pattern }) {
  if (type === "cluster") {
    return "the cluster";
  }
  const kind = words(type).toLowerCase();
  if (pattern === "prefixed") {
    return `each ${kind} that starts with “${name}”`;
  }
  return name === "*" ? `each ${kind}` : `${kind} ${name}`;
}

/** @param {any} acl @returns {string} the ACL as a clause */
export function aclText(acl) {
  const from = acl.host === "*" ? "" : ` from ${acl.host}`;
  return `${words(acl.permission)} ${acl.principal}${from}: ${words(acl.operation)} on ${resourceText(acl)}`;
}
