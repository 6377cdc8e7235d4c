/** A table of messages, and a dialog with one complete message. */

import { element, set, setText } from "./elements.js";
import { bytes, count, dateTime, inlineJson } from "./format.js";
import { dismissButton, openDialog } from "./dialogs.js";
import { table } from "./tables.js";
import { announce } from "../shell/notifications.js";

/** Maximum length of a key or a value in a row. */
const SHOWN_CHARACTERS = 200;

/** @param {string} caption @param {string} empty */
export function messageTable(caption, empty) {
  return table({
    caption,
    keyOf: ({ partition, offset }) => `${partition}:${offset}`,
    empty,
    columns: [
      { header: "Partition", numeric: true, text: ({ partition }) => String(partition) },
      { header: "Offset", numeric: true, names: true, text: ({ offset }) => count(offset) },
      { header: "Time", className: "nowrap small", text: ({ timestamp_ms: at }) => dateTime(at) },
      { header: "Key", part: () => payload("key") },
      { header: "Value", part: () => payload("value") },
      { header: "Size", numeric: true, text: ({ size_bytes: size }) => bytes(size) },
      { header: "(Whole message)", className: "cell-actions", part: openButton },
    ],
  });
}

function payload(name) {
  const node = element("span", { class: "payload" });
  return {
    node,
    update(message) {
      const part = message[name];
      const placeholder = part.format === "null" ? "null" : part.size_bytes === 0 ? "empty" : null;
      set(node, "class", `payload ${name}${placeholder === null ? "" : " absent"}`);
      const prefix = part.format === "hex" ? "hex: " : "";
      setText(node, placeholder ?? prefix + inlineJson(part.value).slice(0, SHOWN_CHARACTERS));
    },
  };
}

function openButton() {
  let message = null;
  const node = element("button", { class: "tight", type: "button", onclick: () => showMessage(message) }, "Open");
  return {
    node,
    update(item) {
      message = item;
      set(node, "aria-label", `Open message ${item.offset} of partition ${item.partition}`);
    },
  };
}

/** @param {any} message */
function showMessage(message) {
  openDialog(`Partition ${message.partition}, offset ${message.offset}`, (close) => ({
    content: [
      element("dl", { class: "facts" }, [
        ["Time", `${dateTime(message.timestamp_ms)} (${String(message.timestamp_type ?? "create time").toLowerCase().replaceAll("_", " ")})`],
        ["Size", bytes(message.size_bytes)],
      ].flatMap(([term, text]) => [element("dt", null, term), element("dd", null, text)])),
      payloadSection("Key", message.key),
      payloadSection("Value", message.value),
      headersOf(message.headers ?? []),
      element("div", { class: "buttons" }, dismissButton(close, "Close")),
    ],
  }));
}

function headersOf(headers) {
  return element("section", null, element("h3", null, "Headers"), headers.length === 0
    ? element("p", { class: "muted" }, "none")
    : element("dl", { class: "facts mono" }, headers.flatMap(({ key, value, encoding }) => [
      element("dt", null, key), element("dd", null, value === null ? "null" : encoding === "base64" ? `base64: ${value}` : value)])));
}

/** A decoded key or value, with its schema and the reason why it could not be decoded. */
function payloadSection(title, part) {
  if (part.format === "null") {
    return element("section", null, element("h3", null, title), element("p", { class: "muted" }, "null"));
  }
  const pre = element("pre", null, typeof part.value === "string" ? part.value : JSON.stringify(part.value, null, 2));
  const copy = element("button", { class: "tight", type: "button", onclick: () => copyText(pre.textContent, title) }, "Copy");
  const schema = part.schema === null ? "" : `, schema ${part.schema.id}${part.schema.subject === null ? "" : ` (${part.schema.subject})`}`;
  return element("section", { class: "stack" }, element("h3", null, title),
    element("p", { class: "muted small" }, `${part.format}${schema}${part.truncated ? ", only the first bytes" : ""}`),
    part.error === null ? null : element("p", { class: "small" }, part.error),
    element("div", { class: "code", tabindex: "0", role: "region", "aria-label": title }, pre),
    element("div", { class: "fields" }, copy));
}

async function copyText(text, title) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${title} copied.`);
  } catch {
    announce("The browser does not allow copying here.");
  }
}
