/** Explanations: decisions, blockers and possible actions. */

import { chip, element, setText } from "../../parts/elements.js";
import { inlineJson, dateTime, withoutUnderscores } from "../../parts/format.js";
import { selectField, field } from "../../parts/forms.js";
import { confirmWrite } from "../../parts/writes.js";
import { get, pathOf } from "../../shell/api.js";
import { href } from "../../shell/routes.js";
import { offsetsPreview } from "../clients/group_changes.js";

const PERIOD_MS = 4000;

/** Style of each state; other states are transitions. @type {Record<string, "good"|"warn"|"bad"|"">} */
const STATE_KINDS = {
  healthy: "good", stable: "good", completed: "good", empty: "", cancelled: "",
  under_replicated: "warn", not_preferred: "warn", open_transaction: "warn", silent: "warn", no_coordinator: "warn",
  falling_behind: "warn", stalled: "bad", stopped: "bad",
  offline: "bad", under_min_isr: "bad", leaderless: "bad", failed: "bad",
  zookeeper_lost: "bad", failed_disk: "bad", full_disk: "bad", rejected_appends: "bad", unopened_replicas: "bad",
  damaged_log: "bad", certificate_expired: "bad", broker_gone: "bad", broker_silent: "warn", leader_unreachable: "warn",
  slow_disk: "warn", throttled_replicas: "warn", stalling: "warn", certificate_expiring: "warn",
};

/** The page of the explained topic, group, plan or broker. @type {Record<string, (rest: string[]) => [string, string]>} */
const PARENTS = {
  partitions: ([topic]) => [href(["topic", topic]), topic],
  groups: ([group]) => [href(["group", group]), group],
  plans: ([id]) => [href(["plan", id]), id],
  brokers: ([id]) => [href(["broker", id]), `Broker ${id}`],
};

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  const [, kind, ...rest] = page.path;
  if (kind === undefined || rest.length === 0) {
    chooseSubject(page);
    return;
  }
  const subject = { partitions: rest.join("-"), brokers: `broker ${rest[0]}` }[kind] ?? rest[0];
  page.title(`Diagnosis of ${subject}`, PARENTS[kind]?.(rest) ?? null);
  const container = element("div", { "aria-busy": "true" });
  page.add(container);
  let shownText = "";
  /** The error if the subject does not exist; the request is then not repeated. @type {any} */
  let absent = null;
  const refresh = page.poll(PERIOD_MS, async () => {
    if (absent) {
      throw absent;
    }
    const response = await get(pathOf("why", kind, ...rest), {}, page.signal).catch((error) => {
      absent = error.status === 404 && shownText === "" ? error : null;
      throw error;
    });
    const text = JSON.stringify(response);
    if (text !== shownText) {
      shownText = text;
      container.replaceChildren(...explanation(response, () => refresh()));
      container.removeAttribute("aria-busy");
    }
  });
}

function chooseSubject(page) {
  page.title("Why?");
  const kind = selectField({ label: "Subject", name: "kind" }, [["partitions", "A partition"], ["groups", "A group"], ["plans", "A plan"], ["brokers", "A broker"]]);
  const name = field({ label: "Name", name: "name", required: true, autocomplete: "off", spellcheck: "false" });
  const hint = element("p", { class: "hint" });
  const hints = { partitions: "A topic and a number: orders-3.", groups: "The group's name.", plans: "The plan's ID: plan-0000000001.", brokers: "The broker's ID: 2." };
  const updateVisibility = () => setText(hint, hints[kind.input.value]);
  kind.input.addEventListener("change", updateVisibility);
  updateVisibility();
  page.add(
    element("p", { class: "muted" }, "Shows the decisions about a partition, group, plan or broker, their causes, and current blockers."),
    element("form", {
      class: "form card section",
      onsubmit: (event) => {
        event.preventDefault();
        page.go(["why", kind.input.value, ...subject(kind.input.value, name.input.value.trim())]);
      },
    }, element("div", { class: "pair" }, kind.node, name.node), hint, element("div", { class: "buttons" }, element("button", { class: "primary" }, "Explain"))));
}

function subject(kind, text) {
  const [, topic, number] = /^(.*)-(\d+)$/.exec(text) ?? [];
  return kind === "partitions" ? [topic ?? text, number ?? "0"] : [text];
}

function explanation(response, changed) {
  return [
    element("div", { class: "card stack" }, element("p", null, chip(STATE_KINDS[response.state] ?? "busy", withoutUnderscores(response.state))), element("p", { class: "why-summary" }, response.summary)),
    section("Waiting for", response.waits_for.map((sentence) => element("li", null, sentence)), "Nothing."),
    section("Possible actions", response.you_can.map((option) => actionRow(option, changed)), "Nothing needs to be done."),
    section("Decisions", response.decided.map(decision), "No decisions are recorded."),
    facts(response.facts ?? {}),
  ];
}

function section(heading, items, emptyText) {
  return element("section", { class: "section" }, element("h2", null, heading),
    items.length ? element("ul", { class: "card why-list" }, items) : element("p", { class: "muted" }, emptyText));
}

function actionRow({ text, request }, changed) {
  const button = request
    ? element("button", { type: "button", class: "tight", "aria-label": `Execute: ${text}`, onclick: async () => (await execute(text, request)) && changed() }, "Execute…")
    : null;
  return element("li", { class: "can" }, element("span", null, text), button);
}

function execute(text, { method, path, body }) {
  const [address, query = ""] = path.split(/\?(.*)/s);
  return confirmWrite({
    title: text, method, path: address, query: Object.fromEntries(new URLSearchParams(query)), body: body ?? undefined,
    confirm: "Execute", danger: method === "DELETE", done: `Done: ${text}`,
    preview: ({ offsets }) => (offsets && method === "POST" ? offsetsPreview(offsets) : null),
  });
}

function decision({ at_ms: at, broker_id: broker, controller_epoch: epoch, event, change }) {
  return element("li", null,
    element("p", null, typeof change === "string" ? sentence(change) : element("span", { class: "mono small" }, inlineJson(change ?? ""))),
    element("p", { class: "muted small" }, [dateTime(at), broker === null || broker === undefined ? null : `broker ${broker}`,
      epoch === null || epoch === undefined ? null : `controller epoch ${epoch}`, event ? `event: ${inlineJson(event)}` : null].filter(Boolean).join(" · ")));
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function facts(factsByName) {
  const entries = Object.entries(factsByName);
  return element("section", { class: "section" }, element("details", null, element("summary", null, "All facts"),
    element("dl", { class: "facts card" }, entries.flatMap(([name, value]) => [
      element("dt", null, withoutUnderscores(name)), element("dd", { class: "mono" }, inlineJson(value))]))));
}
