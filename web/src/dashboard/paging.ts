// Pages of documents: the server returns the start of the next page; the starts of earlier pages are remembered.

export interface Trail {
  readonly prefix: string;
  readonly starts: readonly string[]; // `after` of every page up to this one; the first is ""
}

const PAGES_MAX = 10_000;

/** The trail at the page to show, after a click, the back button or a link. */
export function follow(trail: Trail, prefix: string, after: string): Trail {
  if (prefix !== trail.prefix || after === "") return { prefix, starts: after === "" ? [""] : ["", after] };
  const at = trail.starts.indexOf(after);
  if (at >= 0) return { prefix, starts: trail.starts.slice(0, at + 1) };
  const last = trail.starts.at(-1) ?? "";
  // ids are ordered, so a page that begins before this one is not on the trail
  if (after < last || trail.starts.length >= PAGES_MAX) return { prefix, starts: ["", after] };
  return { prefix, starts: [...trail.starts, after] };
}

/** The start of the previous page; null on the first. */
export function previous(trail: Trail): string | null {
  return trail.starts.length < 2 ? null : (trail.starts.at(-2) ?? "");
}

export const START: Trail = { prefix: "", starts: [""] };
