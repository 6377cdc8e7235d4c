/** Light or dark: the system's wish, until the visitor has one. */

const THEME = "kreplica.theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** @returns {"light"|"dark"} what is shown */
export function shownTheme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : systemDark.matches ? "dark" : "light";
}

/** Show the other one, and keep to it. */
export function toggleTheme() {
  const other = shownTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = other;
  localStorage.setItem(THEME, other);
  return other;
}

/** @param {() => void} told */
export function onTheme(told) {
  systemDark.addEventListener("change", told);
}
