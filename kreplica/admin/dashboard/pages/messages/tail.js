/** Live messages with a limited number of rows, and a pause that queues them. */

import { element, set, setText } from "../../parts/elements.js";
import { pluralize } from "../../parts/format.js";
import { columnMenu } from "../../parts/message_columns.js";
import { readFormats } from "../../parts/message_formats.js";
import { messageTable } from "../../parts/message_rows.js";
import { pathOf } from "../../shell/api.js";
import { follow } from "../../shell/streams.js";
import { messageFilters, selectionOf } from "./message_filters.js";

const ROWS_MAX = 200;
/** Maximum number of queued messages; the oldest are dropped. */
const QUEUED_MAX = 1000;
const RENDER_MS = 250;
const STATES = {
  connecting: "Connecting",
  connected: "Following",
  interrupted: "Interrupted; reconnecting",
  rejected: "Not following",
  stopped: "Stopped",
};

/** @param {import("../../shell/page.js").Page} page @param {string} topic @param {number} partitions */
export async function tail(page, topic, partitions) {
  const list = messageTable(`New messages of ${topic}`, "No messages since this page was opened.");
  const status = element("span", { class: "muted small" });
  const pauseButton = element("button", { type: "button", "aria-pressed": "false", onclick: () => toggle() }, "Pause");
  const clear = element("button", { type: "button", onclick: () => reset() }, "Clear");
  const columns = columnMenu(() => list.updateColumns());
  const filters = messageFilters(page.query, partitions, await readFormats(page.signal));
  let followed = JSON.stringify(filters.query());
  let [rows, queued, dropped, isPaused, timer, failures] = [[], [], 0, false, 0, ""];
  /** @type {import("../../shell/streams.js").StreamState|"connecting"|"stopped"} */
  let streamState = "connecting";
  let stream = new AbortController();
  // Stops the stream while it follows with the filters of the form; otherwise, it submits the form.
  const followButton = element("button", { onclick: (event) => {
    if (followButton.type === "button") {
      event.preventDefault(); // the button becomes a submit button before the browser's default action
      stop();
    }
  } });

  const updateStatus = () => {
    setText(status, `${isPaused && streamState === "connected" ? "Paused" : STATES[streamState]}. ${pluralize(rows.length, "message")} shown${queued.length ? `, ${queued.length} waiting` : ""}${dropped ? `, ${dropped} dropped` : ""}.${failures}`);
    const isFollowing = !["stopped", "rejected"].includes(streamState) && JSON.stringify(filters.query()) === followed;
    setText(followButton, isFollowing ? "Stop" : "Follow");
    set(followButton, "type", isFollowing ? "button" : "submit");
    set(followButton, "class", isFollowing ? null : "primary");
  };
  const render = () => {
    timer = 0;
    if (!isPaused && queued.length) {
      rows = [...queued.reverse(), ...rows].slice(0, ROWS_MAX);
      queued = [];
      list.update(rows);
    }
    updateStatus();
  };
  const toggle = () => {
    isPaused = !isPaused;
    set(pauseButton, "aria-pressed", String(isPaused));
    setText(pauseButton, isPaused ? "Resume" : "Pause");
    render();
  };
  const reset = () => {
    [rows, queued, dropped, failures] = [[], [], 0, ""];
    list.update(rows);
    updateStatus();
  };
  page.add(
    element("form", {
      class: "fields card message-search",
      onsubmit: (event) => {
        event.preventDefault();
        page.setQuery(filters.query());
        reset();
        start();
      },
      oninput: () => updateStatus(),
    }, filters.nodes, followButton),
    element("div", { class: "stack section" },
      element("div", { class: "pager results-head" }, status, element("span", { class: "results-actions" }, pauseButton, clear, columns.button)),
      columns.panel, list.node));
  const onEvent = ({ name, data }) => {
    if (name === "progress") {
      failures = data.filter_errors ? ` The filter failed for ${pluralize(data.filter_errors, "message")}: ${data.filter_error}.` : "";
      updateStatus();
    }
    if (name !== "message") {
      return;
    }
    queued.push(data);
    if (queued.length > QUEUED_MAX) {
      queued.shift();
      dropped += 1;
    }
    timer ||= setTimeout(render, RENDER_MS);
  };
  const showState = (state, problem) => {
    streamState = state;
    page.showProblem(topic, filters.showError(problem) ? null : problem);
    updateStatus();
  };
  const stop = () => {
    stream.abort();
    showState("stopped", null);
  };
  const start = () => {
    stream.abort();
    stream = new AbortController();
    followed = JSON.stringify(filters.query());
    showState("connecting", null);
    const { signal } = stream;
    follow(pathOf("topics", topic, "messages", "tail"), selectionOf(page.query), AbortSignal.any([page.signal, signal]), onEvent,
      (state, problem) => signal.aborted || showState(state, problem));
  };
  reset();
  start();
}
