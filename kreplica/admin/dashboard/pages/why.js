/** Explanations: decisions, blockers and possible actions. */

import { chip, element, setText } from "../parts/elements.js";
import { inline, instant } from "../parts/format.js";
import { choice, field } from "../parts/forms.js";
import { confirmWrite } from "../parts/writes.js";
import { worded } from "../parts/timeline_entries.js";
import { get, pathOf } from "../shell/api.js";
import { href } from "../shell/routes.js";

const PERIOD_MS = 4000;

/** Style of each state; other states are transitions. @type {Record<string, "good"|"warn"|"bad"|"">} */
const SHAPES = {
  healthy: "good", stable: "good", completed: "good", empty: "", cancelled: "",
  under_replicated: "warn", not_preferred: "warn", open_transaction: "warn", silent: "warn", no_coordinator: "warn",
  falling_behind: "warn", stalled: "bad", stopped: "bad",
  offline: "bad", under_min_isr: "bad", leaderless: "bad", failed: "bad",
};

/** The page of the explained topic, group, plan or broker. @type {Record<string, (rest: string[]) => [string, string]>} */
const ABOVE = {
  partitions: ([topic]) => [href(["topic", topic]), topic],
  groups: ([group]) => [href(["group", group]), group],
  plans: ([id]) => [href(["plan", id]), id],
};

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  const [, kind, ...rest] = page.path;
  if (kind === undefined || rest.length === 0) {
    asking(page);
    return;
  }
  page.title(`Diagnosis of ${kind === "partitions" ? rest.join("-") : rest[0]}`, ABOVE[kind]?.(rest) ?? null);
  const place = element("div", { "aria-busy": "true" });
  page.add(place);
  let shown = "";
  const again = page.poll(PERIOD_MS, async () => {
    const answer = await get(pathOf("why", kind, ...rest), {}, page.signal);
    const text = JSON.stringify(answer);
    if (text !== shown) {
      shown = text;
      place.replaceChildren(...explained(answer, () => again()));
      place.removeAttribute("aria-busy");
    }
  });
}

function asking(page) {
  page.title("Why?");
  const kind = choice({ label: "What", name: "kind" }, [["partitions", "A partition"], ["groups", "A group"], ["plans", "A plan"]]);
  const name = field({ label: "Name", name: "name", required: true, autocomplete: "off", spellcheck: "false" });
  const hint = element("p", { class: "hint" });
  const hints = { partitions: "A topic and a number: orders-3.", groups: "The group's name.", plans: "The plan's id: plan-0000000001." };
  const adapt = () => setText(hint, hints[kind.input.value]);
  kind.input.addEventListener("change", adapt);
  adapt();
  page.add(
    element("p", { class: "muted" }, "The decisions about a partition, group or plan, their causes, and its current blockers."),
    element("form", {
      class: "form card section",
      onsubmit: (event) => {
        event.preventDefault();
        page.go(["why", kind.input.value, ...subject(kind.input.value, name.input.value.trim())]);
      },
    }, element("div", { class: "pair" }, kind.node, name.node), hint, element("div", { class: "buttons" }, element("button", { class: "primary" }, "Ask"))));
}

function subject(kind, text) {
  const [, topic, number] = /^(.*)-(\d+)$/.exec(text) ?? [];
  return kind === "partitions" ? [topic ?? text, number ?? "0"] : [text];
}

function explained(answer, changed) {
  return [
    element("div", { class: "card stack" }, element("p", null, chip(SHAPES[answer.state] ?? "busy", worded(answer.state))), element("p", { class: "why-summary" }, answer.summary)),
    section("Waiting for", answer.waits_for.map((sentence) => element("li", null, sentence)), "Nothing."),
    section("Possible actions", answer.you_can.map((option) => offer(option, changed)), "Nothing needs to be done."),
    section("Decisions", answer.decided.map(decision), "No decision is recorded."),
    facts(answer.facts ?? {}),
  ];
}

function section(heading, items, nothing) {
  return element("section", { class: "section" }, element("h2", null, heading),
    items.length ? element("ul", { class: "card why-list" }, items) : element("p", { class: "muted" }, nothing));
}

function offer({ text, request }, changed) {
  const button = request
    ? element("button", { type: "button", class: "tight", "aria-label": `Execute: ${text}`, onclick: async () => (await carriedOut(text, request)) && changed() }, "Execute…")
    : null;
  return element("li", { class: "can" }, element("span", null, text), button);
}

function carriedOut(text, { method, path, body }) {
  const [bare, query = ""] = path.split(/\?(.*)/s);
  return confirmWrite({
    title: text, method, path: bare, query: Object.fromEntries(new URLSearchParams(query)), body: body ?? undefined,
    confirm: "Execute", danger: method === "DELETE", done: `Done: ${text}`,
  });
}

function decision({ at_ms: at, broker_id: broker, controller_epoch: epoch, event, change }) {
  return element("li", null,
    element("p", null, typeof change === "string" ? sentence(change) : element("span", { class: "mono small" }, inline(change ?? ""))),
    element("p", { class: "muted small" }, [instant(at), broker === null || broker === undefined ? null : `broker ${broker}`,
      epoch === null || epoch === undefined ? null : `controller epoch ${epoch}`, event ? `event: ${inline(event)}` : null].filter(Boolean).join(" · ")));
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function facts(found) {
  const entries = Object.entries(found);
  return element("section", { class: "section" }, element("details", null, element("summary", null, "All facts"),
    element("dl", { class: "facts card" }, entries.flatMap(([name, value]) => [
      element("dt", null, worded(name)), element("dd", { class: "mono" }, inline(value))]))));
}
