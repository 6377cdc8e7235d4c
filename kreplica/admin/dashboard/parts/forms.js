/**
 * Fields with their labels.
 *
 * @typedef {{node: HTMLElement, input: any}} Field
 */

import { get, pathOf } from "../shell/api.js";
import { element, setText, show } from "./elements.js";

let idCount = 0;

/**
 * @param {Record<string, any>} options  `label`, `hint`, and the attributes of the input (`tag` for another element)
 * @returns {Field}
 */
export function field({ label, hint, tag = "input", children = [], ...attributes }) {
  const id = `field-${(idCount += 1)}`;
  const hintId = hint ? `${id}-hint` : null;
  const input = element(tag, { id, "aria-describedby": hintId, ...attributes }, children);
  const node = element("div", { class: "field" },
    element("label", { for: id }, label), input, hint ? element("p", { class: "hint", id: hintId }, hint) : null);
  return { node, input };
}

/**
 * @param {Record<string, any>} options  of `field`
 * @param {[string, string][]} choices  value and text
 * @param {string} [selected]
 * @returns {Field}
 */
export function selectField(options, choices, selected) {
  const result = field({ ...options, tag: "select" });
  setOptions(result.input, choices, selected);
  return result;
}

/** @param {HTMLSelectElement} select @param {[string, string][]} choices @param {string} [selected] */
export function setOptions(select, choices, selected = select.value) {
  select.replaceChildren(...choices.map(([value, text]) => {
    const option = element("option", null, text);
    option.value = value; // after the text: an option without the attribute has its text as value
    option.selected = value === selected;
    return option;
  }));
}

/**
 * Fields for the values of a choice: only the field of the selected value is shown and required.
 *
 * @param {Field} choice  a select
 * @param {Record<string, Field>} fields  by the value of the select
 */
export function showWith(choice, fields) {
  const update = () => Object.entries(fields).forEach(([value, each]) => {
    show(each.node, choice.input.value === value);
    each.input.required = choice.input.value === value;
  });
  choice.input.addEventListener("change", update);
  update();
  return { nodes: Object.values(fields).map(({ node }) => node), shown: () => fields[choice.input.value] ?? null };
}

/** @param {Record<string, any>} options  `label`, and the attributes of the input @returns {Field} */
export function checkbox({ label, ...attributes }) {
  const input = element("input", { type: "checkbox", ...attributes });
  return { node: element("label", { class: "check" }, input, label), input };
}

/**
 * A group of checkboxes; `selected()` returns the values of those that are checked.
 *
 * @param {string} legend
 * @param {[string, string][]} choices  value and text
 * @param {string[]} [selected]
 * @param {Record<string, any>} [attributes]  of each checkbox
 */
export function checkboxes(legend, choices, selected = [], attributes = {}) {
  const boxes = choices.map(([value, text]) => checkbox({ label: text, value, checked: selected.includes(value), ...attributes }));
  return {
    node: element("fieldset", null, element("legend", null, legend), element("div", { class: "fields" }, boxes.map((box) => box.node))),
    selected: () => boxes.filter((box) => box.input.checked).map((box) => box.input.value),
  };
}

/** A field for a topic's name, with the existing topics as suggestions. @param {Record<string, any>} options @returns {Field} */
export function topicField(options) {
  const list = element("datalist", { id: `topics-${(idCount += 1)}` });
  const result = field({ autocomplete: "off", spellcheck: "false", ...options, list: list.id });
  result.node.append(list);
  const suggest = debounce(async () => {
    const typed = result.input.value.split(/[\s,]+/);
    const { topics } = await get(pathOf("topics"), { search: typed.pop(), limit: 30 });
    const prefix = typed.length ? `${typed.join(", ")}, ` : "";
    list.replaceChildren(...topics.map(({ name }) => element("option", { value: prefix + name })));
  });
  result.input.addEventListener("input", suggest);
  result.input.addEventListener("focus", suggest);
  return result;
}

/** True if the visible fields have valid values; shows an error at each field whose value is not valid. @param {...Field} fields */
export function areValid(...fields) {
  const visible = fields.filter(({ node }) => !node.hidden);
  visible.forEach((each) => showFieldError(each, invalidText(each.input)));
  return visible.every(({ input }) => input.checkValidity());
}

/** The error of a value; empty for a valid value and for one that is still missing. */
function invalidText({ type, validity, validationMessage, min, max, dataset }) {
  if (validity.badInput) {
    return type === "number" ? "Enter a number." : "";
  }
  if (validity.valid || validity.valueMissing) {
    return "";
  }
  if (validity.patternMismatch) {
    return dataset.invalid ?? validationMessage;
  }
  if (validity.rangeUnderflow) {
    return `Enter at least ${min}.`;
  }
  if (validity.rangeOverflow) {
    return `Enter at most ${max}.`;
  }
  return validity.stepMismatch ? "Enter a whole number." : validationMessage;
}

/** The names in a field, separated by commas or spaces. @param {string} text */
export function splitNames(text) {
  return text.split(/[\s,]+/).filter((name) => name !== "");
}

/** The number in a field; undefined if it is empty. @param {HTMLInputElement} input */
export function numberOf(input) {
  return input.value.trim() === "" ? undefined : Number(input.value);
}

/** A function that runs the task after a pause without further calls (debounce). @param {() => any} task */
export function debounce(task, wait_ms = 200) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => Promise.resolve(task()).catch(() => {}), wait_ms);
  };
}

/** Show an error below a field; an empty text removes it. @param {Field} formField @param {string} text */
export function showFieldError(formField, text) {
  let message = formField.node.querySelector(".wrong");
  if (!message) {
    message = element("p", { class: "wrong small", role: "alert" });
    formField.node.append(message);
  }
  setText(message, text);
  formField.input.setAttribute("aria-invalid", text ? "true" : "false");
}
