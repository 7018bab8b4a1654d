/** Colours of people: each their own, as far as there are enough. */

/** White text on each has AA contrast; each stands out on a light and on a dark page. */
export const COLORS = ["#c2410c", "#be185d", "#7c3aed", "#2563eb", "#0f766e", "#4d7c0f", "#a16207", "#b91c1c"] as const;

export interface Arrival {
  readonly peer: string;
  /** When this visit began, in ms; 0 if nobody said. */
  readonly since: number;
}

export interface Claim extends Arrival {
  readonly color: string;
}

/** Whether a reader came before another; of two who came at once the smaller peer counts as earlier. */
export function isEarlier(one: Arrival, other: Arrival): boolean {
  return one.since !== other.since ? one.since < other.since : BigInt(one.peer) < BigInt(other.peer);
}

export function isColor(text: unknown): text is string {
  return typeof text === "string" && /^#[0-9a-f]{6}$/i.test(text);
}

/**
 * The reader's colour beside those of others: the one they have, unless somebody who came earlier has it, too; then
 * the next that the fewest have. Of two who came at once the greater peer yields, so that never both do.
 */
export function settledColor(own: Claim, others: readonly Claim[]): string {
  if (!others.some((other) => same(other.color, own.color) && isEarlier(other, own))) return own.color;
  const start = COLORS.findIndex((color) => same(color, own.color)) + 1;
  const turned = COLORS.map((_, at) => COLORS[(start + at) % COLORS.length] as string);
  const users = (color: string): number => others.filter((other) => same(other.color, color)).length;
  const fewest = Math.min(...turned.map(users));
  // Where all are taken by as many as ours, moving on would never end.
  return users(own.color) <= fewest ? own.color : (turned.find((color) => users(color) === fewest) ?? own.color);
}

function same(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase();
}
