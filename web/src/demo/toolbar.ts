/** The toolbar: one stop of the Tab key; arrow keys move inside. */

import type { EditorView } from "prosemirror-view";
import { button, h, icon } from "../common/dom";
import { GROUPS, keyName } from "./commands";

export interface Toolbar {
  show(view: EditorView, enabled: boolean): void;
}

export function createToolbar(place: HTMLElement, view: () => EditorView | null): Toolbar {
  const mac = /Mac|iP(hone|ad|od)/.test(navigator.platform);
  const actions = GROUPS.flat();
  const buttons = new Map(actions.map((action) => {
    const key = action.keys[0];
    const hint = key ? ` (${keyName(key, mac)})` : "";
    const element = button(
      {
        class: "button quiet square", id: `do-${action.id}`, "data-testid": `do-${action.id}`, tabindex: -1,
        "aria-label": action.label, title: action.label + hint, disabled: true,
        "aria-keyshortcuts": key && keyName(key, false).replace("Ctrl", mac ? "Meta" : "Control"),
        "aria-pressed": action.active ? "false" : undefined,
      },
      action.icon ? icon(action.icon) : h("span", { class: "glyph", "aria-hidden": "true" }, action.text),
    );
    // The text keeps its selection, and on a phone its keyboard.
    element.addEventListener("mousedown", (event) => event.preventDefault());
    element.addEventListener("click", () => {
      const editor = view();
      if (!editor || element.getAttribute("aria-disabled") === "true") return;
      action.command(editor.state, editor.dispatch, editor);
      editor.focus();
    });
    return [action.id, element] as const;
  }));
  place.append(...GROUPS.map((group) =>
    h("div", { class: "group", role: "group" }, ...group.map(({ id }) => buttons.get(id)))));

  const all = [...buttons.values()];
  all[0]?.setAttribute("tabindex", "0");
  place.addEventListener("keydown", (event) => {
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const target = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : move && at + move;
    if (at < 0 || target === undefined) return;
    event.preventDefault();
    const chosen = all[(target + all.length) % all.length];
    for (const one of all) one.setAttribute("tabindex", one === chosen ? "0" : "-1");
    chosen?.focus();
  });

  return {
    show(editor, enabled) {
      for (const action of actions) {
        const element = buttons.get(action.id);
        if (!element) continue;
        // aria-disabled, not disabled: the keyboard focus must stay in the row
        element.disabled = false;
        const possible = enabled && (action.active?.(editor.state) === true || action.command(editor.state));
        element.setAttribute("aria-disabled", String(!possible));
        if (action.active) element.setAttribute("aria-pressed", String(action.active(editor.state)));
      }
    },
  };
}
