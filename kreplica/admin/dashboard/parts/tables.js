/**
 * Tables that are refreshed in place, and lists with pages.
 *
 * @typedef {import("./elements.js").Part} Part
 * @typedef {object} Column
 * @property {string} header
 * @property {(row: any) => string|number|null} [text]  text of its cells
 * @property {(row: any) => Part} [part]  shows the cell instead of a text
 * @property {boolean} [numeric]
 * @property {string} [sort]  column of the API by which a click on the header sorts; with `-`, in descending order
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
 * @param {string|(() => string)} [options.empty]  text of an empty table
 * @param {{current: () => string, choose: (sort: string) => void}} [options.sorting]  the order, and a function that changes it
 * @returns {{node: HTMLElement, update: (rows: any[]) => void}}
 */
export function table({ caption, columns, keyOf, empty = "No entries.", sorting }) {
  const body = element("tbody");
  const headers = columns.map((column) => headerPart(column, sorting));
  const head = element("tr", null, headers.map(({ node }) => node));
  const grid = element("table", null, element("caption", { class: "unseen" }, caption), element("thead", null, head), body);
  const nothing = element("p", { class: "empty", hidden: true });
  const node = element("div", { class: "table" }, grid, nothing);
  makeScrollable(node, caption);
  return {
    node,
    update(rows) {
      headers.forEach((header) => header.update(sorting?.current() ?? ""));
      updateChildren(body, rows, keyOf, (row) => rowPart(columns, row));
      nothing.hidden = rows.length > 0;
      setText(nothing, typeof empty === "string" ? empty : empty());
      grid.hidden = rows.length === 0;
    },
  };
}

/** Make a table focusable only while it scrolls sideways, so that the keyboard can scroll it. */
export function makeScrollable(node, label) {
  new ResizeObserver(() => {
    const scrolls = node.scrollWidth > node.clientWidth + 1;
    set(node, "tabindex", scrolls ? "0" : null);
    set(node, "role", scrolls ? "region" : null);
    set(node, "aria-label", scrolls ? label : null);
  }).observe(node);
}

/** A header; a button if the list can be sorted by its column: a second click reverses the order. */
function headerPart(column, sorting) {
  const hidden = column.header.startsWith("(");
  const text = hidden ? element("span", { class: "unseen" }, column.header.slice(1, -1)) : column.header;
  if (!sorting || !column.sort) {
    return { node: element("th", { scope: "col", class: classOf(column) }, text), update() {} };
  }
  const opposite = column.sort.startsWith("-") ? column.sort.slice(1) : `-${column.sort}`;
  const button = element("button", {
    class: "sort", type: "button", onclick: () => sorting.choose(sorting.current() === column.sort ? opposite : column.sort),
  }, text);
  const node = element("th", { scope: "col", class: classOf(column) }, button);
  return {
    node,
    update(current) {
      const isSorted = current === column.sort || current === opposite;
      const descends = current.startsWith("-");
      set(node, "aria-sort", isSorted ? (descends ? "descending" : "ascending") : null);
    },
  };
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

/**
 * Numbered pages of a long list; the number is part of the address.
 *
 * @param {import("../shell/page.js").Page} page
 * @param {number} size  rows of a page
 */
export function numberedPager(page, size) {
  const link = (text) => element("a", { class: "button tight" }, text);
  const [first, previous, next, last] = [link("First page"), link("Previous page"), link("Next page"), link("Last page")];
  const count = element("span", { class: "muted small", role: "status" });
  const node = element("nav", { class: "pager", "aria-label": "Pages of the list" }, first, previous, next, last, count);
  return {
    node,
    /** @param {number} total  rows of all pages @param {string} text  the number of rows in words */
    update(total, text) {
      const pages = Math.max(1, Math.ceil(total / size));
      const number = Math.min(Number(page.query.page) || 1, pages);
      const addresses = [[first, 1], [previous, number - 1], [next, number + 1], [last, pages]];
      for (const [each, target] of addresses) {
        set(each, "href", href(page.path, { ...page.query, page: target > 1 ? target : "" }));
        each.hidden = target < 1 || target > pages || target === number;
      }
      setText(count, pages > 1 ? `${text}, page ${number} of ${pages}` : text);
    },
  };
}
