/** Sets and deletes quotas. */

import { element, setText, show } from "../parts/elements.js";
import { leaveButton, openDialog } from "../parts/dialogs.js";
import { choice, complain, field, setChoices } from "../parts/forms.js";
import { confirmWrite } from "../parts/writes.js";
import { pathOf } from "../shell/api.js";
import { choices, DEFAULT, entityText, KINDS, quotaText, valueText } from "./quota_words.js";

/** @param {{entity: any, name: string, value: number}|null} known  the quota to change; null for a new one */
export async function setQuota(known) {
  const made = await (known === null ? askForQuota() : askForValue(known));
  if (made === null) {
    return null;
  }
  const { entity, name, value } = made;
  return confirmWrite({
    title: "Set this quota?",
    explain: `${quotaText(name)} of ${entityText(entity)}: ${valueText(name, value)} on each broker. Clients above it are slowed down.`,
    method: "PATCH",
    path: pathOf("quotas"),
    body: { ...given(entity), quotas: { [name]: value } },
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
    body: { ...given(entity), quotas: { [name]: null } },
    confirm: "Delete",
    danger: true,
    done: "The quota is deleted.",
  });
}

function given({ user, client_id, ip }) {
  return Object.fromEntries(Object.entries({ user, client_id, ip }).filter(([, name]) => name !== null));
}

function askForQuota() {
  return openDialog("Set a quota", (close) => {
    const hint = "Empty: all that have no quota of their own.";
    const attributes = { autocomplete: "off", spellcheck: "false", hint };
    const kind = choice({ label: "Quota of a", name: "kind" }, KINDS, "user");
    const names = {
      user: field({ label: "User", name: "user", ...attributes }),
      client_id: field({ label: "Client ID", name: "client-id", ...attributes }),
      ip: field({ label: "IP address or host", name: "ip", ...attributes }),
    };
    const quota = choice({ label: "Quota", name: "quota" }, choices(false));
    const value = valueField();
    const parts = () => (kind.input.value === "both" ? ["user", "client_id"] : [kind.input.value]);
    const adapt = () => {
      Object.entries(names).forEach(([part, made]) => show(made.node, parts().includes(part)));
      setChoices(quota.input, choices(kind.input.value === "ip"));
    };
    kind.input.addEventListener("change", adapt);
    adapt();
    const nameOf = (part) => (parts().includes(part) ? names[part].input.value.trim() || DEFAULT : null);
    return {
      content: [kind.node, ...Object.values(names).map(({ node }) => node), quota.node, value.node, buttons(close)],
      submit() {
        const entity = { user: nameOf("user"), client_id: nameOf("client_id"), ip: nameOf("ip") };
        closeWith(close, { entity, name: quota.input.value }, value);
      },
    };
  });
}

function askForValue({ entity, name, value: now }) {
  return openDialog(`Change the quota of ${entityText(entity)}`, (close) => {
    const text = element("p");
    setText(text, `${quotaText(name)}: ${valueText(name, now)} now.`);
    const value = valueField(now);
    return { content: [text, value.node, buttons(close)], submit: () => closeWith(close, { entity, name }, value) };
  });
}

function valueField(value = "") {
  return field({ label: "Value for each broker", name: "value", type: "number", step: "any", min: "0", required: true, value });
}

function buttons(close) {
  return element("div", { class: "buttons" }, leaveButton(close), element("button", { class: "primary" }, "Preview"));
}

function closeWith(close, made, value) {
  const number = Number(value.input.value);
  const isNumber = value.input.value.trim() !== "" && Number.isFinite(number);
  complain(value, isNumber ? "" : "Enter a number.");
  if (isNumber) {
    close({ ...made, value: number });
  }
}
