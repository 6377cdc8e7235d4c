/** Starts the dashboard: maps addresses to pages, and builds the header and the navigation bar. */

import { element, set, setText } from "./parts/elements.js";
import { setListeners } from "./shell/api.js";
import { cluster, onMetrics, startMetrics } from "./shell/cluster_metrics.js";
import { requestLogin, showAccount } from "./shell/login.js";
import { updateBanner } from "./shell/connection_banner.js";
import { drawNavigation, markCurrent } from "./shell/navigation.js";
import { leavePage } from "./shell/notifications.js";
import { Page } from "./shell/page.js";
import { parseHash } from "./shell/routes.js";
import { startShortcuts, showShortcuts } from "./shell/shortcuts.js";
import { onTheme, currentTheme, toggleTheme } from "./shell/theme.js";
import * as acls from "./pages/access/acls.js";
import * as broker from "./pages/brokers/broker.js";
import * as brokers from "./pages/brokers/brokers.js";
import * as client from "./pages/clients/client.js";
import * as clients from "./pages/clients/clients.js";
import * as group from "./pages/clients/group.js";
import * as groups from "./pages/clients/groups.js";
import * as messages from "./pages/messages/messages.js";
import * as newTopic from "./pages/topics/new_topic.js";
import * as newPlan from "./pages/plans/new_plan.js";
import * as overview from "./pages/cluster/overview.js";
import * as plan from "./pages/plans/plan.js";
import * as plans from "./pages/plans/plans.js";
import * as quotas from "./pages/access/quotas.js";
import * as subscription from "./pages/clients/subscription.js";
import * as timeline from "./pages/cluster/timeline.js";
import * as topic from "./pages/topics/topic.js";
import * as topics from "./pages/topics/topics.js";
import * as users from "./pages/access/users.js";
import * as why from "./pages/cluster/why.js";

/** Pages by the first part of the address: `topic` for `topic/NAME`. */
const PAGES = {
  "": overview, brokers, broker, topics, topic, messages, groups, group, plans, plan, why, timeline,
  acls, users, quotas, clients, client, subscription,
  "topics/new": newTopic, "plans/new": newPlan,
};

const forever = new AbortController().signal;
const main = document.getElementById("main");
let pageLifetime = new AbortController();
let shownHash = null;

function route() {
  const address = parseHash(location.hash);
  if (address === null) {
    return;
  }
  const { path, query } = address;
  leavePage();
  pageLifetime.abort();
  pageLifetime = new AbortController();
  const page = new Page(main, path, query, pageLifetime.signal);
  const module = PAGES[path.slice(0, 2).join("/")] ?? PAGES[path[0] ?? ""];
  markCurrent(path[0] ?? "");
  if (module) {
    module.open(page);
  } else {
    page.title("No such page");
    page.add(element("p", null, "This page does not exist. ", element("a", { href: "#/" }, "Overview")));
  }
  if (shownHash !== null) {
    scrollTo(0, 0);
    if (!main.contains(document.activeElement)) { // a form has given the focus to its first field
      page.heading.focus({ preventScroll: true });
    }
  }
  shownHash = location.hash;
}

function drawTools() {
  const theme = element("button", { class: "quiet tight", type: "button", onclick: () => switchTheme() });
  const help = element("button", { class: "quiet tight", type: "button", onclick: showShortcuts }, "Keys", element("kbd", { class: "unseen" }, " ?"));
  const updateLabel = () => {
    setText(theme, currentTheme() === "dark" ? "Light" : "Dark");
    set(theme, "aria-label", currentTheme() === "dark" ? "Light theme" : "Dark theme");
  };
  const switchTheme = () => {
    toggleTheme();
    updateLabel();
  };
  onTheme(updateLabel);
  updateLabel();
  document.getElementById("tools").append(theme, help);
  return switchTheme;
}

function showClusterInfo() {
  const info = document.getElementById("cluster-info");
  const text = `cluster ${cluster.cluster_id}, as reported by broker ${cluster.broker_id}`;
  if (info.textContent !== text) {
    info.replaceChildren("cluster ", element("code", null, cluster.cluster_id), `, as reported by broker ${cluster.broker_id}`);
  }
}

setListeners({ onReachability: updateBanner, requestLogin });
drawNavigation();
startShortcuts(drawTools());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
route();
showAccount();
startMetrics(forever);
onMetrics(forever, showClusterInfo);
