/** Settings of a topic or a broker: searches, changes and resets them. */

import { request, pathOf } from "../shell/api.js";
import { chipPart, element, set, setText, show } from "./elements.js";
import { checkbox, checkboxes, debounce, field, selectField, splitNames } from "./forms.js";
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

/** Value that stands for no limit: the largest number of type long. */
const LONG_MAX = "9223372036854775807";

/** Settings whose value -1 stands for no limit. */
const RETENTION = /^(log\.)?retention\.(ms|minutes|hours|bytes)$/;

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
      body: { set: { [config.name]: value } }, summary: `${config.name} = ${valueText(config, value)}`,
      done: `${config.name} of ${owner} is now ${valueText(config, value)}.`,
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
      { header: "Value", text: (config) => (config.sensitive ? "(hidden)" : valueText(config, config.value)) },
      { header: "Default", text: (config) => (config.sensitive ? "(hidden)" : valueText(config, config.default_value)) },
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

/** A value with its unit, and in a larger unit if it is long: `7 d (604800000 ms)`. @returns {string|null} */
function valueText({ name, unit }, value) {
  if (value === LONG_MAX) {
    return "unlimited";
  }
  if (value === "-1" && RETENTION.test(name)) {
    return "unlimited (-1)";
  }
  if (value === null || value === undefined || value === "" || value.startsWith("-") || !unit) {
    return value;
  }
  const [amount, factor] = split(value, unit);
  const larger = (UNITS[unit] ?? []).find(([each]) => each === factor);
  return larger && factor > 1 ? `${amount} ${larger[1]} (${value} ${unit})` : `${value} ${unit}`;
}

/** The valid values in words, without the range of the type. @param {string} allowed */
function allowedText(allowed) {
  return allowed.replace(/, -(32768|2147483648|9223372036854775808) to \d+$/, "");
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
  const hint = [`Default: ${valueText(config, config.default_value) ?? "none"}.`, config.allowed ? `Allowed: ${allowedText(config.allowed)}.` : null, `Type: ${config.type}.`];
  const options = { label: "Value", name: "value", hint: hint.filter(Boolean).join(" ") };
  const [amount, factor] = split(config.value, config.unit);
  const units = UNITS[config.unit] ?? [];
  const unitField = selectField({ label: "Unit", name: "unit" }, units.map(([each, label]) => [String(each), label]), String(factor));
  const { node, read } = choiceOf(config, options) ?? textOf(options, units.length ? amount : (config.value ?? ""));
  return {
    nodes: [element("div", { class: "pair" }, node, units.length ? unitField.node : null)],
    read() {
      const value = joined(read(), units.length ? Number(unitField.input.value) : 1);
      return value === (config.value ?? "") ? null : partOf(value);
    },
  };
}

function textOf(options, value) {
  const { node, input } = field({ ...options, value, autocomplete: "off", spellcheck: "false" });
  return { node, read: () => input.value.trim() };
}

/** A choice for a setting with a fixed set of values: a select, or checkboxes for a list; null for other settings. */
function choiceOf({ type, choices, value }, options) {
  const kind = String(type).toLowerCase();
  const values = kind === "boolean" ? BOOLEANS : choices;
  if (!values) {
    return null;
  }
  if (kind === "list") {
    const { node, selected } = checkboxes(options.label, values.map((each) => [each, each]), splitNames(value ?? ""));
    node.append(element("p", { class: "hint" }, options.hint));
    return { node, read: () => selected().join(",") };
  }
  const shown = [...new Set([...values, value ?? ""])].map((each) => [each, each || "(empty)"]);
  const { node, input } = selectField(options, shown, value ?? "");
  return { node, read: () => input.value };
}
