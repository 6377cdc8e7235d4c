/** Dialogs: one at a time, closed with Escape; the focus returns to its previous element. */

import { element } from "./elements.js";

let dialogCount = 0;

/**
 * @param {string} title
 * @param {(close: (value: any) => void) => {content: any[], submit?: () => void}} build
 * @returns {Promise<any>} the value that closed it; null if the user cancelled it
 */
export function openDialog(title, build) {
  return new Promise((resolve) => {
    const headingId = `dialog-${(dialogCount += 1)}`;
    let value = null;
    const node = element("dialog", { "aria-labelledby": headingId });
    const { content, submit } = build((result) => {
      value = result;
      node.close();
    });
    const form = element("form", {
      method: "dialog",
      novalidate: !submit,
      onsubmit: (event) => {
        event.preventDefault();
        submit?.();
      },
    }, element("h2", { id: headingId }, title), content);
    node.append(form);
    node.addEventListener("close", () => {
      node.remove();
      resolve(value);
    });
    document.body.append(node);
    node.showModal();
  });
}

/** A button that closes a dialog without a result. @param {(value: null) => void} close */
export function dismissButton(close, text = "Cancel") {
  return element("button", { type: "button", onclick: () => close(null) }, text);
}
