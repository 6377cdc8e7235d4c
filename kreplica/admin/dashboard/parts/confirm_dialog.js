/** A confirmation dialog for actions without a preview. */

import { element } from "./elements.js";
import { dismissButton, openDialog } from "./dialogs.js";

/**
 * @param {{title: string, text: string, confirm: string, danger?: boolean}} question
 * @returns {Promise<boolean>}
 */
export async function confirmAction({ title, text, confirm, danger = false }) {
  const result = await openDialog(title, (close) => ({
    content: [
      element("p", null, text),
      element("div", { class: "buttons" }, dismissButton(close), element("button", { class: danger ? "primary danger" : "primary" }, confirm)),
    ],
    submit: () => close(true),
  }));
  return result === true;
}
