/** The login, if the API requires one, and the user in the header of the page. */

import { element, set } from "../parts/elements.js";
import { dismissButton, openDialog } from "../parts/dialogs.js";
import { field } from "../parts/forms.js";
import { problemArea } from "../parts/problems.js";
import { request, get, openSession, pathOf } from "./api.js";

/** The open dialog, shared by all requests that wait for the login. @type {Promise<boolean>|null} */
let openLogin = null;

/** True if the user continued without a login, so that the next request does not open the dialog again. */
let isDeclined = false;

/** The user and the buttons in the header. @type {HTMLElement|null} */
let account = null;

/** @param {string[]} accepted  ways to authenticate: `token`, `basic`, `bearer` @returns {Promise<boolean>} */
export function requestLogin(accepted) {
  if (isDeclined) {
    return Promise.resolve(false);
  }
  openLogin ??= openLoginDialog(accepted).finally(() => {
    openLogin = null;
  });
  return openLogin;
}

/** Shows the user in the header, and a button that ends the session. */
export async function showAccount() {
  const session = await get(pathOf("session")).catch(() => null);
  if (session && session.method !== "none") {
    const name = session.is_super ? "Administrator (token)" : session.user.replace(/^User:/, "");
    const button = element("button", { class: "quiet tight", type: "button", onclick: logOut }, "Log out");
    // A client certificate has no session to end.
    replaceAccount(element("span", { class: "account", title: session.user }, name), session.method === "session" ? button : null);
  }
}

async function logOut() {
  await request("DELETE", pathOf("session"));
  location.reload();
}

function replaceAccount(...children) {
  account?.remove();
  account = element("div", { class: "top-tools" }, children);
  document.getElementById("tools").prepend(account);
}

/** Shows a button that reloads the page, which opens the login dialog again. */
function showLoginButton() {
  replaceAccount(element("button", { class: "quiet tight", type: "button", onclick: () => location.reload() }, "Log in"));
}

function openLoginDialog(accepted) {
  const withPassword = accepted.includes("basic");
  const withBearer = accepted.includes("bearer");
  return openDialog("This cluster requires a login", (close) => {
    const user = field({ label: "User", name: "username", autocomplete: "username", spellcheck: "false" });
    const password = field({ label: "Password", name: "password", type: "password", autocomplete: "current-password" });
    const token = field({
      label: "Token", name: "token", type: "password", autocomplete: "off",
      hint: withBearer
        ? "A token (JWT) of the authorization server, or the content of kreplica.admin.token.file."
        : "The content of kreplica.admin.token.file.",
    });
    const problem = problemArea();
    const confirm = element("button", { class: "primary" }, "Log in");
    const fields = withPassword
      ? [user.node, password.node, element("details", null, element("summary", null, withBearer ? "Use a token" : "Use the token"), token.node)]
      : [token.node];
    return {
      content: [...fields, problem.node, element("div", { class: "buttons" }, dismissButton(close, "Continue without"), confirm)],
      async submit() {
        const text = token.input.value.trim();
        if (!text && !(withPassword && user.input.value && password.input.value)) {
          return;
        }
        set(confirm, "disabled", true);
        try {
          await openSession(text ? { token: text } : { user: user.input.value, password: password.input.value });
          close(true);
        } catch (error) {
          problem.show(error);
          set(confirm, "disabled", false);
        }
      },
    };
  }).then((done) => {
    isDeclined = done !== true;
    if (isDeclined) {
      showLoginButton();
    } else {
      showAccount();
    }
    return !isDeclined;
  });
}
