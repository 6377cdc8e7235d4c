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
 * @property {(document: any) => any} [bodyOf]  body of the write, from the preview, if the broker would choose other values again
 * @property {string|null} [ifMatch]
 * @property {string} confirm  label of the button
 * @property {boolean} [danger]
 * @property {string} [typed]  text that the user must type to confirm
 * @property {string|((document: any) => string)} done  message after the write
 * @property {(document: any) => Node|null} [preview]  preview above the znodes
 */

import { announce } from "../shell/notifications.js";
import { request } from "../shell/api.js";
import { element, setText } from "./elements.js";
import { dismissButton, openDialog } from "./dialogs.js";
import { field } from "./forms.js";
import { problemArea } from "./problems.js";

/**
 * @param {Write} write
 * @returns {Promise<any>} the response; null if the user cancelled
 */
export function confirmWrite(write) {
  return openDialog(write.title, (close) => {
    const loading = element("p", { class: "muted", role: "status" }, "Requesting a preview…");
    const preview = element("div", { class: "stack" });
    const problem = problemArea();
    const typedField = write.typed === undefined ? null : field({ label: `Type “${write.typed}” to continue`, name: "typed", autocomplete: "off" });
    const confirm = element("button", { class: write.danger ? "primary danger" : "primary", disabled: true }, write.confirm);
    let isPreviewed = false;
    let confirmed = write;
    const updateButton = () => {
      confirm.disabled = !isPreviewed || (typedField !== null && typedField.input.value !== write.typed);
    };
    typedField?.input.addEventListener("input", updateButton);
    showPreview(write, preview, problem).then((document) => {
      isPreviewed = document !== null;
      confirmed = isPreviewed && write.bodyOf ? { ...write, body: write.bodyOf(document) } : write;
      setText(loading, "");
      loading.hidden = true;
      updateButton();
    });
    return {
      content: [
        write.explain ? element("p", null, write.explain) : null,
        loading, preview, problem.node, typedField?.node ?? null,
        element("div", { class: "buttons" }, dismissButton(close), confirm),
      ],
      async submit() {
        if (confirm.disabled) {
          return;
        }
        confirm.disabled = true;
        problem.show(null);
        try {
          const document = (await send(confirmed, false)).document ?? {};
          announce(typeof write.done === "function" ? write.done(document) : write.done);
          close(document);
        } catch (error) {
          problem.show(error);
          updateButton();
        }
      },
    };
  });
}

/** @returns {Promise<any>} the response to the dry run; null if it was refused */
async function showPreview(write, area, problem) {
  try {
    const document = (await send(write, true)).document ?? {};
    area.replaceChildren(...[write.preview?.(document), znodesOf(document)].filter(Boolean));
    return document;
  } catch (error) {
    problem.show(error);
    return null;
  }
}

function send({ method, path, query, body, ifMatch }, dryRun) {
  return request(method, path, { query, body, ifMatch, dryRun });
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
