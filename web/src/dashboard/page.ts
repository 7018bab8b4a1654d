// Building blocks of the views. Text is always inserted as text.

import { h, type Child } from "../common/dom";
import { ago, moment } from "./format";
import { STATE_MEANINGS, stateWords } from "./model";

/** The interface of a mounted view. */
export interface Mounted {
  readonly element: HTMLElement;
  readonly title: string;
  close(): void;
}

/** Change text only if it differs, so that selections and screen readers are not disturbed. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function put(element: Element, name: string, value: string | null): void {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export interface Row<T> {
  readonly element: HTMLElement;
  update(item: T): void;
}

/** Keeps the children of an element equal to a keyed list, with as few changes as possible. */
export class Rows<T> {
  private rows = new Map<string, Row<T>>();

  constructor(
    readonly parent: HTMLElement,
    private readonly key: (item: T) => string,
    private readonly make: (item: T) => Row<T>,
  ) {}

  show(items: readonly T[]): void {
    const kept = new Map<string, Row<T>>();
    let place = this.parent.firstElementChild;
    for (const item of items) {
      const key = this.key(item);
      if (kept.has(key)) continue;
      const row = this.rows.get(key) ?? this.make(item);
      row.update(item);
      kept.set(key, row);
      if (row.element === place) place = place.nextElementSibling;
      else this.parent.insertBefore(row.element, place);
    }
    for (const [key, row] of this.rows) if (!kept.has(key)) row.element.remove();
    this.rows = kept;
  }
}

const STATES: Readonly<Record<string, string>> = { UP: "ok", STARTING: "warn", DOWN: "quiet", ERROR: "bad" };

/** A state as text and colour. */
export function pill(): { element: HTMLElement; show(state: string | null, stale?: boolean): void } {
  const element = h("span", { class: "pill" });
  return {
    element,
    show(state, stale = false) {
      setText(element, `${state === null ? "–" : stateWords(state)}${stale ? "?" : ""}`);
      put(element, "data-tone", stale ? "warn" : (STATES[state ?? ""] ?? "quiet"));
      put(element, "title", stale ? "not renewed for more than 5 s; the server may have failed" : (STATE_MEANINGS[state ?? ""] ?? null));
    },
  };
}

/** A relative time, updated by `tickTimes`; the full time as its title. */
export function timeAgo(): { element: HTMLTimeElement; show(time: number | null): void } {
  const element = h("time", {});
  return {
    element,
    show(time) {
      put(element, "datetime", time === null ? null : new Date(time).toISOString());
      put(element, "title", time === null ? null : moment(time));
      setText(element, ago(time, Date.now()));
    },
  };
}

/** Updates all relative times on the page, once a second. */
export function tickTimes(root: ParentNode, now: number): void {
  for (const element of root.querySelectorAll("time[datetime]")) {
    setText(element, ago(Date.parse(element.getAttribute("datetime") ?? ""), now));
  }
}

export function panel(title: string, attributes: Record<string, string>, ...children: Child[]): HTMLElement {
  return h("section", { class: "panel", ...attributes }, h("h2", {}, title), ...children);
}

/** A table that scrolls, or becomes cards on narrow screens. */
export function table(id: string, caption: string, columns: readonly string[]): { element: HTMLElement; body: HTMLElement } {
  const body = h("tbody", {});
  const head = h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)));
  const element = h("div", { class: "table" },
    h("table", { id, "data-testid": id }, h("caption", { class: "visually-hidden" }, caption), h("thead", {}, head), body));
  return { element, body };
}

/** A cell that names its column, for cards. */
export function cell(column: string, className: string, ...children: Child[]): HTMLTableCellElement {
  return h("td", { "data-column": column, class: className === "" ? undefined : className }, ...children);
}

/** A line in place of rows: no data, or an error. */
export function notice(): { element: HTMLElement; show(text: string, tone?: "bad" | "quiet"): void } {
  const element = h("p", { class: "notice", role: "status", hidden: true });
  return {
    element,
    show(text, tone = "quiet") {
      element.hidden = text === "";
      put(element, "data-tone", tone);
      setText(element, text);
    },
  };
}
