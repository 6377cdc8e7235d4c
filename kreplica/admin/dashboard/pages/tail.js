/** Live messages with a limited number of rows, and a pause that queues them. */

import { element, set, setText } from "../parts/elements.js";
import { pluralize } from "../parts/format.js";
import { selectField } from "../parts/forms.js";
import { messageTable } from "../parts/message_rows.js";
import { partitionChoices } from "../parts/partition_choices.js";
import { pathOf } from "../shell/api.js";

const ROWS_MAX = 200;
/** Maximum number of queued messages; the oldest are dropped. */
const QUEUED_MAX = 1000;
const RENDER_MS = 250;

/** @param {import("../shell/page.js").Page} page @param {string} topic @param {number} partitions */
export function tail(page, topic, partitions) {
  const list = messageTable(`New messages of ${topic}`, "No messages since this page was opened.");
  const status = element("span", { class: "muted small" });
  const pauseButton = element("button", { type: "button", "aria-pressed": "false", onclick: () => toggle() }, "Pause");
  const clear = element("button", { type: "button", onclick: () => reset() }, "Clear");
  const partition = selectField({ label: "Partition", name: "partition" }, partitionChoices(partitions), page.query.partition ?? "");
  let [rows, queued, dropped, isPaused, timer, isConnected] = [[], [], 0, false, 0, false];

  const updateStatus = () => {
    const state = isConnected ? (isPaused ? "Paused" : "Following") : "Connecting";
    setText(status, `${state}. ${pluralize(rows.length, "message")} shown${queued.length ? `, ${queued.length} waiting` : ""}${dropped ? `, ${dropped} dropped` : ""}.`);
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
    [rows, queued, dropped] = [[], [], 0];
    list.update(rows);
    updateStatus();
  };
  partition.input.addEventListener("change", () => page.go(page.path, { partition: partition.input.value }));
  page.add(element("div", { class: "fields card" }, partition.node, pauseButton, clear, status), element("div", { class: "section" }, list.node));
  reset();
  page.follow(pathOf("topics", topic, "messages", "tail"), { partition: page.query.partition }, ({ name, data }) => {
    if (name !== "message") {
      return;
    }
    queued.push(data);
    if (queued.length > QUEUED_MAX) {
      queued.shift();
      dropped += 1;
    }
    timer ||= setTimeout(render, RENDER_MS);
  }, (problem) => {
    isConnected = problem === null;
    page.showProblem(topic, problem);
    updateStatus();
  });
}
