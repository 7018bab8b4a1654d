/** Document ids: validation, and new ids that are easy to read aloud. */

const ALLOWED = /^[A-Za-z0-9_=][A-Za-z0-9_=-]{0,127}$/;

const FIRST = [
  "amber", "brave", "bright", "calm", "clear", "coral", "crisp", "dawn", "early", "fair", "fern", "fresh",
  "gentle", "gold", "green", "happy", "high", "hazel", "jade", "kind", "light", "lucky", "mild", "misty",
  "noble", "north", "ocean", "olive", "pearl", "quick", "quiet", "river", "royal", "silver", "slow", "snowy",
  "south", "spring", "still", "stone", "summer", "sunny", "swift", "tidal", "velvet", "warm", "west", "wild",
] as const;

const SECOND = [
  "acorn", "anchor", "apple", "badger", "beacon", "birch", "bridge", "brook", "canyon", "cedar", "cloud",
  "comet", "crane", "delta", "falcon", "field", "finch", "forest", "garden", "harbor", "heron", "island",
  "lake", "lantern", "lark", "maple", "meadow", "moon", "otter", "owl", "panda", "pebble", "pine", "planet",
  "raven", "reef", "robin", "sail", "shore", "sparrow", "star", "stork", "thistle", "tiger", "valley", "willow",
  "wren", "yarrow",
] as const;

/** No letters or digits that look alike. */
const TAIL = "23456789abcdefghjkmnpqrstuvwxyz";
const TAIL_LENGTH = 7;

export function isDocumentId(text: string): boolean {
  return ALLOWED.test(text) && !text.startsWith("_kv");
}

/** `calm-otter-k3x9q2m`. `random` gives a number in [0, 1). */
export function newDocumentId(random: () => number): string {
  const pick = <T>(from: ArrayLike<T>): T => from[Math.floor(random() * from.length)] as T;
  const tail = Array.from({ length: TAIL_LENGTH }, () => pick(TAIL)).join("");
  return `${pick(FIRST)}-${pick(SECOND)}-${tail}`;
}

/** The path of a document's page. */
export function pathOf(id: string): string {
  return `/d/${id}`;
}

/** The id in a path `/d/{id}`; null for `/`; undefined if it is not an id. */
export function idOfPath(path: string): string | null | undefined {
  if (path === "" || path === "/") return null;
  const text = /^\/d\/([^/]*)\/?$/.exec(path)?.[1] ?? "";
  let id: string;
  try {
    id = decodeURIComponent(text);
  } catch {
    return undefined;
  }
  return isDocumentId(id) ? id : undefined;
}
