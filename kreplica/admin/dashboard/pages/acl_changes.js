/** Creates and deletes ACLs. */

import { element, show } from "../parts/elements.js";
import { dismissButton, openDialog } from "../parts/dialogs.js";
import { checkbox, selectField, field, topicField } from "../parts/forms.js";
import { confirmWrite } from "../parts/writes.js";
import { pathOf } from "../shell/api.js";
import { aclText, CLUSTER, OPERATIONS, RESOURCE_TYPES } from "./acl_labels.js";

/** @param {Record<string, string>} query  query of the page's address; the initial values of the fields */
export async function createAcl(query) {
  const acl = await openAclDialog(query);
  return acl === null ? null : confirmWrite({
    title: "Create this ACL?",
    explain: aclText(acl),
    method: "POST",
    path: pathOf("acls"),
    body: { acls: [acl] },
    confirm: "Create",
    done: "The ACL is created.",
  });
}

function openAclDialog({ type, name, principal }) {
  return openDialog("Create an ACL", (close) => {
    const fields = {
      principal: field({ label: "Principal", name: "principal", value: principal ?? "User:", required: true, autocomplete: "off" }),
      permission: selectField({ label: "Permission", name: "permission" }, [["allow", "Allow"], ["deny", "Deny"]], "allow"),
      operation: selectField({ label: "Operation", name: "operation" }, OPERATIONS, "read"),
      resource_type: selectField({ label: "Resource", name: "type" }, RESOURCE_TYPES, type || "topic"),
      resource_name: topicField({ label: "Name of the resource", name: "name", value: name ?? "", hint: "* means all." }),
      host: field({ label: "Host", name: "host", value: "*", hint: "IP address of the client; * means all.", autocomplete: "off" }),
    };
    const prefixed = checkbox({ label: "All names that start with this name" });
    const isCluster = () => fields.resource_type.input.value === "cluster";
    const updateVisibility = () => {
      show(fields.resource_name.node, !isCluster());
      show(prefixed.node, !isCluster());
    };
    fields.resource_type.input.addEventListener("change", updateVisibility);
    updateVisibility();
    return {
      content: [
        ...Object.values(fields).flatMap((each) => (each === fields.host ? [prefixed.node, each.node] : [each.node])),
        element("div", { class: "buttons" }, dismissButton(close), element("button", { class: "primary" }, "Preview")),
      ],
      submit() {
        const values = Object.fromEntries(Object.entries(fields).map(([key, { input }]) => [key, input.value.trim()]));
        const pattern = prefixed.input.checked && !isCluster() ? "prefixed" : "literal";
        close({ ...values, resource_name: isCluster() ? CLUSTER : values.resource_name, pattern_type: pattern });
      },
    };
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
    done: "The ACL is deleted.",
  });
}
