/** A form that produces a message. */

import { element, show } from "../../parts/elements.js";
import { checkbox, field, numberOf, selectField, showFieldError } from "../../parts/forms.js";
import { readFormats } from "../../parts/message_formats.js";
import { partitionChoices } from "../../parts/partition_choices.js";
import { problemArea } from "../../parts/problems.js";
import { parseJson, pathOf, request } from "../../shell/api.js";
import { announce } from "../../shell/notifications.js";
import { href } from "../../shell/routes.js";

/** Formats whose content is the text of the field; the content of all others is JSON. */
const TEXTS = ["text", "base64", "hex"];

/** @param {import("../../shell/page.js").Page} page @param {string} topic @param {number} partitions */
export async function produce(page, topic, partitions) {
  const formats = (await readFormats(page.signal)).filter((format) => format.can_encode);
  const partition = selectField({ label: "Partition", name: "partition" }, partitionChoices(partitions, "Chosen by key"));
  const key = field({ label: "Key", name: "key", autocomplete: "off", spellcheck: "false" });
  const noKey = checkbox({ label: "No key (null)", checked: true });
  const keyFormat = formatChoice("Key", formats);
  const value = field({ label: "Value", name: "value", tag: "textarea", rows: 8, spellcheck: "false" });
  const tombstone = checkbox({ label: "No value (null, a tombstone)" });
  const valueFormat = formatChoice("Value", formats);
  const headers = field({ label: "Headers", name: "headers", tag: "textarea", rows: 2, spellcheck: "false", placeholder: "trace-id: 42", hint: "One per line: name: value." });
  const problem = problemArea();
  const outcome = element("p", { hidden: true });
  key.input.addEventListener("input", () => {
    noKey.input.checked = false;
  });

  const body = () => ({
    partition: partition.input.value === "" ? undefined : Number(partition.input.value),
    key: noKey.input.checked ? null : contentOf(keyFormat, key),
    value: tombstone.input.checked ? null : contentOf(valueFormat, value),
    key_format: noKey.input.checked ? undefined : keyFormat.format(),
    value_format: tombstone.input.checked ? undefined : valueFormat.format(),
    key_schema: noKey.input.checked ? undefined : keyFormat.schema(),
    value_schema: tombstone.input.checked ? undefined : valueFormat.schema(),
    headers: headersIn(headers),
  });
  const send = async (dryRun) => {
    problem.show(null);
    try {
      const message = body();
      if (message.headers === null || message.key === undefined || message.value === undefined) {
        return;
      }
      const { document } = await request("POST", pathOf("topics", topic, "messages"), { body: message, dryRun });
      showOutcome(outcome, topic, document, dryRun);
    } catch (error) {
      problem.show(error);
    }
  };
  page.add(element("form", {
    class: "form card",
    onsubmit: (event) => {
      event.preventDefault();
      send(event.submitter?.value === "check");
    },
  },
  element("div", { class: "pair" }, partition.node, keyFormat.node, valueFormat.node), keyFormat.schemaNode, key.node, noKey.node,
  valueFormat.schemaNode, value.node, tombstone.node, headers.node,
  problem.node, outcome,
  element("div", { class: "buttons" }, element("button", { class: "primary" }, "Produce"), element("button", { value: "check" }, "Check only"))));
}

/** A choice of an encoder, and the fields of its schema. @param {string} part @param {import("../../parts/message_formats.js").Format[]} formats */
function formatChoice(part, formats) {
  const names = [...new Set(["text", "json", "base64", ...formats.map(({ name }) => name)])];
  const choice = selectField({ label: `${part} is`, name: `${part.toLowerCase()}_format` }, names.map((name) => [name, name]));
  const subject = field({ label: `Schema subject of the ${part.toLowerCase()}`, name: "subject", autocomplete: "off", spellcheck: "false" });
  const version = field({ label: "Version", name: "version", type: "number", min: 1, placeholder: "latest" });
  const message = field({ label: "Message", name: "message", autocomplete: "off", spellcheck: "false", placeholder: "the first one in the file" });
  const schemaNode = element("div", { class: "pair", hidden: true }, subject.node, version.node, message.node);
  const needsSchema = () => formats.some(({ name, needs_schema: needs }) => needs && name === choice.input.value);
  choice.input.addEventListener("change", () => {
    show(schemaNode, needsSchema());
    show(message.node, choice.input.value === "protobuf");
  });
  return {
    node: choice.node,
    schemaNode,
    format: () => choice.input.value,
    schema: () => (needsSchema()
      ? { subject: subject.input.value.trim(), version: numberOf(version.input), message: (choice.input.value === "protobuf" && message.input.value.trim()) || undefined }
      : undefined),
  };
}

/** The text of a field, or its JSON; undefined, with an error at the field, if it is not JSON. */
function contentOf(choice, input) {
  showFieldError(input, "");
  if (TEXTS.includes(choice.format())) {
    return input.input.value;
  }
  try {
    return parseJson(input.input.value);
  } catch (error) {
    showFieldError(input, `Invalid JSON: ${error.message}.`);
    return undefined;
  }
}

function showOutcome(outcome, topic, { partition, offset }, dryRun) {
  const text = dryRun
    ? `This message would be accepted${partition === undefined || partition === null ? "" : ` by partition ${partition}`}. Nothing was written.`
    : `Written to partition ${partition} at offset ${offset}.`;
  announce(text, { onPage: true });
  outcome.hidden = false;
  outcome.replaceChildren(text, ...(dryRun ? [] : [" ", element("a", { href: href(["messages", topic], { partition, order: "oldest", from: `offset:${offset}` }) }, "Show it")]));
}

/** @returns {{key: string, value: string, encoding: string}[]|null} null if a line is malformed */
function headersIn(formField) {
  const headers = [];
  for (const line of formField.input.value.split("\n").filter((text) => text.trim())) {
    const [, key, value] = /^\s*([^:]+?)\s*:\s*(.*)$/.exec(line) ?? [];
    if (key === undefined) {
      showFieldError(formField, `“${line}”: expected name: value.`);
      return null;
    }
    headers.push({ key, value, encoding: "utf8" });
  }
  showFieldError(formField, "");
  return headers;
}
