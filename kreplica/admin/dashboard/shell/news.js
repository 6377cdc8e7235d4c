/** Shows a message for a while and announces it to screen readers. */

import { element } from "../parts/elements.js";

const SHOWN_MS = 6000;

let timer = 0;

/** @param {string} text */
export function announce(text) {
  const place = document.getElementById("news");
  clearTimeout(timer);
  place.replaceChildren(element("p", null, text));
  timer = setTimeout(() => place.replaceChildren(), SHOWN_MS);
}
