/**
 * Previews every write (`dry_run`), and executes it when the user confirms it.
 *
 * @typedef {object} Write
 * @property {string} title  the write as a question or a command
 * @property {string} [explain]  explanation of its effects
 * @property {string} method
 * @property {string} path
 * @property {Record<string, any>} [query]
 * @property {any} [body]
 * @property {string|null} [ifMatch]
 * @property {string} confirm  label of the button
 * @property {boolean} [danger]
 * @property {string} [typed]  text that the user must type to confirm
 * @property {string|((document: any) => string)} done  message after the write
 * @property {(document: any) => Node|null} [preview]  preview above the znodes
 */

import { announce } from "../shell/news.js";
import { ask } from "../shell/api.js";
import { element, setText } from "./elements.js";
import { leaveButton, openDialog } from "./dialogs.js";
import { field } from "./forms.js";
import { problemPlace } from "./problems.js";

/**
 * @param {Write} write
 * @returns {Promise<any>} the response; null if the user cancelled
 */
export function confirmWrite(write) {
  return openDialog(write.title, (close) => {
    const waiting = element("p", { class: "muted", role: "status" }, "Requesting a preview…");
    const preview = element("div", { class: "stack" });
    const problem = problemPlace();
    const typed = write.typed === undefined ? null : field({ label: `Type “${write.typed}” to continue`, name: "typed", autocomplete: "off" });
    const confirm = element("button", { class: write.danger ? "primary danger" : "primary", disabled: true }, write.confirm);
    let known = false;
    const check = () => {
      confirm.disabled = !known || (typed !== null && typed.input.value !== write.typed);
    };
    typed?.input.addEventListener("input", check);
    previewed(write, preview, problem).then((shown) => {
      known = shown;
      setText(waiting, "");
      waiting.hidden = true;
      check();
    });
    return {
      content: [
        write.explain ? element("p", null, write.explain) : null,
        waiting, preview, problem.node, typed?.node ?? null,
        element("div", { class: "buttons" }, leaveButton(close), confirm),
      ],
      async submit() {
        if (confirm.disabled) {
          return;
        }
        confirm.disabled = true;
        problem.show(null);
        try {
          const document = (await asked(write, false)).document ?? {};
          announce(typeof write.done === "function" ? write.done(document) : write.done);
          close(document);
        } catch (error) {
          problem.show(error);
          check();
        }
      },
    };
  });
}

async function previewed(write, place, problem) {
  try {
    const { document } = await asked(write, true);
    place.replaceChildren(...[write.preview?.(document ?? {}), znodesOf(document ?? {})].filter(Boolean));
    return true;
  } catch (error) {
    problem.show(error);
    return false;
  }
}

function asked({ method, path, query, body, ifMatch }, dryRun) {
  return ask(method, path, { query, body, ifMatch, dryRun });
}

/**
 * The ZooKeeper writes in a response.
 *
 * @param {{znodes?: {operation: string, path: string, data?: any}[]}} document
 */
export function znodesOf(document) {
  const znodes = document.znodes ?? [];
  if (znodes.length === 0) {
    return null;
  }
  const shown = znodes.slice(0, 20);
  return element("details", { open: znodes.length <= 3 },
    element("summary", null, `${znodes.length === 1 ? "One write" : `${znodes.length} writes`} to ZooKeeper`),
    element("div", { class: "code", tabindex: "0", role: "region", "aria-label": "Writes to ZooKeeper" },
      element("pre", null, shown.map(znodeText).join("\n\n") + (shown.length < znodes.length ? "\n\n…" : ""))));
}

function znodeText({ operation, path, data }) {
  const text = data === undefined || data === null ? "" : typeof data === "string" ? data : JSON.stringify(data, null, 2);
  return `${operation} ${path}${text ? `\n${text}` : ""}`;
}
