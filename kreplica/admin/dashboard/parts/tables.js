/**
 * Tables that are refreshed in place, and lists with pages.
 *
 * @typedef {import("./elements.js").Part} Part
 * @typedef {object} Column
 * @property {string} header
 * @property {(row: any) => string|number|null} [text]  text of its cells
 * @property {(row: any) => Part} [part]  shows the cell instead of a text
 * @property {boolean} [numeric]
 * @property {boolean} [names]  true if the column names the row
 * @property {string} [className]
 */

import { element, updateChildren, set, setText } from "./elements.js";
import { href } from "../shell/routes.js";

/**
 * @param {object} options
 * @param {string} options.caption  description of the table for screen readers
 * @param {Column[]} options.columns
 * @param {(row: any) => string|number} options.keyOf
 * @param {string} [options.empty]  text of an empty table
 * @returns {{node: HTMLElement, update: (rows: any[]) => void}}
 */
export function table({ caption, columns, keyOf, empty = "Nothing here." }) {
  const body = element("tbody");
  const head = element("tr", null, columns.map(headerCell));
  const grid = element("table", null, element("caption", { class: "unseen" }, caption), element("thead", null, head), body);
  const nothing = element("p", { class: "empty", hidden: true }, empty);
  const node = element("div", { class: "table" }, grid, nothing);
  scrollable(node, caption);
  return {
    node,
    update(rows) {
      updateChildren(body, rows, keyOf, (row) => rowPart(columns, row));
      nothing.hidden = rows.length > 0;
      grid.hidden = rows.length === 0;
    },
  };
}

/** Make a table focusable only while it scrolls sideways, so that the keyboard can scroll it. */
function scrollable(node, label) {
  new ResizeObserver(() => {
    const scrolls = node.scrollWidth > node.clientWidth + 1;
    set(node, "tabindex", scrolls ? "0" : null);
    set(node, "role", scrolls ? "region" : null);
    set(node, "aria-label", scrolls ? label : null);
  }).observe(node);
}

function headerCell(column) {
  const hidden = column.header.startsWith("(");
  const text = hidden ? element("span", { class: "unseen" }, column.header.slice(1, -1)) : column.header;
  return element("th", { scope: "col", class: classOf(column) }, text);
}

function classOf(column) {
  return [column.numeric ? "number" : "", column.className ?? ""].join(" ").trim() || null;
}

function rowPart(columns, first) {
  const cells = columns.map((column) => {
    const cell = element(column.names ? "th" : "td", { scope: column.names ? "row" : null, class: classOf(column) });
    const part = column.part?.(first);
    if (part) {
      cell.append(part.node);
    }
    return { cell, part, column };
  });
  return {
    node: element("tr", null, cells.map(({ cell }) => cell)),
    update(row) {
      for (const { cell, part, column } of cells) {
        if (part) {
          part.update(row);
        } else {
          setText(cell, column.text(row) ?? "–");
        }
      }
    },
  };
}

/**
 * Pages of a long list. The position is part of the address, so the browser's back button works.
 *
 * @param {string[]} path  of the page
 * @param {string} [parameter]  of the address
 */
export function pager(path, parameter = "after") {
  const first = element("a", { class: "button tight" }, "First page");
  const next = element("a", { class: "button tight" }, "Next page");
  const count = element("span", { class: "muted small" });
  const node = element("nav", { class: "pager", "aria-label": "Pages of the list" }, first, next, count);
  return {
    node,
    /**
     * @param {Record<string, any>} query  current query of the address
     * @param {string|null} after  position of the next page
     * @param {string} text  range of the shown rows
     */
    update(query, after, text) {
      set(first, "href", href(path, { ...query, [parameter]: null }));
      set(next, "href", href(path, { ...query, [parameter]: after }));
      first.hidden = !query[parameter];
      next.hidden = !after;
      setText(count, text);
    },
  };
}
