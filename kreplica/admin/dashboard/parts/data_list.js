/**
 * Lists that the broker sorts, filters and pages, so that ten thousand rows cost the browser no more than a hundred.
 * Search, order, filter and page are part of the address.
 *
 * @typedef {import("./tables.js").Column} Column
 */

import { element, setText, show } from "./elements.js";
import { pluralize } from "./format.js";
import { debounce, field, selectField } from "./forms.js";
import { numberedPager, table } from "./tables.js";
import { get, pathOf } from "../shell/api.js";

const PERIOD_MS = 3000;
const PAGE = 100;

/**
 * @param {import("../shell/page.js").Page} page
 * @param {object} options
 * @param {string[]} options.path  of the list in the API; its last part names the rows in the response
 * @param {string} options.caption
 * @param {string} options.noun  of one row, such as "topic"
 * @param {string} [options.none]  text if the API has no rows
 * @param {string} [options.search]  label of the search field; absent if the API cannot search
 * @param {[string, string][]} options.filters  conditions and labels; the first one is for all rows
 * @param {string} options.fields  columns of the API, separated by commas
 * @param {Column[]} options.columns
 * @param {(row: any) => string|number} options.keyOf
 * @param {HTMLElement[]} [options.controls]  additional fields
 * @param {() => Record<string, any>} [options.query]  additional parameters of the request
 * @param {(rows: any[]) => any} [options.onRows]
 * @returns {{node: HTMLElement, refresh: () => void}}
 */
export function dataList(page, { path, caption, noun, none = `There are no ${noun}s.`, search, filters, fields, columns, keyOf, controls = [], query = () => ({}), onRows = () => {} }) {
  const change = (values) => {
    page.setQuery({ page: "", ...values });
    refresh();
  };
  const inputs = [];
  if (search) {
    const text = field({ label: search, type: "search", value: page.query.search ?? "", autocomplete: "off", spellcheck: "false" });
    text.input.addEventListener("input", debounce(() => change({ search: text.input.value.trim() })));
    inputs.push(text.node);
  }
  if (filters.length > 1) {
    const chosen = selectField({ label: "Show" }, filters, filters.some(([value]) => value === page.query.show) ? page.query.show : "");
    chosen.input.addEventListener("change", () => change({ show: chosen.input.value }));
    inputs.push(chosen.node);
  }
  const condition = field({ label: "Filter", value: page.query.filter ?? "", placeholder: filters.at(-1)[0], autocomplete: "off", spellcheck: "false" });
  condition.input.addEventListener("input", debounce(() => change({ filter: condition.input.value.trim() }), 500));
  inputs.push(condition.node, ...controls);
  const isFiltered = () => [page.query.search, page.query.show, page.query.filter, ...Object.values(query())].some(Boolean);
  const list = table({
    caption, keyOf, columns, empty: () => (isFiltered() ? `No ${noun} matches.` : none),
    sorting: { current: () => page.query.sort ?? "", choose: (sort) => change({ sort }) },
  });
  const pages = numberedPager(page, PAGE);
  const note = element("p", { class: "note", hidden: true });
  const refresh = page.poll(PERIOD_MS, async () => {
    const { search: text, sort, show: shown, filter, page: number } = page.query;
    const conditions = [shown, filter].filter(Boolean).join(",");
    const parameters = { ...query(), search: text, sort, filter: conditions, fields, limit: PAGE, page: number || 1 };
    const response = await get(pathOf(...path), parameters, page.signal);
    const rows = response[path.at(-1)];
    await onRows(rows);
    list.update(rows);
    pages.update(response.total, pluralize(response.total, noun));
    show(note, response.problems.length > 0);
    setText(note, `Some brokers did not respond, and their values are missing: ${response.problems.join(" ")}`);
  });
  return {
    node: element("div", { class: "stack" }, element("div", { class: "fields", role: "search" }, inputs), note, list.node, pages.node),
    refresh,
  };
}
