/** Messages of a topic: browse, tail and produce. */

import { element } from "../../parts/elements.js";
import { topicField } from "../../parts/forms.js";
import { tabs } from "../../parts/tabs.js";
import { get, pathOf } from "../../shell/api.js";
import { href } from "../../shell/routes.js";
import { browse } from "./browse.js";
import { produce } from "./produce.js";
import { tail } from "./tail.js";

const TABS = { browse: ["Browse", browse], tail: ["Tail", tail], produce: ["Produce", produce] };

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  const [, topic, tab = "browse"] = page.path;
  if (topic === undefined) {
    chooseTopic(page);
    return;
  }
  page.title(topic, ["#/messages", "Messages"]);
  page.actions.append(element("a", { class: "button", href: href(["topic", topic]) }, "Topic details"));
  page.add(tabs("Operations on messages", Object.entries(TABS).map(([name, [title]]) =>
    [href(["messages", topic, ...(name === "browse" ? [] : [name])]), title, name === tab])));
  page.once(async () => {
    const { partitions } = await get(pathOf("topics", topic), {}, page.signal);
    await (TABS[tab] ?? TABS.browse)[1](page, topic, partitions);
  });
}

function chooseTopic(page) {
  page.title("Messages");
  const name = topicField({ label: "Topic", name: "topic", type: "search", required: true });
  const list = element("ul", { class: "topic-links" });
  page.add(
    element("form", { class: "form card", onsubmit: (event) => {
      event.preventDefault();
      page.go(["messages", name.input.value.trim()]);
    } }, name.node, element("div", { class: "buttons" }, element("button", { class: "primary" }, "Show messages"))),
    element("section", { class: "section" }, element("h2", null, "Topics"), list));
  page.once(async () => {
    const { topics } = await get(pathOf("topics"), { limit: 30 }, page.signal);
    list.replaceChildren(...topics.map((topic) =>
      element("li", null, element("a", { class: "button", href: href(["messages", topic.name]) }, topic.name))));
  });
}
