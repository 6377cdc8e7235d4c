/** Entries of the timeline as a list, the newest first. */

import { element } from "./elements.js";
import { clock, inline, instant } from "./format.js";

/**
 * @param {number} max  maximum number of entries
 * @param {boolean} whole  true if entries can be opened to show their details
 * @returns {{node: HTMLElement, begin: (entries: any[]) => void, append: (entries: any[]) => void, add: (entry: any) => void, size: () => number}}
 */
export function entryList(max, whole) {
  const list = element("ol", { class: "entries" });
  const empty = element("p", { class: "empty", hidden: true }, "Nothing yet.");
  const node = element("div", { class: "card flush" }, list, empty);
  const seen = new Map();

  function put(entry, place) {
    if (seen.has(entry.id)) {
      return;
    }
    const row = rowOf(entry, whole);
    seen.set(entry.id, row);
    list.insertBefore(row, place);
    empty.hidden = true;
  }

  function forgetOldest() {
    while (list.children.length > max) {
      const last = list.lastElementChild;
      seen.delete(last.dataset.id);
      last.remove();
    }
  }

  return {
    node,
    begin(entries) {
      seen.clear();
      list.replaceChildren();
      entries.forEach((entry) => put(entry, null));
      empty.hidden = entries.length > 0;
    },
    append(entries) {
      entries.forEach((entry) => put(entry, null));
    },
    add(entry) {
      if (entry && entry.id !== undefined) {
        put(entry, list.firstChild);
        forgetOldest();
      }
    },
    size: () => list.children.length,
  };
}

function rowOf(entry, whole) {
  const who = entry.controller_epoch ? `broker ${entry.broker_id}, controller epoch ${entry.controller_epoch}` : `broker ${entry.broker_id}`;
  const details = whole ? Object.entries(entry.details ?? {}) : [];
  return element("li", { "data-id": entry.id },
    element("time", { datetime: new Date(entry.at_ms).toISOString(), title: instant(entry.at_ms) }, clock(entry.at_ms)),
    element("span", { class: "chip" }, worded(entry.kind)),
    element("div", null, element("p", null, entry.text.charAt(0).toUpperCase() + entry.text.slice(1)), element("p", { class: "muted small" }, [subjectOf(entry), who].filter(Boolean).join(" · ")),
      details.length ? element("details", { class: "small" }, element("summary", null, "Details"),
        element("dl", { class: "facts" }, details.flatMap(([name, value]) => [element("dt", null, worded(name)), element("dd", { class: "mono" }, inline(value))]))) : null));
}

/** The subject, unless the text starts with it. */
function subjectOf({ subject, text }) {
  const words = subject === null || subject === undefined ? "" : inline(subject);
  return text.startsWith(words) ? "" : words;
}

/** @param {string} name  with underscores */
export function worded(name) {
  return String(name).replaceAll("_", " ");
}
