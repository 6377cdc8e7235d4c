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
 * @property {(document: any) => any} [bodyOf]  body of the write, from the preview, if the broker would otherwise choose other values
 * @property {string|null} [ifMatch]
 * @property {string} confirm  label of the button
 * @property {string} [dismiss]  label of the button that changes nothing; "Cancel" by default
 * @property {boolean} [danger]
 * @property {string} [typed]  text that the user must type to confirm
 * @property {string|((document: any) => string)} done  message after the write
 * @property {string} [summary]  the change in one line, above the preview
 * @property {{nodes: HTMLElement[], read: () => Partial<Write>|null}} [form]  fields in the dialog; `read` returns their part of
 *   the write, or null if a field is not valid; the preview is updated when a field changes
 * @property {(document: any) => Node|null} [preview]  preview above the znodes
 */

import { announce } from "../shell/notifications.js";
import { request } from "../shell/api.js";
import { element, set, setText } from "./elements.js";
import { dismissButton, openDialog } from "./dialogs.js";
import { debounce, field } from "./forms.js";
import { narrowWindow } from "./narrow_window.js";
import { problemArea } from "./problems.js";

/** Delay of the preview after the last change of a field. */
const TYPING_MS = 300;

/**
 * @param {Write} write
 * @returns {Promise<any>} the response; null if the user cancelled
 */
export function confirmWrite(write) {
  return openDialog(write.title, (close) => {
    const { nodes, confirm, submit } = previewedWrite(write, close);
    return { content: [...nodes, element("div", { class: "buttons" }, dismissButton(close, write.dismiss), confirm)], submit };
  });
}

/**
 * The fields, the preview and the button of a write, for a dialog or a page.
 *
 * @param {Write} write
 * @param {(document: any) => void} onDone  called with the response
 * @returns {{nodes: HTMLElement[], confirm: HTMLButtonElement, submit: () => Promise<void>}}
 */
export function previewedWrite(write, onDone) {
  const loading = element("p", { class: "muted", role: "status" });
  const preview = element("div", { class: "stack preview" });
  const problem = problemArea();
  const typedField = write.typed === undefined ? null : field({ label: `Type “${write.typed}” to continue`, name: "typed", autocomplete: "off", autofocus: true });
  const confirm = element("button", { class: write.danger ? "primary danger" : "primary" }, write.confirm);
  /** The write of the shown preview. @type {Write|null} */
  let previewed = null;
  let changes = 0;
  const updateButton = () => {
    confirm.disabled = previewed === null || (typedField !== null && typedField.input.value !== write.typed);
  };
  const update = async () => {
    const values = write.form ? write.form.read() : {};
    const number = changes;
    setText(loading, values === null ? "" : "Requesting a preview…");
    const candidate = values === null ? null : { ...write, ...values };
    const found = candidate === null ? { document: null, problem: null, nodes: [] } : await readPreview(candidate);
    if (number !== changes) {
      return; // a field has changed in the meantime
    }
    setText(loading, "");
    set(preview, "aria-busy", "false");
    preview.replaceChildren(...found.nodes);
    problem.show(found.problem);
    previewed = candidate === null || found.problem ? null : { ...candidate, body: candidate.bodyOf ? candidate.bodyOf(found.document) : candidate.body };
    updateButton();
  };
  const updateSoon = debounce(update, TYPING_MS);
  const fieldsChanged = () => {
    changes += 1;
    previewed = null;
    set(preview, "aria-busy", "true");
    updateButton();
    updateSoon();
  };
  const submit = async () => {
    if (previewed === null || confirm.disabled) {
      return;
    }
    confirm.disabled = true;
    problem.show(null);
    try {
      const document = (await send(previewed, false)).document ?? {};
      announce(typeof previewed.done === "function" ? previewed.done(document) : previewed.done);
      onDone(document);
    } catch (error) {
      problem.show(error);
      updateButton();
    }
  };
  typedField?.input.addEventListener("input", updateButton);
  updateButton();
  update();
  const nodes = [
    write.explain ? element("p", null, write.explain) : null,
    write.form ? element("div", {
      class: "stack form",
      oninput: fieldsChanged,
      // Not for text fields, whose event is fired when the user leaves the field to press the button.
      onchange: ({ target }) => target.matches("select, [type=checkbox]") && fieldsChanged(),
    }, write.form.nodes) : null,
    loading, preview, problem.node, typedField?.node ?? null,
  ].filter((node) => node !== null);
  return { nodes, confirm, submit };
}

/** The preview of a write, or the reason why it was rejected. @param {Write} write */
async function readPreview(write) {
  try {
    const document = (await send(write, true)).document ?? {};
    const summary = write.summary ? element("p", null, write.summary) : null;
    return { document, problem: null, nodes: [summary, write.preview?.(document), znodesOf(document)].filter(Boolean) };
  } catch (problem) {
    return { document: null, problem, nodes: [] };
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
  return element("details", { open: znodes.length <= 3 && !narrowWindow.matches },
    element("summary", null, `${znodes.length === 1 ? "One write" : `${znodes.length} writes`} to ZooKeeper`),
    element("div", { class: "code", tabindex: "0", role: "region", "aria-label": "Writes to ZooKeeper" },
      element("pre", null, shown.map(znodeText).join("\n\n") + (shown.length < znodes.length ? "\n\n…" : ""))));
}

function znodeText({ operation, path, data }) {
  const text = data === undefined || data === null ? "" : typeof data === "string" ? data : JSON.stringify(data, null, 2);
  return `${operation} ${path}${text ? `\n${text}` : ""}`;
}
