/** Users with passwords (SCRAM). */

import { element, set } from "../../parts/elements.js";
import { dismissButton, openDialog } from "../../parts/dialogs.js";
import { selectField, showFieldError, field } from "../../parts/forms.js";
import { problemArea } from "../../parts/problems.js";
import { buttonsPart } from "../../parts/row_buttons.js";
import { table } from "../../parts/tables.js";
import { confirmWrite } from "../../parts/writes.js";
import { request, get, pathOf } from "../../shell/api.js";
import { announce } from "../../shell/notifications.js";
import { href } from "../../shell/routes.js";

const PERIOD_MS = 5000;
const MECHANISMS = [["SCRAM-SHA-512", "SCRAM-SHA-512"], ["SCRAM-SHA-256", "SCRAM-SHA-256"]];

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Users");
  let refresh = () => {};
  const refreshAfter = async (change) => (await change) && refresh();
  page.actions.append(element("button", { type: "button", class: "primary", onclick: () => refreshAfter(openPasswordDialog(null)) }, "Create user"));
  const list = table({
    caption: "Users",
    keyOf: ({ user }) => user,
    empty: "No user has a password. Users who authenticate with PLAIN or a client certificate are not listed.",
    columns: [
      { header: "User", names: true, text: ({ user }) => user },
      { header: "Mechanisms", text: ({ mechanisms }) => mechanisms.map(({ mechanism, iterations }) => `${mechanism} (${iterations})`).join(", ") },
      { header: "(Actions)", className: "cell-actions", part: buttonsPart(({ user }) => [
        ["Access", href(["acls"], { principal: `User:${user}` })],
        ["Change password", () => refreshAfter(openPasswordDialog(user))],
        ["Delete", () => refreshAfter(deleteUser(user))],
      ]) },
    ],
  });
  page.add(element("div", { class: "stack" }, list.node));
  refresh = page.poll(PERIOD_MS, async () => {
    list.update((await get(pathOf("users"), { limit: 1000 }, page.signal)).users);
  });
}

/** @param {string|null} existing  user whose password changes; null for a new user */
function openPasswordDialog(existing) {
  return openDialog(existing === null ? "Create a user" : `Change the password of user “${existing}”`, (close) => {
    const user = field({ label: "User", name: "user", autocomplete: "off", spellcheck: "false", required: true });
    const password = field({ label: "New password", name: "password", type: "password", autocomplete: "new-password", required: true });
    const repetition = field({ label: "Repeat the password", name: "repeated", type: "password", autocomplete: "new-password", required: true });
    const mechanism = selectField({ label: "Mechanism", name: "mechanism" }, MECHANISMS);
    const problem = problemArea();
    const required = [existing === null ? user : null, password, repetition].filter((each) => each !== null);
    const confirm = element("button", { class: "primary", disabled: true }, existing === null ? "Create" : "Change");
    const updateButton = () => set(confirm, "disabled", required.some(({ input }) => input.value.trim() === ""));
    required.forEach(({ input }) => input.addEventListener("input", updateButton));
    return {
      content: [
        existing === null ? user.node : null, password.node, repetition.node, mechanism.node, problem.node,
        element("div", { class: "buttons" }, dismissButton(close), confirm),
      ],
      async submit() {
        const name = existing ?? user.input.value.trim();
        const differs = password.input.value !== repetition.input.value;
        showFieldError(repetition, differs ? "The passwords do not match." : "");
        if (differs || !name || !password.input.value) {
          return;
        }
        set(confirm, "disabled", true);
        try {
          await request("PUT", pathOf("users", name), { body: { password: password.input.value, mechanism: mechanism.input.value } });
          announce(existing === null ? `The user ${name} was created.` : `The password of ${name} was changed.`);
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
    title: `Delete user “${user}”?`,
    explain: "The user can no longer log in. Open connections stay open until they must authenticate again. ACLs remain.",
    method: "DELETE",
    path: pathOf("users", user),
    confirm: "Delete",
    danger: true,
    typed: user,
    done: `The user ${user} was deleted.`,
  });
}
