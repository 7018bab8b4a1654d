/** Colours of users: distinct as long as there are enough. */

/** White text on each has AA contrast; each stands out on a light and on a dark page. */
export const COLORS = ["#c2410c", "#be185d", "#7c3aed", "#2563eb", "#0f766e", "#4d7c0f", "#a16207", "#b91c1c"] as const;

export interface Arrival {
  readonly peer: string;
  /** The start of this visit in ms; 0 if unknown. */
  readonly since: number;
}

export interface Claim extends Arrival {
  readonly color: string;
}

/** Whether a user joined before another; of simultaneous ones the smaller peer counts as earlier. */
export function isEarlier(one: Arrival, other: Arrival): boolean {
  return one.since !== other.since ? one.since < other.since : BigInt(one.peer) < BigInt(other.peer);
}

export function isColor(text: unknown): text is string {
  return typeof text === "string" && /^#[0-9a-f]{6}$/i.test(text);
}

/**
 * The user's colour beside those of others: the current one, unless a user who joined earlier has it, too; then
 * the next of the least used. Of two simultaneous users the greater peer yields, so that never both do.
 */
export function settledColor(own: Claim, others: readonly Claim[]): string {
  if (!others.some((other) => same(other.color, own.color) && isEarlier(other, own))) return own.color;
  const start = COLORS.findIndex((color) => same(color, own.color)) + 1;
  const turned = COLORS.map((_, at) => COLORS[(start + at) % COLORS.length] as string);
  const users = (color: string): number => others.filter((other) => same(other.color, color)).length;
  const fewest = Math.min(...turned.map(users));
  // If all are used as often as ours, changing would never end.
  return users(own.color) <= fewest ? own.color : (turned.find((color) => users(color) === fewest) ?? own.color);
}

function same(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase();
}
