/**
 * Line charts in SVG.  Lines differ by stroke as well as by colour, and their values are also shown as text.
 *
 * @typedef {{at_ms: number, values: (number|null)[]}} Sample
 */

import { element, set, setStyleProperty, setText, svg } from "./elements.js";

export const WINDOW_MS = 120_000;
const CLASSES = ["first", "second"];
const WIDTH = 1000;
const HEIGHT = 100;

/**
 * @param {{title: string, series: string[], format: (value: number|null) => string, minTop: number}} options
 *     `minTop`: smallest value of the top of the axis
 * @returns {{node: HTMLElement, update: (samples: Sample[]) => void}}
 */
export function lineChart({ title, series, format, minTop }) {
  const areas = series.map((_, index) => svg("path", { class: `area ${CLASSES[index]}` }));
  const lines = series.map((_, index) => svg("path", { class: `line ${CLASSES[index]}` }));
  const grid = [0, 0.5, 1].map((at) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: at * HEIGHT, y2: at * HEIGHT }));
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, ...grid, ...areas.slice(0, 1), ...lines);
  const ticks = [0, 0.5, 1].map((at) => {
    const tick = element("span", { class: "tick", "aria-hidden": "true" });
    setStyleProperty(tick, "--at", at);
    return tick;
  });
  const values = series.map(() => element("b"));
  const node = element("figure", { class: "card chart" },
    element("figcaption", null, element("h3", null, title)),
    element("div", { class: "plot" }, drawing, ticks),
    element("p", { class: "span", "aria-hidden": "true" }, element("span", null, "2 minutes ago"), element("span", null, "now")),
    element("ul", { class: "legend" }, series.map((name, index) =>
      element("li", null, legendLine(index), name, values[index]))));
  return { node, update: (samples) => draw(samples) };

  function draw(samples) {
    const now = samples.at(-1)?.at_ms ?? 0;
    const shown = samples.filter((sample) => sample.at_ms >= now - WINDOW_MS);
    const top = roundUp(Math.max(minTop, ...shown.flatMap((sample) => sample.values.map((value) => value ?? 0))));
    [top, top / 2, 0].forEach((value, index) => setText(ticks[index], format(value)));
    const summaries = series.map((name, index) => {
      const points = shown.map(({ at_ms, values: all }) => pointAt(at_ms, all[index] ?? null, now, top));
      set(lines[index], "d", linePath(points));
      if (index === 0) {
        set(areas[0], "d", areaPath(points));
      }
      const latest = shown.at(-1)?.values[index] ?? null;
      setText(values[index], format(latest));
      const maximum = Math.max(0, ...shown.map((sample) => sample.values[index] ?? 0));
      return `${name} now ${format(latest)}, maximum ${format(maximum)}`;
    });
    set(drawing, "aria-label", `${title} in the last two minutes: ${summaries.join("; ")}`);
  }
}

function legendLine(index) {
  return svg("svg", { viewBox: "0 0 24 8", "aria-hidden": "true", class: "sample" },
    svg("line", { class: `line ${CLASSES[index]}`, x1: 0, x2: 24, y1: 4, y2: 4 }));
}

/** @returns {[number, number]|null} */
function pointAt(at_ms, value, now, top) {
  return value === null ? null : [WIDTH - ((now - at_ms) / WINDOW_MS) * WIDTH, HEIGHT - (value / top) * HEIGHT];
}

function linePath(points) {
  let path = "";
  let open = false;
  for (const point of points) {
    if (point) {
      path += `${open ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    }
    open = point !== null;
  }
  return path;
}

function areaPath(points) {
  const known = points.filter((point) => point !== null);
  if (known.length < 2) {
    return "";
  }
  return `${linePath(known)}L${known.at(-1)[0].toFixed(1)} ${HEIGHT}L${known[0][0].toFixed(1)} ${HEIGHT}Z`;
}

/** Rounds up to 1, 2, 4, 6, 8 or 10 times a power of ten. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * power >= value * 0.999) * power;
}
