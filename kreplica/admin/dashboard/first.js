// Runs before anything is painted, and is no module for that reason: the chosen theme must not come late.
(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem("kreplica.theme");
  } catch {
    // Storage may be forbidden; then the system's theme it is.
  }
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
})();
