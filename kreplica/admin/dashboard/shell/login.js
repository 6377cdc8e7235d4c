/** Where the API wants a token. */

import { element } from "../parts/elements.js";
import { leaveButton, openDialog } from "../parts/dialogs.js";
import { field } from "../parts/forms.js";
import { keepToken, token } from "./api.js";

/** One question, however many requests wait for its answer. @type {Promise<string|null>|null} */
let asking = null;

/** True if the user continued without a token, so that the dialog does not return every second. */
let declined = false;

/** @returns {Promise<string|null>} */
export function askForToken() {
  if (declined) {
    return Promise.resolve(null);
  }
  asking ??= asked().finally(() => {
    asking = null;
  });
  return asking;
}

/** Opens the login dialog again. */
function offerLater() {
  const button = element("button", { class: "quiet tight", type: "button", onclick: () => location.reload() }, "Log in");
  document.getElementById("tools").prepend(button);
}

function asked() {
  const wrong = token() !== null;
  keepToken(null);
  return openDialog("This cluster requires a token", (close) => {
    const entry = field({
      label: "Token", name: "token", type: "password", autocomplete: "current-password", required: true,
      hint: "The content of kreplica.admin.token.file. It is stored until this tab is closed.",
    });
    return {
      content: [
        wrong ? element("p", { class: "problem" }, "The last token was not accepted.") : null,
        entry.node,
        element("div", { class: "buttons" }, leaveButton(close, "Continue without"), element("button", { class: "primary" }, "Use it")),
      ],
      submit() {
        const text = entry.input.value.trim();
        if (text) {
          keepToken(text);
          close(text);
        }
      },
    };
  }).then((text) => {
    declined = text === null;
    if (declined) {
      offerLater();
    }
    return text;
  });
}
