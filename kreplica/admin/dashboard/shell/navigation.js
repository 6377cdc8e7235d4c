/** The navigation bar. */

import { element, set, svg } from "../parts/elements.js";

/** Name in the address, title, shortcut after `g`, and path of a 16 x 16 icon. */
export const ENTRIES = [
  ["", "Overview", "o", "M2 13V8M6 13V4M10 13V6M14 13V2"],
  ["brokers", "Brokers", "b", "M2 3h12v4H2zM2 9h12v4H2zM5 5h.01M5 11h.01"],
  ["topics", "Topics", "t", "M2 4h12M2 8h9M2 12h6"],
  ["messages", "Messages", "m", "M2 3h12v8H8l-3 3v-3H2z"],
  ["groups", "Groups", "u", "M6 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM2 13c0-4 8-4 8 0M11 8a2 2 0 1 0-1-3.6M11.5 10c1.7.2 2.5 1.300 2.500 3"],
  ["clients", "Clients", "c", "M2 3h12v7H2zM6 13h4M8 10v3M4.500 7.500l2-2 2 1.500 3-3"],
  ["plans", "Plans", "p", "M3 3h5v4H3zM8 9h5v4H8zM5 7v4h3"],
  ["why", "Why", "w", "M5.500 6a2.500 2.500 0 1 1 3.600 2.200c-.8.4-1.100.8-1.100 1.600M8 12.500h.01"],
  ["acls", "Access", "a", "M8 2l5 2v4c0 3-2 5-5 6-3-1-5-3-5-6V4zM6 8l1.500 1.500L10.500 6.500"],
  ["users", "Users", "s", "M8 7.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM3 14c0-5 10-5 10 0"],
  ["quotas", "Quotas", "q", "M2.500 12a6 6 0 1 1 11 0M8 11l3-4M8 11h.01"],
  ["timeline", "Timeline", "l", "M8 2v12M8 4h5M8 8H3M8 12h5"],
];

/** The entry that is highlighted for each page without its own entry. */
const PARENTS = { broker: "brokers", topic: "topics", group: "groups", plan: "plans", client: "clients", subscription: "clients" };

export function drawNavigation() {
  document.getElementById("pages").append(element("ul", null, ENTRIES.map(([name, title, , icon]) =>
    element("li", null, element("a", { href: `#/${name}`, "data-page": name },
      svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", fill: "none", stroke: "currentColor", "stroke-width": "1.500",
        "stroke-linecap": "round", "stroke-linejoin": "round" }, svg("path", { d: icon })), title)))));
}

/** @param {string} name  the first part of the address */
export function markCurrent(name) {
  const current = PARENTS[name] ?? name;
  for (const link of document.querySelectorAll("#pages a")) {
    set(link, "aria-current", link.dataset.page === current ? "page" : null);
    if (link.dataset.page === current) {
      scrollToMiddle(document.getElementById("pages"), link);
    }
  }
}

/** Scroll only the bar: `scrollIntoView` would also scroll the page. */
function scrollToMiddle(bar, link) {
  const [outer, inner] = [bar.getBoundingClientRect(), link.getBoundingClientRect()];
  bar.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
}
