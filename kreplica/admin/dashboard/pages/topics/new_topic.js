/** A form that creates a topic. */

import { element } from "../../parts/elements.js";
import { pluralize } from "../../parts/format.js";
import { areValid, showFieldError, field, numberOf } from "../../parts/forms.js";
import { previewedWrite } from "../../parts/writes.js";
import { get, pathOf } from "../../shell/api.js";
import { pause } from "../../shell/streams.js";

const ATTEMPTS_MAX = 20;
const ATTEMPT_MS = 250;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Create a topic", ["#/topics", "Topics"]);
  const name = field({ label: "Name", name: "name", required: true, autocomplete: "off", spellcheck: "false", maxlength: 249,
    pattern: "\\s*[A-Za-z0-9._\\-]+\\s*", "data-invalid": "Use only letters, digits, dots, underscores and hyphens.", hint: "Letters, digits, dots, underscores and hyphens." });
  const partitions = field({ label: "Partitions", name: "partitions", type: "number", min: 1, hint: "Empty: the broker's default." });
  const replicationFactor = field({ label: "Replication factor", name: "copies", type: "number", min: 1, hint: "Empty: the broker's default." });
  const configs = field({ label: "Settings", name: "configs", tag: "textarea", rows: 4, spellcheck: "false",
    placeholder: "retention.ms=86400000\ncleanup.policy=compact", hint: "One per line: name=value. Other settings have the broker's defaults." });
  const topic = () => name.input.value.trim();
  const { nodes, confirm, submit } = previewedWrite({
    title: "",
    method: "POST",
    path: pathOf("topics"),
    form: {
      nodes: [name.node, element("div", { class: "pair" }, partitions.node, replicationFactor.node), configs.node],
      read() {
        const settings = settingsIn(configs);
        return !areValid(name, partitions, replicationFactor) || settings === null ? null
          : partOf(topic(), numberOf(partitions.input), numberOf(replicationFactor.input), settings);
      },
    },
    confirm: "Create",
    done: "",
    preview: (document) => (document.partitions
      ? element("p", null, `${pluralize(document.partitions, "partition")} with ${pluralize(document.replication_factor, "replica")} each.`) : null),
  }, async () => {
    await waitUntilVisible(topic(), page.signal);
    page.go(["topic", topic()]);
  });
  page.add(element("form", {
    class: "form card",
    onsubmit: (event) => {
      event.preventDefault();
      submit();
    },
  }, nodes, element("div", { class: "buttons" }, confirm, element("a", { class: "button quiet", href: "#/topics" }, "Cancel"))));
  name.input.focus();
}

function partOf(name, partitions, replicationFactor, settings) {
  const configs = Object.keys(settings).length ? settings : undefined;
  const body = { name, partitions, replication_factor: replicationFactor, configs };
  return {
    body,
    // Without the assignment, the broker would choose other replicas than in the preview.
    bodyOf: ({ assignment }) => (assignment ? { name, assignment, configs } : body),
    done: `The topic ${name} was created.`,
  };
}

/** A broker receives a new topic slightly after it is in ZooKeeper, so wait for it. */
async function waitUntilVisible(name, signal) {
  for (let attempt = 0; attempt < ATTEMPTS_MAX && !signal.aborted; attempt += 1) {
    const { topics } = await get(pathOf("topics"), { search: name }, signal);
    if (topics.some((topic) => topic.name === name)) {
      return;
    }
    await pause(ATTEMPT_MS, signal);
  }
}

/** @returns {Record<string, string>|null} null if a line is malformed */
function settingsIn(formField) {
  const settings = {};
  for (const line of formField.input.value.split("\n").map((text) => text.trim()).filter(Boolean)) {
    const [, name, value] = /^([^=\s]+)\s*=\s*(.*)$/.exec(line) ?? [];
    if (name === undefined) {
      showFieldError(formField, `“${line}”: expected name=value.`);
      return null;
    }
    settings[name] = value;
  }
  showFieldError(formField, "");
  return settings;
}
