/** Starts the dashboard: maps addresses to pages, and builds the frame of all pages. */

import { element, set, setText } from "./parts/elements.js";
import { listen } from "./shell/api.js";
import { cluster, onFigures, startFigures } from "./shell/figures.js";
import { askToLogIn, showAccount } from "./shell/login.js";
import { reached } from "./shell/lost.js";
import { drawNavigation, markCurrent } from "./shell/navigation.js";
import { Page } from "./shell/page.js";
import { parsed } from "./shell/routes.js";
import { startShortcuts, showShortcuts } from "./shell/shortcuts.js";
import { onTheme, shownTheme, toggleTheme } from "./shell/theme.js";
import * as acls from "./pages/acls.js";
import * as broker from "./pages/broker.js";
import * as brokers from "./pages/brokers.js";
import * as group from "./pages/group.js";
import * as groups from "./pages/groups.js";
import * as messages from "./pages/messages.js";
import * as newTopic from "./pages/new_topic.js";
import * as newPlan from "./pages/new_plan.js";
import * as overview from "./pages/overview.js";
import * as plan from "./pages/plan.js";
import * as plans from "./pages/plans.js";
import * as quotas from "./pages/quotas.js";
import * as timeline from "./pages/timeline.js";
import * as topic from "./pages/topic.js";
import * as topics from "./pages/topics.js";
import * as users from "./pages/users.js";
import * as why from "./pages/why.js";

/** Pages by the first part of the address, such as `topics`, or `topic` in `topic/NAME`. */
const PAGES = {
  "": overview, brokers, broker, topics, topic, messages, groups, group, plans, plan, why, timeline,
  acls, users, quotas,
  "topics/new": newTopic, "plans/new": newPlan,
};

const forever = new AbortController().signal;
const main = document.getElementById("main");
let open = new AbortController();
let shown = null;

function route() {
  const address = parsed(location.hash);
  if (address === null) {
    return;
  }
  const { path, query } = address;
  open.abort();
  open = new AbortController();
  const page = new Page(main, path, query, open.signal);
  const module = PAGES[path.slice(0, 2).join("/")] ?? PAGES[path[0] ?? ""];
  markCurrent(path[0] ?? "");
  if (module) {
    module.open(page);
  } else {
    page.title("No such page");
    page.add(element("p", null, "This page does not exist. ", element("a", { href: "#/" }, "Overview")));
  }
  if (shown !== null) {
    scrollTo(0, 0);
    page.heading.focus({ preventScroll: true });
  }
  shown = location.hash;
}

function drawTools() {
  const theme = element("button", { class: "quiet tight", type: "button", onclick: () => switchTheme() });
  const help = element("button", { class: "quiet tight", type: "button", onclick: showShortcuts }, "Keys", element("kbd", { class: "unseen" }, " ?"));
  const say = () => {
    setText(theme, shownTheme() === "dark" ? "Light" : "Dark");
    set(theme, "aria-label", shownTheme() === "dark" ? "Light theme" : "Dark theme");
  };
  const switchTheme = () => {
    toggleTheme();
    say();
  };
  onTheme(say);
  say();
  document.getElementById("tools").append(theme, help);
  return switchTheme;
}

function showWhere() {
  const where = document.getElementById("where");
  const text = `cluster ${cluster.cluster_id}, seen by broker ${cluster.broker_id}`;
  if (where.textContent !== text) {
    where.replaceChildren("cluster ", element("code", null, cluster.cluster_id), `, seen by broker ${cluster.broker_id}`);
  }
}

listen({ reached, askToLogIn });
drawNavigation();
startShortcuts(drawTools());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
route();
showAccount();
startFigures(forever);
onFigures(forever, showWhere);
