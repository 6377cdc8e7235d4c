/** Shows a problem and its advice. */

import { Problem } from "../shell/api.js";
import { explanationPage } from "../shell/routes.js";
import { element } from "./elements.js";

/**
 * An area that shows the current problem and announces it to screen readers.
 *
 * @returns {{node: HTMLElement, show: (error: Error|null) => void}}
 */
export function problemArea() {
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
  const title = error instanceof Problem ? readableTitle(error.title) : "Error in this page";
  return element("div", { class: "problem" },
    element("p", null, element("strong", null, title), ": ", error.message),
    ...errorLines(error).map((line) => element("p", { class: "small mono" }, line)),
    error instanceof Problem && error.whatToDo ? element("p", null, error.whatToDo) : null,
    error instanceof Problem && error.document.why ? element("p", null, element("a", { href: explanationPage(error.document.why) }, "Show the diagnosis")) : null);
}

/** The name of a Kafka error in lower case, without underscores. @param {string} title */
function readableTitle(title) {
  return /^[A-Z_]+$/.test(title) ? title[0] + title.slice(1).toLowerCase().replaceAll("_", " ") : title;
}

function errorLines(error) {
  const errors = error instanceof Problem ? error.document.errors : null;
  return Array.isArray(errors) ? errors.slice(0, 10).map((line) => (typeof line === "string" ? line : JSON.stringify(line))) : [];
}
