/** Live messages with a limited number of rows, and a pause that queues them. */

import { element, set, setText } from "../parts/elements.js";
import { counted } from "../parts/format.js";
import { choice } from "../parts/forms.js";
import { messageTable } from "../parts/message_rows.js";
import { partitionChoices } from "../parts/partition_choices.js";
import { pathOf } from "../shell/api.js";

const ROWS_MAX = 200;
/** Maximum number of queued messages; the oldest are dropped. */
const WAITING_MAX = 1000;
const DRAW_MS = 250;

/** @param {import("../shell/page.js").Page} page @param {string} topic @param {number} partitions */
export function tail(page, topic, partitions) {
  const list = messageTable(`New messages of ${topic}`, "No messages since this page was opened.");
  const told = element("span", { class: "muted small" });
  const pausing = element("button", { type: "button", "aria-pressed": "false", onclick: () => toggle() }, "Pause");
  const clear = element("button", { type: "button", onclick: () => empty() }, "Clear");
  const partition = choice({ label: "Partition", name: "partition" }, partitionChoices(partitions), page.query.partition ?? "");
  let [rows, waiting, dropped, paused, drawing, flowing] = [[], [], 0, false, 0, false];

  const say = () => {
    const state = flowing ? (paused ? "Paused" : "Following") : "Connecting";
    setText(told, `${state}. ${counted(rows.length, "message")} shown${waiting.length ? `, ${waiting.length} waiting` : ""}${dropped ? `, ${dropped} dropped` : ""}.`);
  };
  const draw = () => {
    drawing = 0;
    if (!paused && waiting.length) {
      rows = [...waiting.reverse(), ...rows].slice(0, ROWS_MAX);
      waiting = [];
      list.update(rows);
    }
    say();
  };
  const toggle = () => {
    paused = !paused;
    set(pausing, "aria-pressed", String(paused));
    setText(pausing, paused ? "Resume" : "Pause");
    draw();
  };
  const empty = () => {
    [rows, waiting, dropped] = [[], [], 0];
    list.update(rows);
    say();
  };
  partition.input.addEventListener("change", () => page.go(page.path, { partition: partition.input.value }));
  page.add(element("div", { class: "fields card" }, partition.node, pausing, clear, told), element("div", { class: "section" }, list.node));
  empty();
  page.follow(pathOf("topics", topic, "messages", "tail"), { partition: page.query.partition }, ({ name, data }) => {
    if (name !== "message") {
      return;
    }
    waiting.push(data);
    if (waiting.length > WAITING_MAX) {
      waiting.shift();
      dropped += 1;
    }
    drawing ||= setTimeout(draw, DRAW_MS);
  }, (problem) => {
    flowing = problem === null;
    page.tell(topic, problem);
    say();
  });
}
