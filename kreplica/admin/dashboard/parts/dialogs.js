/** Dialogs: one at a time, closed with Escape; the focus returns to its previous element. */

import { element } from "./elements.js";

let numbered = 0;

/**
 * @param {string} title
 * @param {(close: (value: any) => void) => {content: any[], submit?: () => void}} build
 * @returns {Promise<any>} the value that closed it; null if the user cancelled it
 */
export function openDialog(title, build) {
  return new Promise((resolve) => {
    const heading = `dialog-${(numbered += 1)}`;
    let value = null;
    const node = element("dialog", { "aria-labelledby": heading });
    const { content, submit } = build((given) => {
      value = given;
      node.close();
    });
    const form = element("form", {
      method: "dialog",
      novalidate: !submit,
      onsubmit: (event) => {
        event.preventDefault();
        submit?.();
      },
    }, element("h2", { id: heading }, title), content);
    node.append(form);
    node.addEventListener("close", () => {
      node.remove();
      resolve(value);
    });
    document.body.append(node);
    node.showModal();
  });
}

/** The button that cancels a dialog. @param {(value: null) => void} close */
export function leaveButton(close, text = "Cancel") {
  return element("button", { type: "button", onclick: () => close(null) }, text);
}
