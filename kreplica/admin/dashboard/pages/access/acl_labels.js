/** Labels of operations and resources, and ACLs as text. */

export const CLUSTER = "kafka-cluster";

/** Types of resources: value and text. */
export const RESOURCE_TYPES = [["topic", "Topic"], ["group", "Group"], ["cluster", "Cluster"], ["transactional_id", "Transactional ID"]];

/** Operations: value and text. */
export const OPERATIONS = [
  "read", "write", "describe", "create", "delete", "alter", "describe_configs", "alter_configs", "cluster_action",
  "idempotent_write", "all",
].map((name) => [name, labelOf(name)]);

/** @param {string} name  such as `describe_configs` */
export function labelOf(name) {
  return name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");
}

/** @param {{resource_type: string, resource_name: string, pattern_type: string}} acl */
export function resourceText({ resource_type: type, resource_name: name, pattern_type: pattern }) {
  if (type === "cluster") {
    return "the cluster";
  }
  const kind = labelOf(type).toLowerCase();
  if (pattern === "prefixed") {
    return `each ${kind} that starts with “${name}”`;
  }
  return name === "*" ? `each ${kind}` : `${kind} ${name}`;
}

/** @param {any} acl @returns {string} such as "Allow User:alice: Read on topic orders" */
export function aclText(acl) {
  const from = acl.host === "*" ? "" : ` from ${acl.host}`;
  return `${labelOf(acl.permission)} ${acl.principal}${from}: ${labelOf(acl.operation)} on ${resourceText(acl)}`;
}
