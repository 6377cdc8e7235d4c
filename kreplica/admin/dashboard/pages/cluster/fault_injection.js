/** Cards of the brokers of one process, with buttons that kill, pause and disconnect them, to demonstrate failover. */

import { confirmAction } from "../../parts/confirm_dialog.js";
import { chipPart, element, updateChildren, set, setText, show } from "../../parts/elements.js";
import { pluralize } from "../../parts/format.js";
import { problemArea } from "../../parts/problems.js";
import { request, get, pathOf } from "../../shell/api.js";
import { cluster } from "../../shell/cluster_metrics.js";
import { announce } from "../../shell/notifications.js";

const STATES = {
  running: ["good", "Running"], paused: ["warn", "Paused"], cut: ["warn", "Disconnected"], dead: ["bad", "Dead"],
};

/** Buttons by state: label, action, and message after success. */
const BUTTONS = [
  (state) => (state === "dead" ? ["Start", "start", "was started"] : ["Kill", "kill", "was killed"]),
  (state) => (state === "paused" ? ["Resume", "resume", "was resumed"] : ["Pause", "pause", "was paused"]),
  (state) => (state === "cut" ? ["Reconnect", "mend", "was reconnected"] : ["Disconnect", "cut", "was disconnected"]),
];

const ALLOWED = { running: ["kill", "pause", "cut"], paused: ["kill", "resume"], cut: ["kill", "mend"], dead: ["start"] };

/** @param {import("../../shell/page.js").Page} page */
export function faultInjection(page) {
  const cards = element("ul", { class: "break-cards" });
  const problem = problemArea();
  const node = page.section("Fault injection", element("p", { class: "muted" },
    "These brokers run in one process. Stop one and watch another take over; no acknowledged record is lost."), cards, problem.node);
  node.hidden = true;
  let onChanged = () => {};
  let isDisabled = false;
  const injectFault = async (broker, [, action, message]) => {
    problem.show(null);
    try {
      if (await isConfirmed(broker, action)) {
        await request("POST", pathOf("standalone", "brokers", broker.broker_id, action));
        announce(`Broker ${broker.broker_id} ${message}.`);
      }
    } catch (error) {
      problem.show(error);
    }
    onChanged();
  };
  return {
    onChange(listener) {
      onChanged = listener;
    },
    async update(brokers) {
      if (cluster === null || !cluster.standalone || isDisabled) {
        return;
      }
      const states = await loadStates(page.signal);
      isDisabled = states.length === 0;
      show(node, !isDisabled);
      const registeredById = new Map(brokers.map((broker) => [broker.broker_id, broker]));
      updateChildren(cards, states.map((state) => ({ ...state, registered: registeredById.get(state.broker_id) })), (broker) => broker.broker_id, () => card(injectFault));
    },
  };
}

/** Empty if the process has only one broker, because no other broker could take over. */
async function loadStates(signal) {
  try {
    return (await get(pathOf("standalone"), {}, signal)).brokers;
  } catch (error) {
    if (error.status === 404) {
      return [];
    }
    throw error;
  }
}

/**
 * Asks for confirmation of a kill, whose button is where "Start" was a moment before, and of any fault of the broker that
 * serves this page, since the page would stop updating.
 */
async function isConfirmed({ broker_id: id, registered }, action) {
  const isServer = registered?.admin_url === location.origin && ["kill", "pause", "cut"].includes(action);
  if (action !== "kill" && !isServer) {
    return true;
  }
  const texts = [
    action === "kill" ? "The broker stops without a shutdown, and its connections break. Other brokers take over, and you can start it again here." : "",
    isServer ? "This page will not be updated until the broker is back. The other brokers serve the same page at their admin addresses." : "",
  ];
  return confirmAction({
    title: action === "kill" ? `Kill broker ${id}?` : `Broker ${id} serves this page`,
    text: texts.filter(Boolean).join(" "),
    confirm: action === "kill" ? "Kill" : "Continue",
    danger: action === "kill",
  });
}

function card(injectFault) {
  const name = element("h3");
  const state = chipPart((broker) => (broker.starting ? ["busy", "Starting"] : STATES[broker.state] ?? ["", broker.state]))();
  const summary = element("p", { class: "muted small" });
  let broker = null;
  const buttons = BUTTONS.map((buttonFor) => {
    const node = element("button", { class: "tight", type: "button", onclick: () => injectFault(broker, buttonFor(broker.state)) });
    return { buttonFor, node };
  });
  return {
    node: element("li", { class: "card" }, element("div", { class: "break-head" }, name, state.node), summary,
      element("div", { class: "break-buttons" }, buttons.map((button) => button.node))),
    update(item) {
      broker = item;
      setText(name, `Broker ${item.broker_id}`);
      state.update(item);
      setText(summary, summaryOf(item));
      buttons.forEach(({ buttonFor, node }) => {
        const [label, action] = buttonFor(item.state);
        setText(node, label);
        set(node, "aria-label", `${label} broker ${item.broker_id}`);
        set(node, "class", `tight ${label === "Kill" ? "danger" : ""}`);
        set(node, "disabled", item.starting || !ALLOWED[item.state]?.includes(action));
      });
    },
  };
}

function summaryOf({ registered }) {
  if (!registered || registered.live === false) {
    return "Not in the cluster: it leads no partitions.";
  }
  return `${registered.is_controller ? "Controller. " : ""}Leads ${pluralize(registered.leaders, "partition")}, has ${pluralize(registered.replicas, "replica")}.`;
}
