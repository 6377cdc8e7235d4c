/** Creates and deletes ACLs. */

import { element, show } from "../parts/elements.js";
import { leaveButton, openDialog } from "../parts/dialogs.js";
import { checkbox, choice, field, topicField } from "../parts/forms.js";
import { confirmWrite } from "../parts/writes.js";
import { pathOf } from "../shell/api.js";
import { aclText, CLUSTER, OPERATIONS, TYPES } from "./acl_words.js";

/** @param {Record<string, string>} query  query of the page's address; gives the initial values of the fields */
export async function createAcl(query) {
  const acl = await askForAcl(query);
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

function askForAcl({ type, name, principal }) {
  return openDialog("Create an ACL", (close) => {
    const made = {
      principal: field({ label: "Principal", name: "principal", value: principal ?? "User:", required: true, autocomplete: "off" }),
      permission: choice({ label: "Permission", name: "permission" }, [["allow", "Allow"], ["deny", "Deny"]], "allow"),
      operation: choice({ label: "Operation", name: "operation" }, OPERATIONS, "read"),
      resource_type: choice({ label: "Resource", name: "type" }, TYPES, type || "topic"),
      resource_name: topicField({ label: "Name of the resource", name: "name", value: name ?? "", hint: "* means all." }),
      host: field({ label: "Host", name: "host", value: "*", hint: "IP address of the client; * means all.", autocomplete: "off" }),
    };
    const prefixed = checkbox({ label: "All names that start with it" });
    const isCluster = () => made.resource_type.input.value === "cluster";
    const adapt = () => {
      show(made.resource_name.node, !isCluster());
      show(prefixed.node, !isCluster());
    };
    made.resource_type.input.addEventListener("change", adapt);
    adapt();
    return {
      content: [
        ...Object.values(made).flatMap((each) => (each === made.host ? [prefixed.node, each.node] : [each.node])),
        element("div", { class: "buttons" }, leaveButton(close), element("button", { class: "primary" }, "Preview")),
      ],
      submit() {
        const row = Object.fromEntries(Object.entries(made).map(([key, { input }]) => [key, input.value.trim()]));
        const pattern = prefixed.input.checked && !isCluster() ? "prefixed" : "literal";
        close({ ...row, resource_name: isCluster() ? CLUSTER : row.resource_name, pattern_type: pattern });
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
