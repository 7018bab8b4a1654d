/** The row of people: the user with an editable name, then the others. */

import { byId, h } from "../common/dom";
import { cleanName, keepName, NAME_MAX, type Person } from "./presence";

const SHOWN_MAX = 5;

/** `name` is the user's name as others see it. */
export function setUpName(name: () => string, renamed: (name: string) => void): void {
  const field = byId<HTMLInputElement>("own-name");
  field.maxLength = NAME_MAX;
  showName(name());
  field.addEventListener("input", () => fit(field));
  field.addEventListener("change", () => {
    const chosen = cleanName(field.value) ?? name();
    showName(chosen);
    if (chosen === name()) return;
    keepName(chosen);
    renamed(chosen);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") field.blur();
  });
}

function showName(name: string): void {
  const field = byId<HTMLInputElement>("own-name");
  field.value = name;
  fit(field);
}

function fit(field: HTMLInputElement): void {
  field.style.setProperty("--letters", String(Math.max(3, [...field.value].length)));
}

export function showPeople(people: readonly Person[]): void {
  const self = people.find((person) => person.self);
  const others = people.filter((person) => !person.self);
  byId("own-avatar").textContent = initial(self?.name ?? "");
  if (self && document.activeElement !== byId("own-name")) showName(self.name);
  byId("own-avatar").style.setProperty("--who", self?.color ?? "");
  const more = others.length - SHOWN_MAX;
  byId("others").replaceChildren(
    ...others.slice(0, SHOWN_MAX).map((person) =>
      h(
        "li", { class: "person", "data-testid": "person", "data-name": person.name, title: person.name },
        h("span", { class: "avatar", style: `--who: ${person.color}`, "aria-hidden": "true" }, initial(person.name)),
        h("span", { class: "name" }, person.name),
      )),
    ...(more > 0 ? [h("li", { class: "person more", title: others.slice(SHOWN_MAX).map(({ name }) => name).join(", ") }, `+${more}`)] : []),
  );
  byId("people").dataset["count"] = String(people.length);
}

function initial(name: string): string {
  return ([...name][0] ?? "?").toUpperCase();
}
