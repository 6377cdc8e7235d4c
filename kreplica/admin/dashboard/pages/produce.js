/** A form that produces a message. */

import { element } from "../parts/elements.js";
import { checkbox, selectField, showFieldError, field } from "../parts/forms.js";
import { partitionChoices } from "../parts/partition_choices.js";
import { problemArea } from "../parts/problems.js";
import { request, pathOf } from "../shell/api.js";
import { announce } from "../shell/notifications.js";
import { href } from "../shell/routes.js";

const FORMATS = [["text", "Text"], ["json", "JSON"], ["base64", "Base64"], ["hex", "Hexadecimal"]];

/** @param {import("../shell/page.js").Page} page @param {string} topic @param {number} partitions */
export function produce(page, topic, partitions) {
  const partition = selectField({ label: "Partition", name: "partition" }, partitionChoices(partitions, "By the key"));
  const key = field({ label: "Key", name: "key", autocomplete: "off", spellcheck: "false" });
  const noKey = checkbox({ label: "No key (null)", checked: true });
  const keyFormat = selectField({ label: "Key is", name: "key_format" }, FORMATS);
  const value = field({ label: "Value", name: "value", tag: "textarea", rows: 8, spellcheck: "false" });
  const tombstone = checkbox({ label: "No value (null, a tombstone)" });
  const valueFormat = selectField({ label: "Value is", name: "value_format" }, FORMATS);
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
    key_format: noKey.input.checked ? undefined : keyFormat.input.value,
    value_format: tombstone.input.checked ? undefined : valueFormat.input.value,
    headers: headersIn(headers),
  });
  const send = async (dryRun) => {
    problem.show(null);
    try {
      const message = body();
      if (message.headers === null) {
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
  element("div", { class: "pair" }, partition.node, keyFormat.node, valueFormat.node), key.node, noKey.node, value.node, tombstone.node, headers.node,
  problem.node, outcome,
  element("div", { class: "buttons" }, element("button", { class: "primary" }, "Produce"), element("button", { value: "check" }, "Check only"))));
}

/** The text of a field, or its JSON. */
function contentOf(format, input) {
  return format.input.value === "json" ? JSON.parse(input.input.value) : input.input.value;
}

function showOutcome(outcome, topic, { partition, offset }, dryRun) {
  const text = dryRun
    ? `This message would be accepted${partition === undefined || partition === null ? "" : ` by partition ${partition}`}. Nothing was written.`
    : `Written to partition ${partition} at offset ${offset}.`;
  announce(text);
  outcome.hidden = false;
  outcome.replaceChildren(text, ...(dryRun ? [] : [" ", element("a", { href: href(["messages", topic], { partition, from: `offset:${offset}` }) }, "Show it")]));
}

/** @returns {{key: string, value: string, encoding: string}[]|null} null if a line is malformed */
function headersIn(formField) {
  const headers = [];
  for (const line of formField.input.value.split("\n").filter((text) => text.trim())) {
    const [, key, value] = /^\s*([^:]+?)\s*:\s*(.*)$/.exec(line) ?? [];
    if (key === undefined) {
      showFieldError(formField, `“${line}” is not name: value.`);
      return null;
    }
    headers.push({ key, value, encoding: "utf8" });
  }
  showFieldError(formField, "");
  return headers;
}
