/** Numbers, sizes and times, as people read them. */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const PRECISE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** @param {number|null|undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : WHOLE.format(value);
}

/** @param {number} value @param {string} one @param {string} [many] */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A size in decimal units, such as kB (1,000 bytes). @param {number|null|undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  let rest = value;
  let unit = 0;
  while (Math.abs(rest) >= 999.5 && unit < UNITS.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? WHOLE.format(rest) : PRECISE.format(rest)} ${UNITS[unit]}`;
}

/** @param {number|null|undefined} value of bytes in a second */
export function rate(value) {
  return value === null || value === undefined ? "–" : `${bytes(value)}/s`;
}

/** @param {number|null|undefined} value in milliseconds */
export function milliseconds(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  return value < 1000 ? `${PRECISE.format(value)} ms` : `${PRECISE.format(value / 1000)} s`;
}

/** A length of time in its two largest units. @param {number|null|undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) {
    return "–";
  }
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) {
    return `${days} d ${hours} h`;
  }
  if (hours) {
    return `${hours} h ${minutes} min`;
  }
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

/** Local date and time, to the millisecond. @param {number|null|undefined} at_ms */
export function instant(at_ms) {
  if (at_ms === null || at_ms === undefined || at_ms < 0) {
    return "–";
  }
  const at = new Date(at_ms);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** Local time of day if it was today, otherwise date and time. @param {number|null|undefined} at_ms */
export function clock(at_ms) {
  const whole = instant(at_ms);
  return whole.startsWith(instant(Date.now()).slice(0, 10)) ? whole.slice(11, 19) : whole.slice(0, 19);
}

/** @param {Iterable<string|number>} items */
export function listed(items) {
  return [...items].join(", ") || "none";
}

/** Numbers in order; consecutive numbers as a range. @param {number[]} numbers */
export function ranges(numbers) {
  const found = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    if (found.length && found.at(-1)[1] === number - 1) {
      found.at(-1)[1] = number;
    } else {
      found.push([number, number]);
    }
  }
  return listed(found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)));
}

/** Indented JSON if a text is JSON, otherwise null. @param {string|null} text */
export function pretty(text) {
  if (text === null || !/^\s*[[{"\d\-tfn]/.test(text)) {
    return null;
  }
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** A JSON value on one line. @param {any} value */
export function inline(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}
