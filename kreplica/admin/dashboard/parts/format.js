/** Numbers, sizes and times in readable form. */

const INTEGER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const THREE_DIGITS = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
/** The last time that a `Date` can represent. */
const CALENDAR_MS_MAX = 8_640_000_000_000_000;
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** @param {number|null|undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : INTEGER.format(value);
}

/** A number and a noun: "1 topic", "2 topics". @param {number} value @param {string} one @param {string} [many] */
export function pluralize(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A size in decimal units, such as kB (1,000 bytes). @param {number|null|undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  let scaled = value;
  let unit = 0;
  while (Math.abs(scaled) >= 999.5 && unit < UNITS.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? INTEGER.format(scaled) : THREE_DIGITS.format(scaled)} ${UNITS[unit]}`;
}

/** @param {number|null|undefined} value  bytes per second */
export function rate(value) {
  return value === null || value === undefined ? "–" : `${bytes(value)}/s`;
}

/** @param {number|null|undefined} value  events per second */
export function perSecond(value) {
  return value === null || value === undefined ? "–" : `${THREE_DIGITS.format(value)}/s`;
}

/** @param {number|null|undefined} value  milliseconds */
export function milliseconds(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  return value < 1000 ? `${THREE_DIGITS.format(value)} ms` : `${THREE_DIGITS.format(value / 1000)} s`;
}

/** A length of time in its two largest units. @param {number|null|undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) {
    return "–";
  }
  const rounded = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(rounded / 86400), Math.floor(rounded / 3600) % 24, Math.floor(rounded / 60) % 60];
  if (days) {
    return `${days} d ${hours} h`;
  }
  if (hours) {
    return `${hours} h ${minutes} min`;
  }
  return minutes ? `${minutes} min ${rounded % 60} s` : `${rounded} s`;
}

/** Date and time in UTC, to the millisecond. @param {any} at_ms  milliseconds since 1970 */
export function dateTime(at_ms) {
  return timeText(at_ms, (day, time) => `${day} ${time}`);
}

/** Time of day in UTC if it was today, otherwise date and time; to the second. @param {any} at_ms  milliseconds since 1970 */
export function shortTime(at_ms) {
  const today = timeFieldText(Date.now()).split("T")[0];
  return timeText(at_ms, (day, time) => `${day === today ? "" : `${day} `}${time.slice(0, -4)}`);
}

/** @param {any} at_ms @param {(day: string, time: string) => string} format  of date and time of day as in ISO 8601 */
function timeText(at_ms, format) {
  if (at_ms === null || at_ms === undefined) {
    return "–";
  }
  if (typeof at_ms !== "number" || at_ms > CALENDAR_MS_MAX) {
    return `${at_ms.rawJSON ?? at_ms} ms since 1970`;
  }
  if (at_ms < 0) {
    return "–";
  }
  const [day, time] = new Date(at_ms).toISOString().slice(0, -1).split("T");
  return `${format(day, time)} UTC`;
}

/** The value of a `datetime-local` field, in UTC like all times of the dashboard; empty for an invalid time. @param {number} at_ms */
export function timeFieldText(at_ms) {
  return Math.abs(at_ms) <= CALENDAR_MS_MAX ? new Date(at_ms).toISOString().slice(0, 19) : "";
}

/** Milliseconds since 1970, from the value of a `datetime-local` field. @param {string} text */
export function timeFieldValue(text) {
  return new Date(`${text}Z`).getTime();
}

/** @param {Iterable<string|number>} items */
export function commaSeparated(items) {
  return [...items].join(", ") || "none";
}

/** Sorted numbers, with consecutive ones as a range: "0–3, 7". @param {number[]} numbers */
export function ranges(numbers) {
  const runs = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    if (runs.length && runs.at(-1)[1] === number - 1) {
      runs.at(-1)[1] = number;
    } else {
      runs.push([number, number]);
    }
  }
  return commaSeparated(runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)));
}

/** A JSON value on one line. @param {any} value */
export function inlineJson(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A length of time in milliseconds, in its two largest units. @param {number|null|undefined} length_ms */
export function durationOf(length_ms) {
  if (length_ms === null || length_ms === undefined) {
    return "–";
  }
  if (length_ms < 1000) {
    return milliseconds(length_ms);
  }
  return duration(length_ms / 1000).replace(/ 0 (h|min|s)$/, "");
}

/** A name of the API in words: "full disk" for `full_disk`. @param {string} name */
export function withoutUnderscores(name) {
  return String(name).replaceAll("_", " ");
}
