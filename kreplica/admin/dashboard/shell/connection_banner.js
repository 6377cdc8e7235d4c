/** Shows the addresses of other brokers while the broker that serves the page is unreachable. */

import { element } from "../parts/elements.js";
import { announce } from "./notifications.js";

const FAILURES_BEFORE_BANNER = 2;

let failures = 0;

/** Last known admin URL of each broker. @type {Map<number, string>} */
const adminUrls = new Map();

/** @param {{broker_id: number, admin_url: string|null}[]} brokers */
export function rememberAdminUrls(brokers) {
  for (const { broker_id: number, admin_url: url } of brokers) {
    if (url) {
      adminUrls.set(number, url);
    }
  }
}

/** @param {boolean} isReachable */
export function updateBanner(isReachable) {
  const banner = document.getElementById("connection-banner");
  if (isReachable) {
    if (failures >= FAILURES_BEFORE_BANNER) {
      banner.hidden = true;
      announce("The broker responds again.");
    }
    failures = 0;
    return;
  }
  failures += 1;
  if (failures === FAILURES_BEFORE_BANNER) {
    banner.replaceChildren(element("p", null, element("strong", null, "The broker that serves this page does not respond. "),
      "The page retries every second."), ...linksToOthers());
    banner.hidden = false;
  }
}

function linksToOthers() {
  const links = [...adminUrls].filter(([, url]) => new URL(url).origin !== location.origin)
    .map(([number, url]) => element("li", null, element("a", { href: `${url}/${location.hash}` }, `Continue at broker ${number}`)));
  return links.length ? [element("ul", null, links)] : [];
}
