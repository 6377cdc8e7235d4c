/** One client-metrics subscription: its settings, and dialogs that create and delete it. */

import { configEditor } from "../../parts/config_editor.js";
import { dismissButton, openDialog } from "../../parts/dialogs.js";
import { element } from "../../parts/elements.js";
import { field, showFieldError } from "../../parts/forms.js";
import { confirmWrite } from "../../parts/writes.js";
import { pathOf } from "../../shell/api.js";

const SETTINGS = ["metrics", "interval.ms", "match"];

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  const name = page.path[1];
  page.title(`Subscription ${name}`, ["#/clients", "Clients"]);
  page.actions.append(element("button", {
    type: "button", class: "danger", onclick: async () => (await deleteSubscription(name)) && page.go(["clients"]),
  }, "Delete"));
  page.add(configEditor(page, ["configs", "client-metrics", name], `subscription ${name}`));
}

/** Ask for a new subscription, and return its name; null if it was not created. */
export async function newSubscription() {
  const chosen = await openNewDialog();
  if (chosen === null) {
    return null;
  }
  const { name, ...settings } = chosen;
  const written = await confirmWrite({
    title: `Create subscription “${name}”?`,
    explain: "Clients that match push these metrics to the brokers. A client that is already connected gets its first subscription when it reconnects.",
    method: "PATCH",
    path: pathOf("configs", "client-metrics", name),
    body: { set: settings },
    confirm: "Create",
    done: `The subscription ${name} was created.`,
  });
  return written ? name : null;
}

function deleteSubscription(name) {
  return confirmWrite({
    title: `Delete subscription “${name}”?`,
    explain: "Clients stop pushing its metrics at their next request.",
    method: "PATCH",
    path: pathOf("configs", "client-metrics", name),
    body: { remove: SETTINGS },
    confirm: "Delete",
    danger: true,
    done: `The subscription ${name} was deleted.`,
  });
}

function openNewDialog() {
  return openDialog("New subscription", (close) => {
    const attributes = { autocomplete: "off", spellcheck: "false" };
    const name = field({ label: "Name", name: "name", required: true, ...attributes });
    const metrics = field({ label: "Metrics", name: "metrics", value: "*", hint: "Prefixes, separated by commas; * for all.", ...attributes });
    const interval = field({ label: "Interval in seconds", name: "interval", type: "number", step: "any", value: "10" });
    const match = field({
      label: "Clients", name: "match", placeholder: "client_id=orders-.*", hint: "ATTRIBUTE=EXPRESSION, separated by commas; empty for all.", ...attributes,
    });
    const buttons = element("div", { class: "buttons" }, dismissButton(close), element("button", { class: "primary" }, "Preview"));
    return {
      content: [name.node, metrics.node, interval.node, match.node, buttons],
      submit() {
        const chosen = name.input.value.trim();
        const seconds = Number(interval.input.value);
        showFieldError(name, chosen === "" ? "Enter a name." : "");
        showFieldError(interval, seconds >= 0.1 && seconds <= 3600 ? "" : "Enter 0.1 to 3600 seconds.");
        if (chosen !== "" && seconds >= 0.1 && seconds <= 3600) {
          const expression = match.input.value.trim();
          close({
            name: chosen, metrics: metrics.input.value.trim(), "interval.ms": Math.round(seconds * 1000), ...(expression === "" ? {} : { match: expression }),
          });
        }
      },
    };
  });
}
