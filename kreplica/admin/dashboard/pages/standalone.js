/** Cards of the brokers of one process, with buttons that kill, pause and isolate them, to demonstrate failover. */

import { confirmed } from "../parts/confirmed.js";
import { chipPart, element, keyed, set, setText, show } from "../parts/elements.js";
import { counted } from "../parts/format.js";
import { problemPlace } from "../parts/problems.js";
import { ask, get, pathOf } from "../shell/api.js";
import { cluster } from "../shell/figures.js";
import { announce } from "../shell/news.js";

const STATES = {
  running: ["good", "Running"], paused: ["warn", "Paused"], cut: ["warn", "Cut off"], dead: ["bad", "Dead"],
};

/** Buttons by state: label, action, and message after success. */
const BUTTONS = [
  (state) => (state === "dead" ? ["Start", "start", "is started"] : ["Kill", "kill", "was killed"]),
  (state) => (state === "paused" ? ["Resume", "resume", "is resumed"] : ["Pause", "pause", "is paused"]),
  (state) => (state === "cut" ? ["Mend", "mend", "is connected again"] : ["Cut", "cut", "is isolated"]),
];

const ALLOWED = { running: ["kill", "pause", "cut"], paused: ["kill", "resume"], cut: ["kill", "mend"], dead: ["start"] };

/** @param {import("../shell/page.js").Page} page */
export function breakIt(page) {
  const cards = element("ul", { class: "break-cards" });
  const problem = problemPlace();
  const node = page.section("Fault injection", element("p", { class: "muted" },
    "These brokers run in one process. Stop one and watch another take over; no acknowledged record is lost."), cards, problem.node);
  node.hidden = true;
  let changed = () => {};
  let absent = false;
  const act = async (broker, [, action, said]) => {
    problem.show(null);
    try {
      if (await meant(broker, action)) {
        await ask("POST", pathOf("standalone", "brokers", broker.broker_id, action));
        announce(`Broker ${broker.broker_id} ${said}.`);
      }
    } catch (error) {
      problem.show(error);
    }
    changed();
  };
  return {
    onChange(again) {
      changed = again;
    },
    async update(brokers) {
      if (cluster === null || !cluster.standalone || absent) {
        return;
      }
      const states = await statesNow(page.signal);
      absent = states.length === 0;
      show(node, !absent);
      const known = new Map(brokers.map((broker) => [broker.broker_id, broker]));
      keyed(cards, states.map((state) => ({ ...state, seen: known.get(state.broker_id) })), (broker) => broker.broker_id, () => card(act));
    },
  };
}

/** No buttons if the process has only one broker, since no other broker could take over. */
async function statesNow(signal) {
  try {
    return (await get(pathOf("standalone"), {}, signal)).brokers;
  } catch (error) {
    if (error.status === 404) {
      return [];
    }
    throw error;
  }
}

/** Asks for confirmation if the broker serves this page, since the page would stop updating. */
async function meant(broker, action) {
  if (broker.seen?.admin_url !== location.origin || !["kill", "pause", "cut"].includes(action)) {
    return true;
  }
  return confirmed({
    title: `Broker ${broker.broker_id} serves this page`,
    text: "The page is not updated until the broker is back. The other brokers serve the same page at their own admin addresses.",
    confirm: "Do it",
  });
}

function card(act) {
  const name = element("h3");
  const state = chipPart((broker) => (broker.starting ? ["busy", "Starting"] : STATES[broker.state] ?? ["", broker.state]))();
  const does = element("p", { class: "muted small" });
  let broker = null;
  const buttons = BUTTONS.map((of) => {
    const node = element("button", { class: "tight", type: "button", onclick: () => act(broker, of(broker.state)) });
    return { of, node };
  });
  return {
    node: element("li", { class: "card" }, element("div", { class: "break-head" }, name, state.node), does,
      element("div", { class: "break-buttons" }, buttons.map((button) => button.node))),
    update(item) {
      broker = item;
      setText(name, `Broker ${item.broker_id}`);
      state.update(item);
      setText(does, doing(item));
      buttons.forEach(({ of, node }) => {
        const [word, action] = of(item.state);
        setText(node, word);
        set(node, "aria-label", `${word} broker ${item.broker_id}`);
        set(node, "class", `tight ${word === "Kill" ? "danger" : ""}`);
        set(node, "disabled", item.starting || !ALLOWED[item.state]?.includes(action));
      });
    },
  };
}

function doing({ seen }) {
  if (!seen || seen.live === false) {
    return "Not in the cluster: it leads no partitions.";
  }
  return `${seen.is_controller ? "Controller. " : ""}Leads ${counted(seen.leaders, "partition")}, has ${counted(seen.replicas, "replica")}.`;
}
