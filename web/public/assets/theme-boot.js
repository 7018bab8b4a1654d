// Before the first paint: the theme chosen earlier, so that nothing flashes.
try {
  const chosen = localStorage.getItem("lorogo.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is forbidden here: the system's choice stays
}
