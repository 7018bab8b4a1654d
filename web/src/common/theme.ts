/** The theme: light, dark or the system's; the choice is stored in localStorage. */

import { button, icon } from "./dom";

export type Theme = "system" | "light" | "dark";

const KEY = "lorogo.theme";
const ORDER: readonly Theme[] = ["system", "light", "dark"];
const LABELS = { system: "as the system", light: "light", dark: "dark" } as const;

export function theme(): Theme {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

export function setTheme(chosen: Theme): void {
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
  try {
    if (chosen === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
  } catch {
    // storage is blocked: the choice lasts until the page closes
  }
  document.dispatchEvent(new CustomEvent("lorogo:theme"));
}

/** A button that cycles through system, light and dark. */
export function themeSwitch(): HTMLButtonElement {
  const element = button({ id: "theme-switch", class: "button quiet square", "data-testid": "theme-switch" });
  const show = (): void => {
    const now = theme();
    element.replaceChildren(icon(now === "system" ? "contrast" : now === "light" ? "sun" : "moon"));
    element.setAttribute("aria-label", `Theme: ${LABELS[now]}`);
    element.title = `Theme: ${LABELS[now]}`;
  };
  element.addEventListener("click", () => {
    setTheme(ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length] ?? "system");
    show();
  });
  show();
  return element;
}
