/** Links to the parts of a page. */

import { element } from "./elements.js";

/**
 * @param {string} label
 * @param {[string, string, boolean][]} entries  address, title, and whether it is shown
 */
export function tabs(label, entries) {
  return element("nav", { class: "tabs", "aria-label": label }, entries.map(([address, title, current]) =>
    element("a", { href: address, "aria-current": current ? "page" : null }, title)));
}
