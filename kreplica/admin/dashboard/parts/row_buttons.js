/** Buttons and links in the rows of a table. */

import { element } from "./elements.js";

/**
 * @param {(row: any) => [string, string|(() => any)][]} actionsOf  text, and an address or a click handler
 * @returns {(row: any) => import("./elements.js").Part}
 */
export function buttonsPart(actionsOf) {
  return (first) => {
    let actions = actionsOf(first);
    const nodes = actions.map(([text, action], number) => (typeof action === "string"
      ? element("a", { class: "button tight", href: action }, text)
      : element("button", { class: "tight", type: "button", onclick: () => actions[number][1]() }, text)));
    return {
      node: element("div", { class: "row-buttons" }, nodes),
      update(row) {
        actions = actionsOf(row);
      },
    };
  };
}
