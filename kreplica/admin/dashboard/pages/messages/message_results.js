/** The messages that match, loaded page by page with the progress of the search. */

import { element, set, setText, show } from "../../parts/elements.js";
import { count, pluralize } from "../../parts/format.js";
import { columnMenu, orderText } from "../../parts/message_columns.js";
import { messageTable } from "../../parts/message_rows.js";
import { get, pathOf, withQuery } from "../../shell/api.js";
import { selectionOf } from "./message_filters.js";

/** Number of messages that a search looks for before it waits for the user. */
const LIMIT = 50;
/** Maximum number of messages scanned per request. */
const SCAN_LIMIT = 10_000;
/** Maximum number of rows; those that were loaded first are removed. */
const ROWS_MAX = 1000;
const DOWNLOAD_LIMIT = 100_000;

/**
 * @param {import("../../shell/page.js").Page} page
 * @param {string} topic
 * @param {(error: any) => boolean} showError  shows errors of the form; false for other errors
 */
export function messageResults(page, topic, showError) {
  let order = "";
  const list = messageTable(`Messages of ${topic}`, "No message matches.", (newOrder) => {
    order = newOrder;
    updateState();
  });
  const state = element("p", { class: "muted small", role: "status" });
  const progress = element("progress", { "aria-label": "Searched part of the topic", hidden: true });
  const more = element("button", { type: "button", hidden: true, onclick: () => start() }, "More");
  const stop = element("button", { type: "button", hidden: true, onclick: () => {
    isStopped = true;
  } }, "Stop");
  const downloads = ["ndjson", "csv"].map((as) => ({ as, node: element("a", { class: "button tight", download: "", "aria-describedby": "download-scope" }, as.toUpperCase()) }));
  const columns = columnMenu(() => list.updateColumns());
  let [rows, next, scanned, remaining, problems, failures] = [[], null, 0, 0, [], 0];
  let [isBusy, isStopped, hasFailed, searchNumber] = [false, false, false, 0];

  const updateState = () => {
    const range = next ? ` of ${count(scanned + remaining)}` : ", the whole range";
    const failed = failures ? ` The filter failed for ${pluralize(failures, "message")}.` : "";
    const isEmpty = hasFailed && rows.length === 0; // without results, not with a result of no messages
    show(list.node, !isEmpty);
    setText(state, isEmpty ? "" : `${pluralize(rows.length, "message")} shown, ${count(scanned)} searched${range}.${orderText(order, rows.length)}${failed}${problems.map((text) => ` ${text}`).join("")}`);
    show(more, !isBusy && Boolean(next));
    show(stop, isBusy);
    show(progress, isBusy);
    set(progress, "max", Math.max(scanned + remaining, 1));
    set(progress, "value", scanned);
  };
  /** Request pages until enough messages were found, or the user stops the search or starts another one. */
  const search = async (number) => {
    let missing = LIMIT;
    do {
      updateState();
      const query = { ...parameters(page.query), limit: missing, scan_limit: SCAN_LIMIT, after: next };
      const response = await get(pathOf("topics", topic, "messages"), query, page.signal);
      if (number !== searchNumber) {
        return;
      }
      rows = [...rows, ...response.messages].slice(-ROWS_MAX);
      missing -= response.messages.length;
      [next, scanned, remaining] = [response.next, scanned + response.scanned, response.remaining];
      failures += response.filter_errors;
      problems = [...response.problems, ...(response.filter_error ? [`${response.filter_error}.`] : [])];
      list.update(rows);
    } while (next && missing > 0 && !isStopped);
  };
  /** One function for all searches, because the page shows and removes the problem of each function. */
  const run = async () => {
    const number = (searchNumber += 1);
    try {
      await search(number);
    } catch (error) {
      if (number !== searchNumber) {
        return;
      }
      hasFailed = true;
      list.update(rows); // without the rows of the previous search
      if (!showError(error)) {
        throw error;
      }
    } finally {
      if (number === searchNumber) {
        isBusy = false;
        updateState();
      }
    }
  };
  const start = () => {
    [isBusy, isStopped, hasFailed] = [true, false, false];
    showError(null);
    page.once(run);
  };
  return {
    node: element("div", { class: "stack section" },
      element("div", { class: "pager results-head" }, state, progress, stop,
        element("span", { class: "results-actions" }, columns.button, element("span", { class: "muted small", id: "download-scope" }, `Download all matching messages, at most ${count(DOWNLOAD_LIMIT)}`), downloads.map(({ node }) => node))),
      columns.panel, list.node, element("div", { class: "pager" }, more)),
    reload() {
      [rows, next, scanned, remaining, problems, failures] = [[], null, 0, 0, [], 0];
      for (const { as, node } of downloads) {
        set(node, "href", withQuery(pathOf("topics", topic, "messages", "download"), { ...parameters(page.query), limit: DOWNLOAD_LIMIT, as }));
      }
      start();
    },
  };
}

function parameters(query) {
  return { order: query.order ?? "newest", from: query.from, ...selectionOf(query) };
}
