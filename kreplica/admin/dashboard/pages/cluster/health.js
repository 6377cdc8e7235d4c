/** The health report of the cluster: the most important fault, and a list of the others, with links to explanations. */

import { element, set } from "../../parts/elements.js";
import { count } from "../../parts/format.js";
import { explanationPage } from "../../shell/routes.js";

/** Maximum number of listed faults and problems. */
const FAULTS_MAX = 12;

/** @returns {import("../../parts/elements.js").Part}  updated with the report of `/v1/cluster` */
export function healthPart() {
  const sentence = element("p", { class: "health" }, "…");
  const list = element("ul", { class: "faults", "aria-label": "More faults" });
  list.hidden = true;
  let shown = "";
  return {
    node: element("div", null, sentence, list),
    update({ state, summary, faults, problems }) {
      const key = JSON.stringify([summary, faults, problems]);
      set(sentence, "class", `health ${state}`);
      if (key !== shown) {
        shown = key;
        sentence.replaceChildren(element("span", null, summary, faults.length ? link(faults[0]) : null));
        const rows = [...problems.map((text) => element("li", null, text)),
          ...faults.slice(1).map(faultItem)];
        const omitted = rows.length - FAULTS_MAX;
        list.replaceChildren(...rows.slice(0, FAULTS_MAX),
          ...(omitted > 0 ? [element("li", null, `${count(omitted)} more; kreplica cluster lists all.`)] : []));
        list.hidden = rows.length === 0;
      }
    },
  };
}

/** An item of a list of faults. @param {any} fault @returns {HTMLElement} */
export function faultItem(fault) {
  return element("li", { class: fault.severity }, fault.text, link(fault));
}

/** A link to the page with the explanation of a fault, if there is one. */
function link({ text, why }) {
  return why === null ? null : [" ", element("a", { href: explanationPage(why), "aria-label": `Why? ${text}` }, "Why?")];
}
