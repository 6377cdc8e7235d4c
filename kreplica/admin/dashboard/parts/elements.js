/**
 * Creates elements and updates them.  Text always becomes a text node, so the content of topics, keys and messages
 * cannot become markup.
 *
 * @typedef {string|number|Node|null|undefined|false} Child
 * @typedef {{node: Element, update: (item: any) => void}} Part  an element that shows an item; `update` shows another item
 */

const SVG = "http://www.w3.org/2000/svg";

/** Set as properties, because the attributes only set the initial state. */
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected", "open"]);

/**
 * @param {string} tag
 * @param {Record<string, any>|null} [attributes]  `onclick` etc. take functions; null and false omit an attribute
 * @param {...(Child|Child[])} children  arrays may be nested
 * @returns {any} an element of HTML
 */
export function element(tag, attributes, ...children) {
  return withContent(document.createElement(tag), attributes, children);
}

/**
 * @param {string} tag
 * @param {Record<string, any>|null} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes, ...children) {
  return withContent(document.createElementNS(SVG, tag), attributes, children);
}

function withContent(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    set(node, name, value);
  }
  node.append(...children.flat(Infinity).filter(present).map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

function present(child) {
  return child !== null && child !== undefined && child !== false;
}

/** Set an attribute, a property or a listener of an element; null and false remove an attribute. */
export function set(node, name, value) {
  if (typeof value === "function") {
    node.addEventListener(name.slice(2), value);
  } else if (PROPERTIES.has(name)) {
    if (node[name] !== value) {
      node[name] = value ?? "";
    }
  } else if (!present(value)) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value === true ? "" : value);
  }
}

/** Change a text only if it differs, to keep selections and avoid repeated announcements. */
export function setText(node, text) {
  const newText = String(text ?? "");
  if (node.textContent !== newText) {
    node.textContent = newText;
  }
}

/** Show or hide an element. @param {HTMLElement} node @param {boolean} visible */
export function show(node, visible) {
  node.hidden = !visible;
}

/** Set a custom property (`--name`) of the style sheet; the content security policy forbids `style` attributes. */
export function setStyleProperty(node, name, value) {
  node.style.setProperty(name, String(value));
}

/**
 * Show one part per item, in the order of the items; the part of a key is reused.
 *
 * @param {Element} parent  must have no other children
 * @param {Iterable<any>} items
 * @param {(item: any) => string|number} keyOf
 * @param {(item: any) => Part} make
 */
export function updateChildren(parent, items, keyOf, make) {
  const before = partsByParent.get(parent) ?? new Map();
  const after = new Map();
  const list = [...items];
  const keys = new Set(list.map(keyOf));
  for (const [key, part] of before) {
    if (!keys.has(key)) {
      part.node.remove();
    }
  }
  let position = parent.firstChild;
  for (const item of list) {
    const key = keyOf(item);
    if (after.has(key)) {
      continue;
    }
    const part = before.get(key) ?? make(item);
    part.update(item);
    after.set(key, part);
    if (part.node === position) {
      position = position.nextSibling;
    } else {
      parent.insertBefore(part.node, position);
    }
  }
  partsByParent.set(parent, after);
}

/** @type {WeakMap<Element, Map<string|number, Part>>} */
const partsByParent = new WeakMap();

/**
 * A state as a symbol, a text and a colour.
 *
 * @param {""|"good"|"warn"|"bad"|"busy"} kind
 * @param {string} text
 */
export function chip(kind, text) {
  return element("span", { class: `chip ${kind}` }, text);
}

/**
 * A part that shows a state.
 *
 * @param {(item: any) => [string, string]} stateOf  kind and text
 * @returns {(item: any) => Part}
 */
export function chipPart(stateOf) {
  return () => {
    const node = chip("", "");
    return {
      node,
      update(item) {
        const [kind, text] = stateOf(item);
        set(node, "class", `chip ${kind}`);
        setText(node, text);
      },
    };
  };
}

/**
 * A part that is a link.
 *
 * @param {(item: any) => string} hrefOf
 * @param {(item: any) => string} textOf
 * @returns {(item: any) => Part}
 */
export function linkPart(hrefOf, textOf) {
  return () => {
    const node = element("a");
    return {
      node,
      update(item) {
        set(node, "href", hrefOf(item));
        setText(node, textOf(item));
      },
    };
  };
}

/**
 * A part that is a bar with its value beside it.
 *
 * @param {(item: any) => [number, string]} valueOf  a fraction of 0 to 1, and its text
 * @returns {(item: any) => Part}
 */
export function barPart(valueOf) {
  return () => {
    const fill = element("span");
    const value = element("span", { class: "value" });
    const node = element("span", { class: "bar-line" }, element("span", { class: "bar", "aria-hidden": "true" }, fill), value);
    return {
      node,
      update(item) {
        const [fraction, text] = valueOf(item);
        setStyleProperty(fill, "--part", Math.max(0, Math.min(1, fraction)));
        setText(value, text);
      },
    };
  };
}

/**
 * A list of terms and their values, updated in place.
 *
 * @param {string} className
 * @param {Record<string, (item: any) => Child|{text: Child, worry?: boolean}>} terms
 * @returns {Part}
 */
export function termList(className, terms) {
  const node = element("dl", { class: className });
  const rows = Object.entries(terms).map(([term, contentOf]) => {
    const value = element("dd");
    const parts = [element("dt", null, term), value];
    const row = className === "numbers" ? element("div", null, parts) : null;
    node.append(...(row ? [row] : parts));
    return { contentOf, row, value };
  });
  return {
    node,
    update(item) {
      for (const { contentOf, row, value } of rows) {
        const content = contentOf(item);
        if (content instanceof Node) {
          if (!value.firstChild?.isEqualNode(content)) {
            value.replaceChildren(content);
          }
        } else {
          const { text, worry } = content !== null && typeof content === "object" ? content : { text: content, worry: false };
          setText(value, present(text) ? text : "–");
          row?.classList.toggle("worry", Boolean(worry));
        }
      }
    },
  };
}
