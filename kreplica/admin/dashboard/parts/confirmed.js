/** A confirmation dialog for actions without a preview. */

import { element } from "./elements.js";
import { leaveButton, openDialog } from "./dialogs.js";

/**
 * @param {{title: string, text: string, confirm: string, danger?: boolean}} question
 * @returns {Promise<boolean>}
 */
export async function confirmed({ title, text, confirm, danger = false }) {
  const answer = await openDialog(title, (close) => ({
    content: [
      element("p", null, text),
      element("div", { class: "buttons" }, leaveButton(close), element("button", { class: danger ? "primary danger" : "primary" }, confirm)),
    ],
    submit: () => close(true),
  }));
  return answer === true;
}
