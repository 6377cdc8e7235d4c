/** Shows the addresses of other brokers while the broker that serves the page does not respond. */

import { element } from "../parts/elements.js";
import { announce } from "./news.js";

const PATIENCE = 2;

let misses = 0;

/** Last known admin URLs of the cluster. @type {Map<number, string>} */
const addresses = new Map();

/** @param {{broker_id: number, admin_url: string|null}[]} brokers */
export function rememberBrokers(brokers) {
  for (const { broker_id: number, admin_url: url } of brokers) {
    if (url) {
      addresses.set(number, url);
    }
  }
}

/** @param {boolean} answered */
export function reached(answered) {
  const place = document.getElementById("lost");
  if (answered) {
    if (misses >= PATIENCE) {
      place.hidden = true;
      announce("The broker answers again.");
    }
    misses = 0;
    return;
  }
  misses += 1;
  if (misses === PATIENCE) {
    place.replaceChildren(element("p", null, element("strong", null, "The broker that serves this page does not answer. "),
      "The page retries every second."), ...others());
    place.hidden = false;
  }
}

function others() {
  const links = [...addresses].filter(([, url]) => new URL(url).origin !== location.origin)
    .map(([number, url]) => element("li", null, element("a", { href: `${url}/${location.hash}` }, `Continue at broker ${number}`)));
  return links.length ? [element("ul", null, links)] : [];
}
