/** A table of messages, and a dialog with one complete message. */

import { element, set, setText } from "./elements.js";
import { bytes, count, dateTime, prettyJson } from "./format.js";
import { dismissButton, openDialog } from "./dialogs.js";
import { selectField } from "./forms.js";
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
      const text = message[name];
      const placeholder = text === null ? "null" : text === "" ? "empty" : null;
      set(node, "class", `payload ${name}${placeholder === null ? "" : " absent"}`);
      const prefix = message[`${name}_encoding`] === "base64" ? "base64: " : "";
      setText(node, placeholder ?? prefix + text.slice(0, SHOWN_CHARACTERS));
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
      payloadSection("Key", message.key, message.key_encoding),
      payloadSection("Value", message.value, message.value_encoding),
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

/** A key or a value in several representations: plain text, JSON and base64. */
function payloadSection(title, text, encoding) {
  if (text === null) {
    return element("section", null, element("h3", null, title), element("p", { class: "muted" }, "null"));
  }
  const representations = representationsOf(text, encoding);
  const pre = element("pre", null, representations[0][1]);
  const select = selectField({ label: `${title} as` }, representations.map(([name], index) => [String(index), name]));
  select.input.addEventListener("change", () => setText(pre, representations[Number(select.input.value)][1]));
  const copy = element("button", { class: "tight", type: "button", onclick: () => copyText(pre.textContent, title) }, "Copy");
  return element("section", { class: "stack" }, element("h3", null, title),
    element("div", { class: "code", tabindex: "0", role: "region", "aria-label": title }, pre),
    element("div", { class: "fields" }, select.node, copy));
}

async function copyText(text, title) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${title} copied.`);
  } catch {
    announce("The browser does not allow copying here.");
  }
}

/** @returns {[string, string][]} name and text of each representation, the most readable first */
function representationsOf(text, encoding) {
  if (encoding === "base64") {
    return [["base64", text], ["hexadecimal", hexadecimal(text)]];
  }
  const json = prettyJson(text);
  return [...(json === null ? [] : [["JSON", json]]), ["text", text], ["base64", base64(text)]];
}

function hexadecimal(text) {
  return [...atob(text)].map((character) => character.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
}

function base64(text) {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}
