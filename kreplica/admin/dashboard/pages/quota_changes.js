/** Sets and deletes quotas. */

import { element, setText, show } from "../parts/elements.js";
import { dismissButton, openDialog } from "../parts/dialogs.js";
import { selectField, showFieldError, field, setOptions } from "../parts/forms.js";
import { confirmWrite } from "../parts/writes.js";
import { pathOf } from "../shell/api.js";
import { quotaOptions, DEFAULT, entityText, KINDS, quotaText, valueText } from "./quota_labels.js";

/** @param {{entity: any, name: string, value: number}|null} existing  the quota to change; null for a new one */
export async function setQuota(existing) {
  const quota = await (existing === null ? openQuotaDialog() : openValueDialog(existing));
  if (quota === null) {
    return null;
  }
  const { entity, name, value } = quota;
  return confirmWrite({
    title: "Set this quota?",
    explain: `${quotaText(name)} of ${entityText(entity)}: ${valueText(name, value)} on each broker. Clients above it are slowed down.`,
    method: "PATCH",
    path: pathOf("quotas"),
    body: { ...specifiedNames(entity), quotas: { [name]: value } },
    confirm: "Set",
    done: "The quota is set.",
  });
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
    done: "The quota is deleted.",
  });
}

function specifiedNames({ user, client_id, ip }) {
  return Object.fromEntries(Object.entries({ user, client_id, ip }).filter(([, name]) => name !== null));
}

function openQuotaDialog() {
  return openDialog("Set a quota", (close) => {
    const hint = "Empty: the default for all without their own quota.";
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
      content: [kind.node, ...Object.values(names).map(({ node }) => node), quota.node, value.node, buttons(close)],
      submit() {
        const entity = { user: nameOf("user"), client_id: nameOf("client_id"), ip: nameOf("ip") };
        closeIfValid(close, { entity, name: quota.input.value }, value);
      },
    };
  });
}

function openValueDialog({ entity, name, value: currentValue }) {
  return openDialog(`Change the quota of ${entityText(entity)}`, (close) => {
    const text = element("p");
    setText(text, `${quotaText(name)}: ${valueText(name, currentValue)} now.`);
    const value = valueField(currentValue);
    return { content: [text, value.node, buttons(close)], submit: () => closeIfValid(close, { entity, name }, value) };
  });
}

function valueField(value = "") {
  return field({ label: "Value for each broker", name: "value", type: "number", step: "any", min: "0", required: true, value });
}

function buttons(close) {
  return element("div", { class: "buttons" }, dismissButton(close), element("button", { class: "primary" }, "Preview"));
}

function closeIfValid(close, quota, value) {
  const number = Number(value.input.value);
  const isNumber = value.input.value.trim() !== "" && Number.isFinite(number);
  showFieldError(value, isNumber ? "" : "Enter a number.");
  if (isNumber) {
    close({ ...quota, value: number });
  }
}
