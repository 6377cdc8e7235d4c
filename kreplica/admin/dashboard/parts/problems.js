/** Shows a problem and its advice. */

import { Problem } from "../shell/api.js";
import { element } from "./elements.js";

/**
 * An area that shows the current problem and announces it to screen readers.
 *
 * @returns {{node: HTMLElement, show: (error: Error|null) => void}}
 */
export function problemPlace() {
  const node = element("div", { role: "alert" });
  let shown = "";
  return {
    node,
    show(error) {
      const text = error === null ? "" : `${error.message}`;
      if (text !== shown || error === null) {
        shown = text;
        node.replaceChildren(...(error === null ? [] : [problemBox(error)]));
      }
    },
  };
}

/** @param {Error} error */
export function problemBox(error) {
  if (!(error instanceof Problem)) {
    console.error(error);
  }
  const title = error instanceof Problem ? worded(error.title) : "Error in this page";
  return element("div", { class: "problem" },
    element("p", null, element("strong", null, title), ": ", error.message),
    ...faultsOf(error).map((fault) => element("p", { class: "small mono" }, fault)),
    error instanceof Problem && error.whatToDo ? element("p", null, error.whatToDo) : null);
}

/** Kafka's names of errors, in words. @param {string} title */
function worded(title) {
  return /^[A-Z_]+$/.test(title) ? title[0] + title.slice(1).toLowerCase().replaceAll("_", " ") : title;
}

function faultsOf(error) {
  const faults = error instanceof Problem ? error.document.errors : null;
  return Array.isArray(faults) ? faults.slice(0, 10).map((fault) => (typeof fault === "string" ? fault : JSON.stringify(fault))) : [];
}
