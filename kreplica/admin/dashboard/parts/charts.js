/**
 * Line charts in SVG that can be zoomed by dragging or with the keyboard. Lines differ by stroke as well as by colour,
 * and their values are also shown as text.
 *
 * @typedef {import("../shell/history.js").Point} Point
 * @typedef {{from_ms: number, to_ms: number}} Range
 */

import { element, set, setStyleProperty, setText, show, svg } from "./elements.js";
import { shortTime } from "./format.js";

const CLASSES = ["first", "second", "third"];
const WIDTH = 1000;
const HEIGHT = 100;
/** Shortest distance of a drag, as a part of the chart's width; a shorter one is a click. */
const DRAG_MIN = 0.02;
/** Shortest range after zooming in. */
const RANGE_MIN_MS = 30_000;
const HINT = "Drag over a chart to zoom in. Keys: arrows move, plus and minus zoom, 0 shows the whole range.";

/**
 * @param {object} options
 * @param {string} options.title
 * @param {[string, string][]} options.series  name in the history and label
 * @param {(value: number|null) => string} options.format
 * @param {number} options.minTop  smallest value at the top of the axis
 * @param {string} [options.note]  what the values mean
 * @param {(range: Range|null) => void} options.onZoom  called with a new range; null for the whole one
 * @returns {{node: HTMLElement, update: (range: Range, points: Point[]) => void}}
 */
export function lineChart({ title, series, format, minTop, note, onZoom }) {
  const areas = [svg("path", { class: `area ${CLASSES[0]}` })];
  const lines = series.map((_, index) => svg("path", { class: `line ${CLASSES[index]}` }));
  const grid = [0, 0.5, 1].map((at) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: at * HEIGHT, y2: at * HEIGHT }));
  const marker = svg("line", { class: "marker", x1: 0, x2: 0, y1: 0, y2: HEIGHT, visibility: "hidden" });
  const chosen = svg("rect", { class: "chosen", y: 0, height: HEIGHT, width: 0 });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: "0", "aria-label": title },
    ...grid, ...areas, ...lines, chosen, marker);
  const ticks = [0, 0.5, 1].map((at) => {
    const tick = element("span", { class: "tick", "aria-hidden": "true" });
    setStyleProperty(tick, "--at", at);
    return tick;
  });
  const [start, end] = [element("span"), element("span")];
  const values = series.map(() => element("b"));
  const time = element("li", { class: "muted", hidden: true });
  const node = element("figure", { class: "card chart" },
    element("figcaption", null, element("h3", null, title), note ? element("p", { class: "hint" }, note) : null),
    element("div", { class: "plot" }, drawing, ticks),
    element("p", { class: "span", "aria-hidden": "true" }, start, end),
    element("ul", { class: "legend" }, series.map(([, label], index) => element("li", null, legendLine(index), label, values[index])), time));
  let shown = { range: { from_ms: 0, to_ms: 1 }, points: [] };
  let pointed = null;
  zoomable(drawing, chosen, () => shown.range, onZoom);
  pointable(drawing, (position) => {
    pointed = position;
    showPoint(position);
  });
  return {
    node,
    update(range, points) {
      shown = { range, points: points.filter(({ at_ms: at }) => at >= range.from_ms && at <= range.to_ms) };
      draw();
      if (pointed !== null) {
        showPoint(pointed);
      }
    },
  };

  function draw() {
    const { range, points } = shown;
    const all = points.flatMap((point) => series.map(([name]) => point.values[name] ?? 0));
    const top = roundUp(Math.max(minTop, ...all));
    [top, top / 2, 0].forEach((value, index) => setText(ticks[index], format(value)));
    const summaries = series.map(([name, label], index) => {
      const places = points.map(({ at_ms: at, values: found }) => place(at, found[name] ?? null, range, top));
      set(lines[index], "d", linePath(places));
      if (index === 0) {
        set(areas[0], "d", areaPath(places));
      }
      const known = points.map((point) => point.values[name] ?? null).filter((value) => value !== null);
      setText(values[index], format(known.at(-1) ?? null));
      return `${label} now ${format(known.at(-1) ?? null)}, maximum ${format(known.length ? Math.max(...known) : null)}`;
    });
    setText(start, shortTime(range.from_ms));
    setText(end, shortTime(range.to_ms));
    set(drawing, "aria-label", `${title} from ${shortTime(range.from_ms)} to ${shortTime(range.to_ms)}: ${summaries.join("; ")}. ${HINT}`);
  }

  /** Show the values at a position of the pointer, or the latest ones. @param {number|null} position  part of the width */
  function showPoint(position) {
    const { range, points } = shown;
    const at = position === null ? null : range.from_ms + position * (range.to_ms - range.from_ms);
    const point = at === null ? null : nearest(points, at);
    set(marker, "visibility", point === null ? "hidden" : "visible");
    show(time, point !== null);
    if (point === null) {
      draw();
      return;
    }
    const x = ((point.at_ms - range.from_ms) / (range.to_ms - range.from_ms)) * WIDTH;
    set(marker, "x1", x);
    set(marker, "x2", x);
    setText(time, `at ${shortTime(point.at_ms)}`);
    series.forEach(([name], index) => setText(values[index], format(point.values[name] ?? null)));
  }
}

