/** Parses and formats the part of the address after `#`. */

/**
 * @param {(string|number)[]} path
 * @param {Record<string, any>} [query]  empty values are omitted
 */
export function href(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) {
      parameters.set(name, String(value));
    }
  }
  const text = parameters.toString();
  return `#/${path.map((part) => encodeURIComponent(String(part))).join("/")}${text ? `?${text}` : ""}`;
}

/**
 * @param {string} hash
 * @returns {{path: string[], query: Record<string, string>}|null} null if it is not the address of a page
 */
export function parseHash(hash) {
  if (hash !== "" && !hash.startsWith("#/")) {
    return null;
  }
  const [path, query = ""] = hash.slice(2).split(/\?(.*)/s);
  return {
    path: path.split("/").filter((part) => part !== "").map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of the page with an explanation. @param {string} path  of the API, such as `/v1/why/partitions/orders/0` */
export function explanationPage(path) {
  return href(["why", ...path.split("/").slice(3).map(decodeURIComponent)]);
}
