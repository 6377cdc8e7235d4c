/** Users with passwords (SCRAM). */

import { element, set } from "../parts/elements.js";
import { leaveButton, openDialog } from "../parts/dialogs.js";
import { choice, complain, field } from "../parts/forms.js";
import { problemPlace } from "../parts/problems.js";
import { buttonsPart } from "../parts/row_buttons.js";
import { table } from "../parts/tables.js";
import { confirmWrite } from "../parts/writes.js";
import { ask, get, pathOf } from "../shell/api.js";
import { announce } from "../shell/news.js";
import { href } from "../shell/routes.js";

const PERIOD_MS = 5000;
const MECHANISMS = [["SCRAM-SHA-512", "SCRAM-SHA-512"], ["SCRAM-SHA-256", "SCRAM-SHA-256"]];

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  page.title("Users");
  let again = () => {};
  const then = async (done) => (await done) && again();
  page.actions.append(element("button", { type: "button", class: "primary", onclick: () => then(setPassword(null)) }, "Create user"));
  const list = table({
    caption: "Users",
    keyOf: ({ user }) => user,
    empty: "No user has a password. Users of PLAIN and of client certificates are not listed.",
    columns: [
      { header: "User", names: true, text: ({ user }) => user },
      { header: "Mechanisms", text: ({ mechanisms }) => mechanisms.map(({ mechanism, iterations }) => `${mechanism} (${iterations})`).join(", ") },
      { header: "(Actions)", className: "cell-actions", part: buttonsPart(({ user }) => [
        ["Access", href(["acls"], { principal: `User:${user}` })],
        ["Change password", () => then(setPassword(user))],
        ["Delete", () => then(deleteUser(user))],
      ]) },
    ],
  });
  page.add(element("div", { class: "stack" }, list.node));
  again = page.poll(PERIOD_MS, async () => {
    list.update((await get(pathOf("users"), { limit: 1000 }, page.signal)).users);
  });
}

/** @param {string|null} known  user whose password changes; null for a new user */
function setPassword(known) {
  return openDialog(known === null ? "Create a user" : `Change the password of ${known}`, (close) => {
    const user = field({ label: "User", name: "user", autocomplete: "off", spellcheck: "false", required: true });
    const password = field({ label: "New password", name: "password", type: "password", autocomplete: "new-password", required: true });
    const repeated = field({ label: "Repeat the password", name: "repeated", type: "password", autocomplete: "new-password", required: true });
    const mechanism = choice({ label: "Mechanism", name: "mechanism" }, MECHANISMS);
    const problem = problemPlace();
    const confirm = element("button", { class: "primary" }, known === null ? "Create" : "Change");
    return {
      content: [
        known === null ? user.node : null, password.node, repeated.node, mechanism.node, problem.node,
        element("div", { class: "buttons" }, leaveButton(close), confirm),
      ],
      async submit() {
        const name = known ?? user.input.value.trim();
        const differs = password.input.value !== repeated.input.value;
        complain(repeated, differs ? "The passwords differ." : "");
        if (differs || !name || !password.input.value) {
          return;
        }
        set(confirm, "disabled", true);
        try {
          await ask("PUT", pathOf("users", name), { body: { password: password.input.value, mechanism: mechanism.input.value } });
          announce(known === null ? `The user ${name} is created.` : `The password of ${name} is changed.`);
          close(true);
        } catch (error) {
          problem.show(error);
          set(confirm, "disabled", false);
        }
      },
    };
  });
}

function deleteUser(user) {
  return confirmWrite({
    title: `Delete ${user}?`,
    explain: "The user can no longer log in. Open connections continue until they authenticate again. ACLs remain.",
    method: "DELETE",
    path: pathOf("users", user),
    confirm: "Delete",
    danger: true,
    typed: user,
    done: `The user ${user} is deleted.`,
  });
}
