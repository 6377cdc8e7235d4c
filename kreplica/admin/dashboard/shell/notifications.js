/** Shows a message for some seconds and announces it to screen readers. */

import { element } from "../parts/elements.js";

const SHOWN_MS = 6000;

let timer = 0;

/** @param {string} text */
export function announce(text) {
  const notification = document.getElementById("notification");
  clearTimeout(timer);
  notification.replaceChildren(element("p", null, text));
  timer = setTimeout(() => notification.replaceChildren(), SHOWN_MS);
}