/**
 * Buttons that choose the range of charts.
 *
 * @param {[number, string][]} ranges  length in milliseconds and label
 * @param {(length_ms: number) => void} choose
 */
export function rangeButtons(ranges, choose) {
  const buttons = ranges.map(([length_ms, label]) => element("button", { type: "button", class: "tight", onclick: () => choose(length_ms) }, label));
  const resetButton = element("button", { type: "button", class: "tight", hidden: true, onclick: () => choose(0) }, "Whole range");
  return {
    node: element("div", { class: "ranges", role: "group", "aria-label": "Range of the charts" }, buttons, resetButton),
    /** @param {number} length_ms @param {boolean} isZoomed */
    update(length_ms, isZoomed) {
      ranges.forEach(([each], index) => set(buttons[index], "aria-pressed", String(each === length_ms && !isZoomed)));
      show(resetButton, isZoomed);
    },
  };
}

// --- pointer and keyboard

function pointerPosition(drawing, event) {
  const { left, width } = drawing.getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - left) / width));
}

function pointable(drawing, showAt) {
  drawing.addEventListener("pointermove", (event) => showAt(pointerPosition(drawing, event)));
  drawing.addEventListener("pointerleave", () => showAt(null));
}

function zoomable(drawing, chosen, rangeOf, onZoom) {
  let from = null;
  const select = (one, other) => {
    set(chosen, "x", Math.min(one, other) * WIDTH);
    set(chosen, "width", Math.abs(one - other) * WIDTH);
  };
  drawing.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType !== "touch") {
      from = pointerPosition(drawing, event);
      drawing.setPointerCapture(event.pointerId);
    }
  });
  drawing.addEventListener("pointermove", (event) => from !== null && select(from, pointerPosition(drawing, event)));
  drawing.addEventListener("pointerup", (event) => {
    const to = pointerPosition(drawing, event);
    if (from !== null && Math.abs(to - from) >= DRAG_MIN) {
      onZoom(part(rangeOf(), Math.min(from, to), Math.max(from, to)));
    }
    from = null;
    select(0, 0);
  });
  drawing.addEventListener("pointercancel", () => {
    from = null;
    select(0, 0);
  });
  drawing.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const step = { ArrowLeft: [-0.25, 0.75], ArrowRight: [0.25, 1.25], "+": [0.25, 0.75], "-": [-0.5, 1.5] }[event.key];
    if (event.key === "0" || event.key === "Escape") {
      onZoom(null);
    } else if (step) {
      onZoom(part(rangeOf(), ...step));
    } else {
      return;
    }
    event.preventDefault();
  });
}

/** A part of a range, which does not end in the future. @returns {Range} */
function part({ from_ms, to_ms }, from, to) {
  const length_ms = Math.max((to - from) * (to_ms - from_ms), RANGE_MIN_MS);
  const end = Math.min(from_ms + to * (to_ms - from_ms), Date.now());
  return { from_ms: end - length_ms, to_ms: end };
}

function nearest(points, at) {
  let found = null;
  for (const point of points) {
    if (found === null || Math.abs(point.at_ms - at) < Math.abs(found.at_ms - at)) {
      found = point;
    }
  }
  return found;
}

// --- paths

function legendLine(index) {
  return svg("svg", { viewBox: "0 0 24 8", "aria-hidden": "true", class: "sample" },
    svg("line", { class: `line ${CLASSES[index]}`, x1: 0, x2: 24, y1: 4, y2: 4 }));
}

/** @returns {[number, number]|null} */
function place(at_ms, value, { from_ms, to_ms }, top) {
  return value === null ? null : [((at_ms - from_ms) / (to_ms - from_ms)) * WIDTH, HEIGHT - (value / top) * HEIGHT];
}

function linePath(places) {
  let path = "";
  let open = false;
  for (const [index, each] of places.entries()) {
    if (each) {
      const isAlone = !open && !places[index + 1];
      path += `${open ? "L" : "M"}${each[0].toFixed(1)} ${each[1].toFixed(1)}${isAlone ? "h2" : ""}`;
    }
    open = each !== null;
  }
  return path;
}

/** One area per run of known values. */
function areaPath(places) {
  const runs = [];
  let run = [];
  for (const each of [...places, null]) {
    if (each) {
      run.push(each);
    } else {
      if (run.length > 1) {
        runs.push(run);
      }
      run = [];
    }
  }
  return runs.map((known) => `${linePath(known)}L${known.at(-1)[0].toFixed(1)} ${HEIGHT}L${known[0][0].toFixed(1)} ${HEIGHT}Z`).join("");
}

/** Rounds up to 1, 2, 4, 6, 8 or 10 times a power of ten. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * power >= value * 0.999) * power;
}
