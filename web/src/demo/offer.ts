/** Which documents a token is good for, as far as its grants name them. Pure. */

import { isDocumentId, newDocumentId } from "./id";

export interface Offer {
  /** Documents that are named. */
  readonly named: readonly string[];
  /** An id that may be written to and that nobody has; null if the token allows none. */
  readonly fresh: string | null;
}

const NAMED_MAX = 12;

/** `documents` as `/v1/session` tells them: pattern to access. `random` gives a number in [0, 1). */
export function offer(documents: Readonly<Record<string, string>>, random: () => number): Offer {
  const patterns = Object.keys(documents);
  const named = patterns.filter(isDocumentId).sort().slice(0, NAMED_MAX);
  const fresh = patterns
    .filter((pattern) => pattern.includes("*") && documents[pattern] !== "read")
    .sort((one, other) => one.length - other.length)
    .map((pattern) => pattern.replace("*", newDocumentId(random)).replaceAll("*", ""))
    .find(isDocumentId);
  return { named: documents["*"] === "write" || documents["*"] === "admin" ? [] : named, fresh: fresh ?? null };
}
