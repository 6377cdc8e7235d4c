/** The details of one message: key, value, headers and metadata, each with a button that copies it. */

import { element } from "./elements.js";
import { bytes, dateTime } from "./format.js";
import { controlText, formatText } from "./message_columns.js";
import { announce } from "../shell/notifications.js";

/** @param {any} message @returns {HTMLElement} */
export function messageDetails(message) {
  const timestampType = String(message.timestamp_type ?? "create_time").replaceAll("_", " ");
  return element("div", { class: "message-details stack" },
    element("dl", { class: "facts" }, [
      ["Position", `partition ${message.partition}, offset ${message.offset}`],
      ["Time", `${dateTime(message.timestamp_ms)} (${timestampType})`],
      ["Size", bytes(message.size_bytes)],
      ...(message.control ? [["Marker", controlText(message.control)]] : []),
    ].flatMap(([term, text]) => [element("dt", null, term), element("dd", null, text)])),
    payloadSection("Key", message.key),
    payloadSection("Value", message.value),
    headersSection(message.headers ?? []),
    element("div", { class: "fields" }, copyButton("Copy the message", "Message", JSON.stringify(message, null, 2))));
}

/** A decoded key or value, with its schema and the reason why it could not be decoded. */
function payloadSection(title, part) {
  if (part.format === "null") {
    return element("section", null, element("h3", null, title), element("p", { class: "muted" }, "null"));
  }
  const text = typeof part.value === "string" ? part.value : JSON.stringify(part.value, null, 2);
  return element("section", { class: "stack" },
    element("div", { class: "payload-head" }, element("h3", null, title),
      element("span", { class: "muted small" }, `${formatText(part)}, ${bytes(part.size_bytes)}${part.truncated ? ", only the first bytes" : ""}`),
      copyButton(`Copy the ${title.toLowerCase()}`, title, text)),
    part.error === null ? null : element("p", { class: "wrong small" }, part.error),
    element("div", { class: "code", tabindex: "0", role: "region", "aria-label": title }, element("pre", null, text)));
}

function headersSection(headers) {
  return element("section", null, element("h3", null, "Headers"), headers.length === 0
    ? element("p", { class: "muted" }, "none")
    : element("dl", { class: "facts mono" }, headers.flatMap(({ key, value, encoding }) => [
      element("dt", null, key), element("dd", null, value === null ? "null" : encoding === "base64" ? `base64: ${value}` : value)])));
}

function copyButton(label, title, text) {
  return element("button", { class: "tight", type: "button", "aria-label": label, onclick: () => copyText(text, title) }, "Copy");
}

async function copyText(text, title) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${title} copied.`);
  } catch {
    announce("The browser does not allow copying here.");
  }
}
