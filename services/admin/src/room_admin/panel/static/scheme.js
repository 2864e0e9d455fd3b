// Light or dark where somebody chose it, before anything is drawn. Else the system's wish holds.
try {
  const chosen = localStorage.getItem("room-scheme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.scheme = chosen;
} catch {
  // no storage: the system's wish holds
}
