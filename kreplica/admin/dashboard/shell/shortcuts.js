/** Keyboard shortcuts and their list.  Shortcuts of one letter can be turned off. */

import { element } from "../parts/elements.js";
import { leaveButton, openDialog } from "../parts/dialogs.js";
import { checkbox } from "../parts/forms.js";
import { ENTRIES } from "./navigation.js";

const OFF = "kreplica.keys.off";
const CHORD_MS = 1200;

let chordUntil = 0;

/** @param {() => void} switchTheme */
export function startShortcuts(switchTheme) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) {
      return;
    }
    if (localStorage.getItem(OFF) === "1") {
      return;
    }
    if (pressed(event.key, switchTheme)) {
      event.preventDefault();
    }
  });
}

function typing(target) {
  return target instanceof HTMLElement && (target.matches("input:not([type=checkbox]), textarea, select") || target.isContentEditable);
}

function pressed(key, switchTheme) {
  const chord = performance.now() < chordUntil;
  chordUntil = 0;
  const entry = chord ? ENTRIES.find(([, , letter]) => letter === key) : undefined;
  if (entry) {
    location.hash = `#/${entry[0]}`;
  } else if (key === "g") {
    chordUntil = performance.now() + CHORD_MS;
  } else if (key === "/") {
    const search = /** @type {HTMLElement|null} */ (document.querySelector("main input[type=search]"));
    search?.focus();
    return search !== null;
  } else if (key === "?") {
    showShortcuts();
  } else if (key === "d") {
    switchTheme();
  } else {
    return false;
  }
  return true;
}

export function showShortcuts() {
  openDialog("Keys", (close) => {
    const off = checkbox({ label: "Use these keys", checked: localStorage.getItem(OFF) !== "1" });
    off.input.addEventListener("change", () => localStorage.setItem(OFF, off.input.checked ? "0" : "1"));
    const keys = [
      ...ENTRIES.map(([, title, letter]) => [`g ${letter}`, title]),
      ["/", "Search in this page"], ["d", "Dark or light"], ["?", "This list"], ["Esc", "Leave a dialog"],
      ["arrows", "Move in the map of brokers; Enter opens the explanation"],
    ];
    return {
      content: [
        element("dl", { class: "facts keys" }, keys.flatMap(([key, what]) => [
          element("dt", null, key.split(" ").flatMap((part) => [element("kbd", null, part), " "])), element("dd", null, what)])),
        off.node,
        element("div", { class: "buttons" }, leaveButton(close, "Close")),
      ],
    };
  });
}
