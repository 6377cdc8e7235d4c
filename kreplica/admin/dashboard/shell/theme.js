/** The light or dark theme: the system's until the user chooses one. */

const THEME = "kreplica.theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** @returns {"light"|"dark"} the current theme */
export function shownTheme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : systemDark.matches ? "dark" : "light";
}

/** Switch to the other theme and store the choice. */
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
