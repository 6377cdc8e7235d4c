/**
 * Fields with their labels.
 *
 * @typedef {{node: HTMLElement, input: any}} Field
 */

import { get, pathOf } from "../shell/api.js";
import { element, setText } from "./elements.js";

let numbered = 0;

/**
 * @param {Record<string, any>} options  `label`, `hint`, and the attributes of the input (`tag` for another element)
 * @returns {Field}
 */
export function field({ label, hint, tag = "input", children = [], ...attributes }) {
  const id = `field-${(numbered += 1)}`;
  const described = hint ? `${id}-hint` : null;
  const input = element(tag, { id, "aria-describedby": described, ...attributes }, children);
  const node = element("div", { class: "field" },
    element("label", { for: id }, label), input, hint ? element("p", { class: "hint", id: described }, hint) : null);
  return { node, input };
}

/**
 * @param {Record<string, any>} options  of `field`
 * @param {[string, string][]} choices  value and text
 * @param {string} [chosen]
 * @returns {Field}
 */
export function choice(options, choices, chosen) {
  const made = field({ ...options, tag: "select" });
  setChoices(made.input, choices, chosen);
  return made;
}

/** @param {HTMLSelectElement} select @param {[string, string][]} choices @param {string} [chosen] */
export function setChoices(select, choices, chosen = select.value) {
  select.replaceChildren(...choices.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
}

/** @param {Record<string, any>} options @returns {Field} */
export function checkbox({ label, ...attributes }) {
  const input = element("input", { type: "checkbox", ...attributes });
  return { node: element("label", { class: "check" }, input, label), input };
}

/**
 * A group of checkboxes; `chosen()` has the values of those that are set.
 *
 * @param {string} legend
 * @param {[string, string][]} choices  value and text
 * @param {string[]} [chosen]
 */
export function checkboxes(legend, choices, chosen = []) {
  const boxes = choices.map(([value, text]) => checkbox({ label: text, value, checked: chosen.includes(value) }));
  return {
    node: element("fieldset", null, element("legend", null, legend), element("div", { class: "fields" }, boxes.map((box) => box.node))),
    chosen: () => boxes.filter((box) => box.input.checked).map((box) => box.input.value),
  };
}

/** A field for a topic's name, with the existing topics as suggestions. @param {Record<string, any>} options @returns {Field} */
export function topicField(options) {
  const list = element("datalist", { id: `topics-${(numbered += 1)}` });
  const made = field({ autocomplete: "off", spellcheck: "false", ...options, list: list.id });
  made.node.append(list);
  const suggest = delayed(async () => {
    const names = made.input.value.split(/[\s,]+/);
    const { topics } = await get(pathOf("topics"), { search: names.pop(), limit: 30 });
    const before = names.length ? `${names.join(", ")}, ` : "";
    list.replaceChildren(...topics.map(({ name }) => element("option", { value: before + name })));
  });
  made.input.addEventListener("input", suggest);
  made.input.addEventListener("focus", suggest);
  return made;
}

/** The names in a field, separated by commas or spaces. @param {string} text */
export function names(text) {
  return text.split(/[\s,]+/).filter((name) => name !== "");
}

/** The number in a field; undefined if it is empty. @param {HTMLInputElement} input */
export function numberIn(input) {
  return input.value.trim() === "" ? undefined : Number(input.value);
}

/** A function that runs the task after a pause without further calls (debounce). @param {() => any} task */
export function delayed(task, wait_ms = 200) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => Promise.resolve(task()).catch(() => {}), wait_ms);
  };
}

/** Show the error of a field below it; an empty text removes the error. @param {Field} made @param {string} text */
export function complain(made, text) {
  let place = made.node.querySelector(".wrong");
  if (!place) {
    place = element("p", { class: "wrong small", role: "alert" });
    made.node.append(place);
  }
  setText(place, text);
  made.input.setAttribute("aria-invalid", text ? "true" : "false");
}
