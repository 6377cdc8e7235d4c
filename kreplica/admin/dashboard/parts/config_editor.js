/** Settings of a topic or a broker: searches, changes and resets them. */

import { request, pathOf } from "../shell/api.js";
import { announce } from "../shell/notifications.js";
import { chipPart, element, set, setText, show } from "./elements.js";
import { checkbox, debounce, field } from "./forms.js";
import { dismissButton, openDialog } from "./dialogs.js";
import { table } from "./tables.js";
import { confirmWrite } from "./writes.js";

const BOOLEANS = ["true", "false"];

/** Sources of dynamic values, which Reset removes. */
const DYNAMIC = /^(dynamic|topic)/i;

/**
 * @param {import("../shell/page.js").Page} page
 * @param {string[]} path  path of the settings in the API
 * @param {string} owner  the topic or broker
 * @param {boolean} [changed]  initial value of "Only changed settings"
 */
export function configEditor(page, path, owner, changed = false) {
  let configs = [];
  let etag = null;
  const search = field({ label: "Find a setting", type: "search", autocomplete: "off" });
  const onlyChanged = checkbox({ label: "Only changed settings", checked: changed });
  const list = configTable(owner, (config) => edit(config), (config) => reset(config));
  const refresh = () => {
    const text = search.input.value.trim().toLowerCase();
    list.update(configs.filter((config) => config.name.includes(text) && (!onlyChanged.input.checked || !config.is_default)));
  };
  search.input.addEventListener("input", debounce(refresh, 80));
  onlyChanged.input.addEventListener("change", refresh);

  const load = async () => {
    const reply = await request("GET", pathOf(...path), { signal: page.signal });
    configs = reply.document.configs;
    etag = reply.etag;
    refresh();
  };
  const write = async (body, title, done) => {
    const result = await confirmWrite({ title, method: "PATCH", path: pathOf(...path), body, ifMatch: etag, confirm: "Change", done });
    await page.once(load);
    return result;
  };
  const edit = async (config) => {
    const value = await openValueDialog(config);
    if (value !== null) {
      await write({ set: { [config.name]: value } }, `${config.name} = ${value}?`, `${config.name} of ${owner} is now ${value}.`);
    }
  };
  const reset = (config) => write({ remove: [config.name] }, `Reset ${config.name} to its default?`, `${config.name} of ${owner} is reset to its default.`);
  page.once(load);
  return element("div", { class: "stack" }, element("div", { class: "fields" }, search.node, onlyChanged.node), list.node);
}

function configTable(owner, edit, reset) {
  return table({
    caption: `Settings of ${owner}`,
    keyOf: ({ name }) => name,
    empty: "No setting matches.",
    columns: [
      { header: "Setting", names: true, part: namePart },
      { header: "Value", className: "mono", text: ({ value, sensitive }) => (sensitive ? "(hidden)" : value) },
      { header: "From", part: chipPart(({ is_default: isDefault, source }) => (isDefault ? ["", "default"] : ["busy", String(source ?? "changed").toLowerCase().replaceAll("_", " ")])) },
      { header: "(Actions)", className: "cell-actions", part: () => actions(edit, reset) },
    ],
  });
}

function namePart() {
  const name = element("span", { class: "mono" });
  const meaning = element("p", { class: "hint" });
  return {
    node: element("div", null, name, meaning),
    update(config) {
      setText(name, config.name);
      setText(meaning, config.documentation ?? "");
    },
  };
}

function actions(edit, reset) {
  let config = null;
  const editButton = element("button", { class: "tight", type: "button", onclick: () => edit(config) }, "Edit");
  const resetButton = element("button", { class: "tight", type: "button", onclick: () => reset(config) }, "Reset");
  return {
    node: element("span", null, resetButton, " ", editButton),
    update(item) {
      config = item;
      set(editButton, "aria-label", `Edit ${item.name}`);
      set(resetButton, "aria-label", `Reset ${item.name}`);
      set(editButton, "disabled", item.read_only);
      show(resetButton, DYNAMIC.test(item.source ?? "") && !item.read_only);
    },
  };
}

function openValueDialog(config) {
  return openDialog(config.name, (close) => {
    const options = { label: "Value", name: "value", hint: `Default: ${config.default_value ?? "none"}. ${config.type ?? ""}`.trim() };
    const isBoolean = String(config.type).toLowerCase() === "boolean";
    const valueField = isBoolean
      ? field({ ...options, tag: "select", children: BOOLEANS.map((value) => element("option", { value, selected: value === config.value }, value)) })
      : field({ ...options, value: config.value ?? "", autocomplete: "off", spellcheck: "false" });
    return {
      content: [
        config.documentation ? element("p", { class: "muted" }, config.documentation) : null,
        valueField.node,
        element("div", { class: "buttons" }, dismissButton(close), element("button", { class: "primary" }, "Preview")),
      ],
      submit: () => (valueField.input.value === config.value ? announce("This is the current value.") : close(valueField.input.value)),
    };
  });
}
