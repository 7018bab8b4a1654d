/** DOM helpers and icons. Text is always inserted as text. */

export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;
export type Child = Node | string | null | undefined | false;

/** `h("p", {class: "hint"}, "text")`. Attributes that are false or undefined are omitted. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  for (const child of children) if (child) element.append(child);
  return element;
}

export function button(attributes: Attributes, ...children: Child[]): HTMLButtonElement {
  return h("button", { type: "button", class: "button", ...attributes }, ...children);
}

/** The element with this id; throws if the page lacks it. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element #${id}`);
  return found as T;
}

const SVG = "http://www.w3.org/2000/svg";

/** Strokes in a 24x24 box, drawn in the text colour. */
const ICONS = {
  bold: ["M7 5h6a3.5 3.5 0 0 1 0 7H7z", "M7 12h7a3.5 3.5 0 0 1 0 7H7z"],
  italic: ["M11 5h6", "M7 19h6", "M14 5l-4 14"],
  code: ["M8 8l-4 4 4 4", "M16 8l4 4-4 4"],
  codeBlock: ["M4 5h16v14H4z", "M9.5 10l-2 2 2 2", "M14.5 10l2 2-2 2"],
  bullets: ["M9 6h11", "M9 12h11", "M9 18h11", "M4.5 6h.01", "M4.5 12h.01", "M4.5 18h.01"],
  numbers: ["M10 6h10", "M10 12h10", "M10 18h10", "M4 4.5h1.2V9", "M3.6 9h3", "M3.8 15.4c.5-1 2.4-.8 2.4.5 0 1.1-2.4 2-2.4 3.100h2.6"],
  quote: ["M5 5v14", "M10 8h10", "M10 12h10", "M10 16h6"],
  rule: ["M4 12h16"],
  undo: ["M9 14L4 9l5-5", "M4 9h10a6 6 0 0 1 0 12h-3"],
  redo: ["M15 14l5-5-5-5", "M20 9H10a6 6 0 0 0 0 12h3"],
  link: ["M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.700l-1.6 1.6", "M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.700l1.6-1.6"],
  clock: ["M12 4a8 8 0 1 0 .01 0z", "M12 8v4.500l3 1.8"],
  sun: ["M12 8a4 4 0 1 0 .01 0z", "M12 3v1.500M12 19.500V21M3 12h1.500M19.5 12H21M5.6 5.600l1.1 1.100M17.3 17.300l1.1 1.100M5.6 18.400l1.1-1.100M17.3 6.700l1.1-1.1"],
  moon: ["M19.5 14.200A8 8 0 0 1 9.8 4.500a8 8 0 1 0 9.7 9.700z"],
  contrast: ["M12 4a8 8 0 1 0 .01 0z", "M12 4v16", "M14.5 6v12", "M17 8v8"],
  gauge: ["M4 18a9 9 0 1 1 16 0", "M12 14l4-5"],
  plus: ["M12 5v14", "M5 12h14"],
  check: ["M5 12.500l4.5 4.500L19 7.5"],
  close: ["M6 6l12 12", "M18 6L6 18"],
} as const;

export type IconName = keyof typeof ICONS;

/** Decorative: the element around it needs an `aria-label`. */
export function icon(name: IconName): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  setAttributes(svg, {
    viewBox: "0 0 24 24", width: 18, height: 18, fill: "none", stroke: "currentColor",
    "stroke-width": 1.8, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true",
  });
  for (const d of ICONS[name]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}

function setAttributes(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
}
