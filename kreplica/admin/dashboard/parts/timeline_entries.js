/** Entries of the timeline as a list, the newest first. */

import { element } from "./elements.js";
import { shortTime, inlineJson, dateTime, withoutUnderscores } from "./format.js";

/**
 * @param {number} max  maximum number of entries
 * @param {boolean} isExpandable  true to offer the details of each entry
 * @returns {{node: HTMLElement, replace: (entries: any[]) => void, append: (entries: any[]) => void, add: (entry: any) => void, size: () => number}}
 */
export function entryList(max, isExpandable) {
  const list = element("ol", { class: "entries" });
  const empty = element("p", { class: "empty", hidden: true }, "No entries yet.");
  const node = element("div", { class: "card flush" }, list, empty);
  const seen = new Map();

  function insert(entry, before) {
    if (seen.has(entry.id)) {
      return;
    }
    const row = rowOf(entry, isExpandable);
    seen.set(entry.id, row);
    list.insertBefore(row, before);
    empty.hidden = true;
  }

  function removeOldest() {
    while (list.children.length > max) {
      const last = list.lastElementChild;
      seen.delete(last.dataset.id);
      last.remove();
    }
  }

  return {
    node,
    replace(entries) {
      seen.clear();
      list.replaceChildren();
      entries.forEach((entry) => insert(entry, null));
      empty.hidden = entries.length > 0;
    },
    append(entries) {
      entries.forEach((entry) => insert(entry, null));
    },
    add(entry) {
      if (entry && entry.id !== undefined) {
        insert(entry, list.firstChild);
        removeOldest();
      }
    },
    size: () => list.children.length,
  };
}

function rowOf(entry, isExpandable) {
  const source = entry.controller_epoch ? `broker ${entry.broker_id}, controller epoch ${entry.controller_epoch}` : `broker ${entry.broker_id}`;
  const details = isExpandable ? Object.entries(entry.details ?? {}) : [];
  return element("li", { "data-id": entry.id },
    element("time", { datetime: new Date(entry.at_ms).toISOString(), title: dateTime(entry.at_ms) }, shortTime(entry.at_ms)),
    element("span", { class: "chip" }, withoutUnderscores(entry.kind)),
    element("div", null, element("p", null, entry.text.charAt(0).toUpperCase() + entry.text.slice(1)), element("p", { class: "muted small" }, [subjectOf(entry), source].filter(Boolean).join(" · ")),
      details.length ? element("details", { class: "small" }, element("summary", null, "Details"),
        element("dl", { class: "facts" }, details.flatMap(([name, value]) => [element("dt", null, withoutUnderscores(name)), element("dd", { class: "mono" }, inlineJson(value))]))) : null));
}

/** The subject, unless the text starts with it. */
function subjectOf({ subject, text }) {
  const label = subject === null || subject === undefined ? "" : inlineJson(subject);
  return text.startsWith(label) ? "" : label;
}
