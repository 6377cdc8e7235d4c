/** Creates and deletes ACLs. */

import { show } from "../../parts/elements.js";
import { areValid, checkbox, selectField, field, topicField } from "../../parts/forms.js";
import { confirmWrite } from "../../parts/writes.js";
import { pathOf } from "../../shell/api.js";
import { aclText, CLUSTER, OPERATIONS, RESOURCE_TYPES } from "./acl_labels.js";

/** @param {Record<string, string>} query  query of the page's address; the initial values of the fields */
export function createAcl({ type, name, principal }) {
  const fields = {
    principal: field({ label: "Principal", name: "principal", value: principal ?? "User:", required: true, pattern: "\\w+:.+", autocomplete: "off" }),
    permission: selectField({ label: "Permission", name: "permission" }, [["allow", "Allow"], ["deny", "Deny"]], "allow"),
    operation: selectField({ label: "Operation", name: "operation" }, OPERATIONS, "read"),
    resource_type: selectField({ label: "Resource", name: "type" }, RESOURCE_TYPES, type || "topic"),
    resource_name: topicField({ label: "Resource name", name: "name", value: name ?? "", required: true, hint: "* means all." }),
    host: field({ label: "Host", name: "host", value: "*", required: true, hint: "IP address of the client; * means all.", autocomplete: "off" }),
  };
  const prefixed = checkbox({ label: "All names that start with this name" });
  const isCluster = () => fields.resource_type.input.value === "cluster";
  const updateVisibility = () => {
    show(fields.resource_name.node, !isCluster());
    show(prefixed.node, !isCluster());
    fields.resource_name.input.required = !isCluster();
  };
  fields.resource_type.input.addEventListener("change", updateVisibility);
  updateVisibility();
  const read = () => {
    const values = Object.fromEntries(Object.entries(fields).map(([key, { input }]) => [key, input.value.trim()]));
    const pattern = prefixed.input.checked && !isCluster() ? "prefixed" : "literal";
    return { ...values, resource_name: isCluster() ? CLUSTER : values.resource_name, pattern_type: pattern };
  };
  return confirmWrite({
    title: "Create an ACL",
    method: "POST",
    path: pathOf("acls"),
    form: {
      nodes: Object.values(fields).flatMap((each) => (each === fields.host ? [prefixed.node, each.node] : [each.node])),
      read: () => (areValid(...Object.values(fields)) ? { body: { acls: [read()] }, summary: aclText(read()) } : null),
    },
    confirm: "Create",
    done: "The ACL was created.",
  });
}

/** @param {any} acl */
export function deleteAcl(acl) {
  return confirmWrite({
    title: "Delete this ACL?",
    explain: aclText(acl),
    method: "DELETE",
    path: pathOf("acls"),
    query: acl,
    confirm: "Delete",
    danger: true,
    done: "The ACL was deleted.",
  });
}
