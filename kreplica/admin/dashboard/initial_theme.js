// Applies the stored theme before the first paint; a module would run too late.
(function () {
  let stored = null;
  try {
    stored = localStorage.getItem("kreplica.theme");
  } catch {
    // The browser may forbid storage: keep the system's theme.
  }
  if (stored === "light" || stored === "dark") {
    document.documentElement.dataset.theme = stored;
  }
})();
