/** A form that creates a topic. */

import { element } from "../parts/elements.js";
import { counted } from "../parts/format.js";
import { complain, field, numberIn } from "../parts/forms.js";
import { confirmWrite } from "../parts/writes.js";
import { get, pathOf } from "../shell/api.js";
import { pause } from "../shell/streams.js";

const TRIES_MAX = 20;
const TRY_MS = 250;

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  page.title("Create a topic", ["#/topics", "Topics"]);
  const name = field({ label: "Name", name: "name", required: true, autocomplete: "off", spellcheck: "false", maxlength: 249,
    hint: "Letters, digits, dots, underscores and hyphens." });
  const partitions = field({ label: "Partitions", name: "partitions", type: "number", min: 1, hint: "Empty: the broker's default." });
  const copies = field({ label: "Replication factor", name: "copies", type: "number", min: 1, hint: "Empty: the broker's default." });
  const configs = field({ label: "Settings", name: "configs", tag: "textarea", rows: 4, spellcheck: "false",
    placeholder: "retention.ms=86400000\ncleanup.policy=compact", hint: "One per line: name=value. Other settings have the broker's values." });
  const form = element("form", {
    class: "form card",
    onsubmit: async (event) => {
      event.preventDefault();
      const settings = settingsIn(configs);
      const wanted = name.input.value.trim();
      if (settings && (await created(wanted, numberIn(partitions.input), numberIn(copies.input), settings))) {
        await published(wanted, page.signal);
        page.go(["topic", wanted]);
      }
    },
  }, name.node, element("div", { class: "pair" }, partitions.node, copies.node), configs.node,
  element("div", { class: "buttons" }, element("button", { class: "primary" }, "Preview"), element("a", { class: "button quiet", href: "#/topics" }, "Cancel")));
  page.add(form);
  name.input.focus();
}

function created(name, partitions, copies, configs) {
  const body = { name, partitions, replication_factor: copies, configs: Object.keys(configs).length ? configs : undefined };
  return confirmWrite({
    title: `Create ${name}?`,
    method: "POST",
    path: pathOf("topics"),
    body,
    confirm: "Create",
    done: `${name} is created.`,
    preview: (document) => (document.partitions
      ? element("p", null, `${counted(document.partitions, "partition")} with ${counted(document.replication_factor, "replica")} each.`) : null),
  });
}

/** A new topic reaches this broker slightly after ZooKeeper, so wait for it. */
async function published(name, signal) {
  for (let tries = 0; tries < TRIES_MAX && !signal.aborted; tries += 1) {
    const { topics } = await get(pathOf("topics"), { search: name }, signal);
    if (topics.some((topic) => topic.name === name)) {
      return;
    }
    await pause(TRY_MS, signal);
  }
}

/** @returns {Record<string, string>|null} null if a line is malformed */
function settingsIn(made) {
  const found = {};
  for (const line of made.input.value.split("\n").map((text) => text.trim()).filter(Boolean)) {
    const [, name, value] = /^([^=\s]+)\s*=\s*(.*)$/.exec(line) ?? [];
    if (name === undefined) {
      complain(made, `“${line}” is not name=value.`);
      made.input.focus();
      return null;
    }
    found[name] = value;
  }
  complain(made, "");
  return found;
}
