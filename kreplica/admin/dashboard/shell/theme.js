/** The light or dark theme: the system's until the user chooses one. */

const THEME = "kreplica.theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** @returns {"light"|"dark"} the current theme */
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : systemDark.matches ? "dark" : "light";
}

/** Switch to the other theme and store the choice. */
export function toggleTheme() {
  const newTheme = currentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = newTheme;
  localStorage.setItem(THEME, newTheme);
  return newTheme;
}

/** @param {() => void} listener */
export function onTheme(listener) {
  systemDark.addEventListener("change", listener);
}
