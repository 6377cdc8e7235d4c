/** Settings of a topic or a broker: searches, changes and resets them. */

import { request, pathOf } from "../shell/api.js";
import { chipPart, element, set, setText, show } from "./elements.js";
import { checkbox, debounce, field, selectField } from "./forms.js";
import { table } from "./tables.js";
import { confirmWrite } from "./writes.js";

const BOOLEANS = ["true", "false"];

/** Units in which a value can be entered, by the unit of the setting: factor and label. @type {Record<string, [number, string][]>} */
const UNITS = {
  ms: [[1, "ms"], [1000, "s"], [60_000, "min"], [3_600_000, "h"], [86_400_000, "d"]],
  seconds: [[1, "s"], [60, "min"], [3600, "h"], [86_400, "d"]],
  minutes: [[1, "min"], [60, "h"], [1440, "d"]],
  hours: [[1, "h"], [24, "d"]],
  "bytes per second": [[1, "B/s"], [1024, "KiB/s"], [1_048_576, "MiB/s"]],
  bytes: [[1, "B"], [1024, "KiB"], [1_048_576, "MiB"], [1_073_741_824, "GiB"]],
};

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
  const write = async (part) => {
    const result = await confirmWrite({ method: "PATCH", path: pathOf(...path), ifMatch: etag, confirm: "Change", ...part });
    await page.once(load);
    return result;
  };
  const edit = (config) => write({
    title: config.name,
    explain: config.documentation,
    done: "",
    form: valueForm(config, (value) => ({
      body: { set: { [config.name]: value } }, summary: `${config.name} = ${value}`, done: `${config.name} of ${owner} is now ${value}.`,
    })),
  });
  const reset = (config) => write({
    title: `Reset setting “${config.name}” to its default?`, body: { remove: [config.name] }, done: `${config.name} of ${owner} was reset to its default.`,
  });
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
      { header: "Value", text: ({ value, sensitive, unit }) => (sensitive ? "(hidden)" : withUnit(value, unit)) },
      { header: "Default", text: ({ default_value: value, sensitive, unit }) => (sensitive ? "(hidden)" : withUnit(value, unit)) },
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

/** A value with its unit, and in a larger unit if it is long: `604800000 ms (7 d)`. */
function withUnit(value, unit) {
  if (value === null || value === undefined || value === "" || !unit) {
    return value;
  }
  const [amount, factor] = split(value, unit);
  const larger = (UNITS[unit] ?? []).find(([each]) => each === factor);
  return larger && factor > 1 ? `${value} ${unit} (${amount} ${larger[1]})` : `${value} ${unit}`;
}

/** The largest unit in which a value is a whole number. @returns {[string, number]} the number and the factor of its unit */
function split(value, unit) {
  const number = /^\d{1,15}$/.test(value ?? "") ? Number(value) : 0;
  const found = (UNITS[unit] ?? []).findLast(([factor]) => number > 0 && number % factor === 0);
  return found ? [String(number / found[0]), found[0]] : [value ?? "", 1];
}

/** The value in the unit of the setting; a text that is not a number is returned unchanged, so that the broker reports the error. */
function joined(text, factor) {
  return factor > 1 && /^\d+(\.\d+)?$/.test(text) ? String(Math.round(Number(text) * factor)) : text;
}

/** The field of a value, with its unit. @param {any} config @param {(value: string) => any} partOf  the part of the write for a value */
function valueForm(config, partOf) {
  const hint = [`Default: ${withUnit(config.default_value, config.unit) ?? "none"}.`, config.allowed ? `Allowed: ${config.allowed}.` : null, `Type: ${config.type}.`];
  const options = { label: "Value", name: "value", hint: hint.filter(Boolean).join(" ") };
  const [amount, factor] = split(config.value, config.unit);
  const units = UNITS[config.unit] ?? [];
  const unitField = selectField({ label: "Unit", name: "unit" }, units.map(([each, label]) => [String(each), label]), String(factor));
  const isBoolean = String(config.type).toLowerCase() === "boolean";
  const valueField = isBoolean
    ? field({ ...options, tag: "select", children: BOOLEANS.map((value) => element("option", { value, selected: value === config.value }, value)) })
    : field({ ...options, value: units.length ? amount : (config.value ?? ""), autocomplete: "off", spellcheck: "false" });
  return {
    nodes: [element("div", { class: "pair" }, valueField.node, units.length ? unitField.node : null)],
    read() {
      const value = joined(valueField.input.value.trim(), units.length ? Number(unitField.input.value) : 1);
      return value === (config.value ?? "") ? null : partOf(value);
    },
  };
}
