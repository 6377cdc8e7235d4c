/** The argument of page modules: the page's element, its address, and tasks that end when it is left. */

import { element, setText } from "../parts/elements.js";
import { problemArea } from "../parts/problems.js";
import { Problem } from "./api.js";
import { keepNotification } from "./notifications.js";
import { poll } from "./polling.js";
import { href } from "./routes.js";
import { follow } from "./streams.js";

export class Page {
  /**
   * @param {HTMLElement} outlet
   * @param {string[]} path  decoded
   * @param {Record<string, string>} query
   * @param {AbortSignal} signal  aborted when the page is left
   */
  constructor(outlet, path, query, signal) {
    this.outlet = outlet;
    this.path = path;
    this.query = query;
    this.signal = signal;
    this.heading = element("h1", { tabindex: "-1" });
    this.breadcrumb = element("p", { class: "crumb", hidden: true });
    this.actions = element("div", { class: "actions" });
    this.problem = problemArea();
    this.problems = new Map();
    outlet.replaceChildren(
      element("div", { class: "head" }, element("div", null, this.breadcrumb, this.heading), this.actions), this.problem.node);
  }

  /**
   * @param {string} title
   * @param {[string, string]|null} [parent]  address and title of the parent page
   */
  title(title, parent = null) {
    setText(this.heading, title);
    document.title = `${title} · kreplica`;
    if (parent) {
      this.breadcrumb.hidden = false;
      this.breadcrumb.replaceChildren(element("a", { href: parent[0] }, parent[1]), " /");
    }
  }

  /** @param {...any} children  null and false are omitted */
  add(...children) {
    this.outlet.append(...children.flat().filter(Boolean));
  }

  /**
   * @param {string} heading
   * @param {...any} children
   * @returns {HTMLElement} a section with its heading, at the end of the page
   */
  section(heading, ...children) {
    const node = element("section", { class: "section" }, element("h2", null, heading), children);
    this.add(node);
    return node;
  }

  /**
   * Repeat a task while the page is open and visible; show the last problem at the top.
   *
   * @param {number} period_ms
   * @param {() => Promise<void>} task
   * @returns {() => void} runs the task at once
   */
  poll(period_ms, task) {
    let failures = 0;
    return poll(this.signal, period_ms, task, (error) => {
      failures = error === null ? 0 : failures + 1;
      // Retry once before showing the problem: the broker may be busy for a moment.
      const isTransient = error instanceof Problem && (error.status === 0 || error.status >= 500) && failures === 1;
      this.showProblem(task, isTransient ? null : error);
    });
  }

  /** Run a task once. @param {() => Promise<void>} task */
  async once(task) {
    try {
      await task();
      this.showProblem(task, null);
    } catch (error) {
      if (!this.signal.aborted) {
        this.showProblem(task, error);
      }
    }
  }

  /** @param {any} source  identifies the problem: each source has at most one @param {Error|null} error */
  showProblem(source, error) {
    if (error) {
      this.problems.set(source, error);
    } else {
      this.problems.delete(source);
    }
    this.problem.show([...this.problems.values()].at(-1) ?? null);
  }

  /**
   * Follow a stream while the page is open; by default, show why the broker rejects it at the top.
   *
   * @param {string} path
   * @param {Record<string, any>} query
   * @param {(event: any) => void} onEvent
   * @param {(state: import("./streams.js").StreamState, problem: any) => void} [onState]
   */
  follow(path, query, onEvent, onState = (state, problem) => this.showProblem(path, state === "rejected" ? problem : null)) {
    follow(path, query, this.signal, onEvent, onState);
  }

  /** Open another page. @param {(string|number)[]} path @param {Record<string, any>} [query] */
  go(path, query = {}) {
    const address = href(path, query);
    if (location.hash !== address) {
      keepNotification();
      location.hash = address;
    }
  }

  /** Update the query of the address without opening the page again. @param {Record<string, any>} query */
  setQuery(query) {
    if (this.signal.aborted) {
      return; // a delayed call, after the user has opened another page
    }
    this.query = Object.fromEntries(
      Object.entries({ ...this.query, ...query }).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false));
    history.replaceState(null, "", href(this.path, this.query));
  }
}
