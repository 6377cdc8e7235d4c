/** Settings of a topic or a broker: searches, changes and resets them. */

import { ask, get, pathOf } from "../shell/api.js";
import { announce } from "../shell/news.js";
import { chipPart, element, set, setText, show } from "./elements.js";
import { checkbox, delayed, field } from "./forms.js";
import { leaveButton, openDialog } from "./dialogs.js";
import { table } from "./tables.js";
import { confirmWrite } from "./writes.js";

const BOOLEANS = ["true", "false"];

/** Sources of dynamic values, which a reset removes. */
const OWN = /^(dynamic|topic)/i;

/**
 * @param {import("../shell/page.js").Page} page
 * @param {string[]} path  path of the settings in the API
 * @param {string} owner  the topic or broker
 * @param {boolean} [changed]  true to show only changed settings at first
 */
export function configEditor(page, path, owner, changed = false) {
  let configs = [];
  let etag = null;
  const search = field({ label: "Find a setting", type: "search", autocomplete: "off" });
  const own = checkbox({ label: "Only changed ones", checked: changed });
  const list = configTable(owner, (config) => edit(config), (config) => reset(config));
  const refresh = () => {
    const words = search.input.value.trim().toLowerCase();
    list.update(configs.filter((config) => config.name.includes(words) && (!own.input.checked || !config.is_default)));
  };
  search.input.addEventListener("input", delayed(refresh, 80));
  own.input.addEventListener("change", refresh);

  const load = async () => {
    const reply = await ask("GET", pathOf(...path), { signal: page.signal });
    configs = reply.document.configs;
    etag = reply.etag;
    refresh();
  };
  const write = async (body, title, done) => {
    const answer = await confirmWrite({ title, method: "PATCH", path: pathOf(...path), body, ifMatch: etag, confirm: "Change", done });
    await page.once(load);
    return answer;
  };
  const edit = async (config) => {
    const value = await askForValue(config);
    if (value !== null) {
      await write({ set: { [config.name]: value } }, `${config.name} = ${value}?`, `${config.name} of ${owner} is now ${value}.`);
    }
  };
  const reset = (config) => write({ remove: [config.name] }, `Reset ${config.name} to its default?`, `${config.name} of ${owner} has its default again.`);
  page.once(load);
  return element("div", { class: "stack" }, element("div", { class: "fields" }, search.node, own.node), list.node);
}

function configTable(owner, edit, reset) {
  return table({
    caption: `Settings of ${owner}`,
    keyOf: ({ name }) => name,
    empty: "No setting matches.",
    columns: [
      { header: "Setting", names: true, part: namePart },
      { header: "Value", className: "mono", text: ({ value, sensitive }) => (sensitive ? "(hidden)" : value) },
      { header: "From", part: chipPart(({ is_default: isDefault, source }) => (isDefault ? ["", "default"] : ["busy", String(source ?? "own").toLowerCase().replaceAll("_", " ")])) },
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
  const change = element("button", { class: "tight", type: "button", onclick: () => edit(config) }, "Edit");
  const back = element("button", { class: "tight", type: "button", onclick: () => reset(config) }, "Reset");
  return {
    node: element("span", null, back, " ", change),
    update(item) {
      config = item;
      set(change, "aria-label", `Edit ${item.name}`);
      set(back, "aria-label", `Reset ${item.name}`);
      set(change, "disabled", item.read_only);
      show(back, OWN.test(item.source ?? "") && !item.read_only);
    },
  };
}

function askForValue(config) {
  return openDialog(config.name, (close) => {
    const options = { label: "Value", name: "value", hint: `Default: ${config.default_value ?? "none"}. ${config.type ?? ""}`.trim() };
    const isBoolean = String(config.type).toLowerCase() === "boolean";
    const made = isBoolean
      ? field({ ...options, tag: "select", children: BOOLEANS.map((value) => element("option", { value, selected: value === config.value }, value)) })
      : field({ ...options, value: config.value ?? "", autocomplete: "off", spellcheck: "false" });
    return {
      content: [
        config.documentation ? element("p", { class: "muted" }, config.documentation) : null,
        made.node,
        element("div", { class: "buttons" }, leaveButton(close), element("button", { class: "primary" }, "Preview")),
      ],
      submit: () => (made.input.value === config.value ? announce("This is the current value.") : close(made.input.value)),
    };
  });
}
