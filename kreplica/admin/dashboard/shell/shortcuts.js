/** Keyboard shortcuts, and the dialog that lists them and can turn them off. */

import { element } from "../parts/elements.js";
import { dismissButton, openDialog } from "../parts/dialogs.js";
import { checkbox } from "../parts/forms.js";
import { ENTRIES } from "./navigation.js";

const OFF = "kreplica.keys.off";
const CHORD_MS = 1200;

let chordUntil = 0;

/** @param {() => void} switchTheme */
export function startShortcuts(switchTheme) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTextField(event.target) || document.querySelector("dialog[open]")) {
      return;
    }
    if (localStorage.getItem(OFF) === "1") {
      return;
    }
    if (handleKey(event.key, switchTheme)) {
      event.preventDefault();
    }
  });
}

function isTextField(target) {
  return target instanceof HTMLElement && (target.matches("input:not([type=checkbox]), textarea, select") || target.isContentEditable);
}

function handleKey(key, switchTheme) {
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
    const enabled = checkbox({ label: "Use these keys", checked: localStorage.getItem(OFF) !== "1" });
    enabled.input.addEventListener("change", () => localStorage.setItem(OFF, enabled.input.checked ? "0" : "1"));
    const keys = [
      ...ENTRIES.map(([, title, letter]) => [`g ${letter}`, title]),
      ["/", "Search in this page"], ["d", "Switch the theme"], ["?", "Show this list"], ["Esc", "Close the dialog"],
      ["arrows", "Move in the map of replicas; Enter opens an explanation"],
    ];
    return {
      content: [
        element("dl", { class: "facts keys" }, keys.flatMap(([key, description]) => [
          element("dt", null, key.split(" ").flatMap((part) => [element("kbd", null, part), " "])), element("dd", null, description)])),
        enabled.node,
        element("div", { class: "buttons" }, dismissButton(close, "Close")),
      ],
    };
  });
}
