/**
 * The columns of message tables, and the user's choice of them.
 *
 * @typedef {{name: string, header: string, numeric?: boolean, className?: string, text: (message: any) => string,
 *   sortKey: (message: any) => string|number|null}} MessageColumn
 */

import { element, show } from "./elements.js";
import { bytes, count, dateTime, inlineJson, pluralize } from "./format.js";
import { checkboxes, field } from "./forms.js";
import { narrowWindow } from "./narrow_window.js";

const STORED = "kreplica.messages.columns";
/** Maximum length of a text in a row. */
const SHOWN_CHARACTERS = 200;
const FIELDS_MAX = 12;

/** @type {MessageColumn[]} */
const COLUMNS = [
  { name: "partition", header: "Partition", numeric: true, text: ({ partition }) => String(partition), sortKey: ({ partition }) => partition },
  { name: "offset", header: "Offset", numeric: true, text: ({ offset }) => count(offset), sortKey: ({ offset }) => offset },
  { name: "time", header: "Time", className: "column-time nowrap small", text: ({ timestamp_ms: at }) => dateTime(at), sortKey: ({ timestamp_ms: at }) => at },
  { name: "key", header: "Key", className: "key", text: ({ key }) => payloadText(key), sortKey: ({ key }) => payloadText(key) },
  { name: "value", header: "Value", className: "value", text: ({ value, control }) => control ? controlText(control) : payloadText(value), sortKey: ({ value }) => payloadText(value) },
  { name: "headers", header: "Headers", className: "column-headers headers", text: ({ headers }) => headers.map(({ key, value }) => `${key}: ${value}`).join(", ").slice(0, SHOWN_CHARACTERS), sortKey: ({ headers }) => headers.length },
  { name: "format", header: "Format", className: "column-format nowrap small", text: ({ value }) => formatText(value), sortKey: ({ value }) => formatText(value) },
  { name: "size", header: "Size", numeric: true, text: ({ size_bytes: size }) => bytes(size), sortKey: ({ size_bytes: size }) => size },
];
/** Columns until the user chooses others; on a phone, those that fit without scrolling. */
const DEFAULT = { columns: narrowWindow.matches ? ["key", "value"] : ["partition", "time", "key", "value", "size"], fields: [] };
const ALWAYS = "offset";

/** Text of a decoded key or value on one line. */
function payloadText(part) {
  if (part.format === "null") {
    return "null";
  }
  if (part.size_bytes === 0) {
    return "empty";
  }
  return (part.format === "hex" ? "hex: " : "") + inlineJson(part.value).slice(0, SHOWN_CHARACTERS);
}

/** @param {any} part @returns {string} format and schema of a key or value */
export function formatText(part) {
  if (part.schema === null) {
    return part.format;
  }
  const { id, subject, version } = part.schema;
  return `${part.format}, schema ${id}${subject === null ? "" : ` (${subject}${version === null ? "" : ` version ${version}`})`}`;
}

/** @param {any} control  a transaction marker */
export function controlText(control) {
  return `transaction ${control.type}, producer ${control.producer_id} epoch ${control.producer_epoch}`;
}

/** The chosen columns; those of fields, such as `value.order.id`, are last. @returns {MessageColumn[]} */
export function chosenColumns() {
  const { columns, fields } = readChoice();
  return [...COLUMNS.filter(({ name }) => name === ALWAYS || columns.includes(name)), ...fields.map(fieldColumn)];
}

/** A menu to choose columns. @param {() => void} onChange */
export function columnMenu(onChange) {
  const choice = readChoice();
  const choices = COLUMNS.filter(({ name }) => name !== ALWAYS).map(({ name, header }) => /** @type {[string, string]} */ ([name, header]));
  const boxes = checkboxes("Columns", choices, choice.columns, { onchange: () => store() });
  const fields = field({
    label: "Fields as columns", name: "fields", value: choice.fields.join(", "), autocomplete: "off", spellcheck: "false",
    placeholder: "value.order.id, key.country", hint: "Separated by commas; each begins with key., value. or headers.", onchange: () => store(),
  });
  const store = () => {
    const chosen = { columns: boxes.selected(), fields: fieldPaths(fields.input.value) };
    localStorage.setItem(STORED, JSON.stringify(chosen));
    onChange();
  };
  const panel = element("div", { class: "card stack menu-panel", hidden: true }, boxes.node, fields.node);
  const button = element("button", { type: "button", "aria-expanded": "false", onclick: () => {
    show(panel, panel.hidden);
    button.setAttribute("aria-expanded", String(!panel.hidden));
  } }, "Columns");
  return { button, panel };
}

function readChoice() {
  try {
    const { columns, fields } = JSON.parse(localStorage.getItem(STORED) ?? "null") ?? DEFAULT;
    return { columns: [...columns].map(String), fields: [...fields].map(String) };
  } catch {
    return DEFAULT;
  }
}

function fieldPaths(text) {
  return text.split(",").map((path) => path.trim()).filter((path) => /^(key|value|headers)\../.test(path)).slice(0, FIELDS_MAX);
}

function fieldColumn(path) {
  const [root, ...names] = path.split(".");
  const contentOf = (message) => {
    if (root === "headers") {
      return message.headers.find(({ key }) => key === names.join("."))?.value;
    }
    return names.reduce((content, name) => (content !== null && typeof content === "object" ? content[name] : undefined), message[root].value);
  };
  const textOf = (message) => {
    const content = contentOf(message);
    return content === undefined ? "–" : (inlineJson(content) ?? "–").slice(0, SHOWN_CHARACTERS);
  };
  return {
    name: path, header: path, className: "field-column", text: textOf,
    sortKey: (message) => {
      const content = contentOf(message);
      return typeof content === "number" ? content : content === undefined ? null : textOf(message);
    },
  };
}

/** Messages in the order of a column; those without a value are last. @param {any[]} messages @param {string} order  a column's name, with `-` for descending order */
export function sortMessages(messages, order) {
  const descends = order.startsWith("-");
  const column = chosenColumns().find(({ name }) => name === (descends ? order.slice(1) : order));
  if (!column) {
    return messages;
  }
  const keyed = messages.map((message) => ({ message, key: column.sortKey(message) }));
  keyed.sort(({ key: one }, { key: other }) => {
    if (one === null || other === null) {
      return Number(one === null) - Number(other === null);
    }
    const sign = typeof one === typeof other ? (one < other ? -1 : Number(one > other)) : typeof one === "number" ? -1 : 1;
    return descends ? -sign : sign;
  });
  return keyed.map(({ message }) => message);
}

/** Describes the order of `sortMessages`: "sorted by Time". */
export function orderText(order, shown) {
  const column = chosenColumns().find(({ name }) => name === order.replace(/^-/, ""));
  return column === undefined ? "" : ` The ${pluralize(shown, "shown message")} ${shown === 1 ? "is" : "are"} sorted by ${column.header}.`;
}
