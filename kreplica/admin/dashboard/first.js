// Applies the chosen theme before the first paint, which is why it is not a module.
(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem("kreplica.theme");
  } catch {
    // Storage may be forbidden: keep the system's theme.
  }
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
})();
