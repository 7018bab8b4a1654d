// Pages of documents: the server says where the next begins, we remember where the ones before began.

export interface Trail {
  readonly prefix: string;
  readonly starts: readonly string[]; // `after` of every page up to this one; the first is ""
}

const PAGES_MAX = 10_000;

/** The trail at a page that we were told to show: by a click, by the back button, by a link. */
export function follow(trail: Trail, prefix: string, after: string): Trail {
  if (prefix !== trail.prefix || after === "") return { prefix, starts: after === "" ? [""] : ["", after] };
  const at = trail.starts.indexOf(after);
  if (at >= 0) return { prefix, starts: trail.starts.slice(0, at + 1) };
  const last = trail.starts.at(-1) ?? "";
  // ids come in order, so a page that begins before ours is not one we went through
  if (after < last || trail.starts.length >= PAGES_MAX) return { prefix, starts: ["", after] };
  return { prefix, starts: [...trail.starts, after] };
}

/** Where the page before begins; null on the first. */
export function previous(trail: Trail): string | null {
  return trail.starts.length < 2 ? null : (trail.starts.at(-2) ?? "");
}

export const START: Trail = { prefix: "", starts: [""] };
