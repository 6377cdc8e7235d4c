/** A table of messages with chosen columns; each row can be expanded. */

import { element, set, setText, updateChildren } from "./elements.js";
import { chosenColumns, sortMessages } from "./message_columns.js";
import { messageDetails } from "./message_details.js";
import { makeScrollable } from "./tables.js";

/**
 * @param {string} caption
 * @param {string} empty  text of an empty table
 * @param {(order: string) => void} [onSort]  makes the columns sortable; called with the new order
 */
export function messageTable(caption, empty, onSort) {
  const head = element("tr");
  const body = element("tbody");
  const grid = element("table", { class: "messages" }, element("caption", { class: "unseen" }, caption), element("thead", null, head), body);
  const nothing = element("p", { class: "empty", hidden: true }, empty);
  const node = element("div", { class: "table" }, grid, nothing);
  makeScrollable(node, caption);
  const expanded = new Set();
  let columns = chosenColumns();
  let generation = 0;
  let messages = [];
  let order = "";

  const sortBy = (name) => {
    order = order === name ? `-${name}` : order === `-${name}` ? "" : name;
    render();
    onSort?.(order);
  };
  const toggle = (key) => {
    if (!expanded.delete(key)) {
      expanded.add(key);
    }
    render();
  };
  const render = () => {
    const cells = columns.map((column) => headerCell(column, order, onSort ? sortBy : null));
    head.replaceChildren(element("th", { scope: "col", class: "expander" }, element("span", { class: "unseen" }, "Details")), ...cells);
    const rows = sortMessages(messages, order).flatMap((message) => {
      const key = keyOf(message);
      const row = { message, key, isExpanded: expanded.has(key), isDetails: false };
      return row.isExpanded ? [row, { ...row, isDetails: true }] : [row];
    });
    updateChildren(body, rows, ({ key, isDetails }) => `${generation}:${key}:${isDetails}`,
      ({ isDetails }) => (isDetails ? detailsRow(columns.length + 1) : messageRow(columns, toggle)));
    nothing.hidden = messages.length > 0;
    grid.hidden = messages.length === 0;
  };
  return {
    node,
    /** @param {any[]} newMessages */
    update(newMessages) {
      messages = newMessages;
      const keys = new Set(messages.map(keyOf));
      [...expanded].filter((key) => !keys.has(key)).forEach((key) => expanded.delete(key));
      render();
    },
    /** Use the columns that the user has chosen now. */
    updateColumns() {
      columns = chosenColumns();
      generation += 1;
      render();
    },
  };
}

function keyOf({ partition, offset }) {
  return `${partition}:${offset}`;
}

function classOf(column) {
  return [column.numeric ? "number" : "", column.className ?? `column-${column.name}`].join(" ").trim();
}

function headerCell(column, order, sortBy) {
  const isSorted = order === column.name || order === `-${column.name}`;
  const content = sortBy
    ? element("button", { class: "sort", type: "button", "data-sort": column.name, onclick: () => {
      sortBy(column.name);
      document.querySelector(`.messages [data-sort="${CSS.escape(column.name)}"]`)?.focus(); // the header was replaced
    } }, column.header)
    : column.header;
  return element("th", { scope: "col", class: classOf(column), "aria-sort": isSorted ? (order.startsWith("-") ? "descending" : "ascending") : null }, content);
}

function messageRow(columns, toggle) {
  let key = "";
  const button = element("button", { class: "expand", type: "button", onclick: () => toggle(key) });
  const cells = columns.map((column) => {
    const text = element("span", { class: "payload" });
    const isName = column.name === "offset";
    return { column, text, node: element(isName ? "th" : "td", { scope: isName ? "row" : null, class: classOf(column) }, text) };
  });
  return {
    node: element("tr", null, element("td", { class: "expander" }, button), cells.map(({ node }) => node)),
    update({ message, key: newKey, isExpanded }) {
      key = newKey;
      set(button, "aria-expanded", String(isExpanded));
      set(button, "aria-label", `Details of message ${message.offset} of partition ${message.partition}`);
      for (const { column, text } of cells) {
        const part = column.name === "key" || column.name === "value" ? message[column.name] : null;
        const isAbsent = part !== null && (part.format === "null" || part.size_bytes === 0);
        set(text, "class", `payload${isAbsent ? " absent" : ""}${part?.error ? " undecoded" : ""}`);
        setText(text, column.text(message));
      }
    },
  };
}

function detailsRow(width) {
  const cell = element("td", { colspan: String(width) });
  let shown = null;
  return {
    node: element("tr", { class: "details-row" }, cell),
    update({ message }) {
      if (shown !== message) {
        shown = message;
        cell.replaceChildren(messageDetails(message));
      }
    },
  };
}
