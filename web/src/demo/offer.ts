/** The documents that a token's grants name. Pure. */

import { isDocumentId, newDocumentId } from "./id";

export interface Offer {
  /** Documents named by the grants. */
  readonly named: readonly string[];
  /** A new id that the token may write; null if its grants allow none. */
  readonly fresh: string | null;
}

const NAMED_MAX = 12;

/** `documents` as in `/v1/session`: pattern to access. `random` gives a number in [0, 1). */
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
