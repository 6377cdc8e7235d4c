/** Shows a message for some seconds and announces it to screen readers. */

import { element } from "../parts/elements.js";

const SHOWN_MS = 6000;

let timer = 0;
let isKept = false;

/** @param {string} text @param {{onPage?: boolean}} [options]  `onPage`: the page shows it too, so it is only announced */
export function announce(text, { onPage = false } = {}) {
  const notification = document.getElementById("notification");
  clearTimeout(timer);
  notification.replaceChildren(element("p", { class: onPage ? "unseen" : null }, text));
  timer = setTimeout(clear, SHOWN_MS);
}

/** Keep the message on the next page, which the page opens after the announced action. */
export function keepNotification() {
  isKept = true;
}

/** Remove the message of the page that the user has left. */
export function leavePage() {
  if (!isKept) {
    clear();
  }
  isKept = false;
}

function clear() {
  clearTimeout(timer);
  document.getElementById("notification").replaceChildren();
}
