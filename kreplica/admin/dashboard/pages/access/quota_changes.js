/** Sets and deletes quotas. */

import { show } from "../../parts/elements.js";
import { areValid, selectField, field, setOptions } from "../../parts/forms.js";
import { confirmWrite } from "../../parts/writes.js";
import { pathOf } from "../../shell/api.js";
import { quotaOptions, DEFAULT, entityText, KINDS, quotaText, valueText } from "./quota_labels.js";

/** @param {{entity: any, name: string, value: number}|null} existing  the quota to change; null for a new one */
export function setQuota(existing) {
  return confirmWrite({
    title: existing === null ? "Set a quota" : `Change the quota of ${entityText(existing.entity)}`,
    explain: existing === null ? "" : `${quotaText(existing.name)}: ${valueText(existing.name, existing.value)} now.`,
    method: "PATCH",
    path: pathOf("quotas"),
    form: existing === null ? quotaForm() : valueForm(existing),
    confirm: "Set",
    done: "The quota was set.",
  });
}

/** The part of the write for a quota. */
function partOf(entity, name, value) {
  return {
    body: { ...specifiedNames(entity), quotas: { [name]: value } },
    summary: `${quotaText(name)} of ${entityText(entity)}: ${valueText(name, value)} on each broker. Clients above it are slowed down.`,
  };
}

/** @param {any} entity @param {string} name */
export function deleteQuota(entity, name) {
  return confirmWrite({
    title: "Delete this quota?",
    explain: `${quotaText(name)} of ${entityText(entity)}. The next less specific quota then applies, if there is one.`,
    method: "PATCH",
    path: pathOf("quotas"),
    body: { ...specifiedNames(entity), quotas: { [name]: null } },
    confirm: "Delete",
    danger: true,
    done: "The quota was deleted.",
  });
}

function specifiedNames({ user, client_id, ip }) {
  return Object.fromEntries(Object.entries({ user, client_id, ip }).filter(([, name]) => name !== null));
}

function quotaForm() {
  const hint = "Empty: the default for all that have no quota of their own.";
  const attributes = { autocomplete: "off", spellcheck: "false", hint };
  const kind = selectField({ label: "Quota of a", name: "kind" }, KINDS, "user");
  const names = {
    user: field({ label: "User", name: "user", ...attributes }),
    client_id: field({ label: "Client ID", name: "client-id", ...attributes }),
    ip: field({ label: "IP address or host", name: "ip", ...attributes }),
  };
  const quota = selectField({ label: "Quota", name: "quota" }, quotaOptions(false));
  const value = valueField();
  const parts = () => (kind.input.value === "both" ? ["user", "client_id"] : [kind.input.value]);
  const updateVisibility = () => {
    Object.entries(names).forEach(([part, inputField]) => show(inputField.node, parts().includes(part)));
    setOptions(quota.input, quotaOptions(kind.input.value === "ip"));
  };
  kind.input.addEventListener("change", updateVisibility);
  updateVisibility();
  const nameOf = (part) => (parts().includes(part) ? names[part].input.value.trim() || DEFAULT : null);
  return {
    nodes: [kind.node, ...Object.values(names).map(({ node }) => node), quota.node, value.node],
    read() {
      const entity = { user: nameOf("user"), client_id: nameOf("client_id"), ip: nameOf("ip") };
      return areValid(value) ? partOf(entity, quota.input.value, Number(value.input.value)) : null;
    },
  };
}

function valueForm({ entity, name, value: currentValue }) {
  const value = valueField(currentValue);
  return { nodes: [value.node], read: () => (areValid(value) ? partOf(entity, name, Number(value.input.value)) : null) };
}

function valueField(value = "") {
  return field({ label: "Value for each broker", name: "value", type: "number", step: "any", min: "0", required: true, value });
}
