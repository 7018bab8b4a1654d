/**
 * A document's past as at most a few hundred steps.
 *
 * Changes are ordered by time. Clocks of peers differ, so a change counts as
 * no earlier than its dependencies; every prefix of the order is then a
 * consistent version of the document.
 */

export interface Change {
  readonly peer: string;
  readonly counter: number;
  readonly length: number;
  readonly lamport: number;
  /** Seconds since 1970; 0 if the peer did not record it. */
  readonly timestamp: number;
  readonly deps: readonly { readonly peer: string; readonly counter: number }[];
}

export interface Step {
  /** The version: how many operations of each peer. */
  readonly version: ReadonlyMap<string, number>;
  /** Seconds since 1970; 0 if unknown. */
  readonly time: number;
  /** Whose operations this step adds, most first. */
  readonly peers: readonly string[];
  readonly operations: number;
}

export const STEPS_MAX = 200;

/** Operations below which a change is not split: a paragraph takes about that many. */
const PIECE_MIN = 8;

const PAUSE_SECONDS = 60;

/** Some programs record milliseconds. */
const SECONDS_MAX = 100_000_000_000;

/** `base`: the version that a trimmed history begins with. */
export function steps(
  changes: readonly Change[],
  stepsMax: number = STEPS_MAX,
  base: ReadonlyMap<string, number> = new Map(),
): Step[] {
  const total = changes.reduce((sum, change) => sum + change.length, 0);
  const size = Math.max(PIECE_MIN, Math.ceil(total / stepsMax));
  const result: Step[] = [];
  const version = new Map(base);
  let added = new Map<string, number>();
  let operations = 0;
  let time = 0;

  const close = (): void => {
    if (operations === 0) return;
    const peers = [...added].sort((a, b) => b[1] - a[1]).map(([peer]) => peer);
    result.push({ version: new Map(version), time, peers, operations });
    added = new Map();
    operations = 0;
  };

  for (const { change, time: made } of ordered(changes)) {
    // A pause is a better boundary of a step than a number of operations.
    if (operations > 0 && made - time > PAUSE_SECONDS) close();
    let at = change.counter;
    const end = change.counter + change.length;
    while (at < end) {
      const piece = Math.min(end - at, Math.max(1, size - operations));
      at += piece;
      operations += piece;
      version.set(change.peer, at);
      added.set(change.peer, (added.get(change.peer) ?? 0) + piece);
      time = made;
      if (operations >= size) close();
    }
  }
  close();
  return result.length > stepsMax ? thinned(result, stepsMax) : result;
}

interface Timed {
  readonly change: Change;
  readonly time: number;
}

function ordered(changes: readonly Change[]): Timed[] {
  const byLamport = [...changes].sort((a, b) => a.lamport - b.lamport || (a.peer < b.peer ? -1 : 1));
  const known = new Map<string, { counter: number; end: number; time: number }[]>();
  const timeAt = (peer: string, counter: number): number => {
    const list = known.get(peer) ?? [];
    let low = 0;
    let high = list.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const found = list[middle]!;
      if (counter < found.counter) high = middle - 1;
      else if (counter >= found.end) low = middle + 1;
      else return found.time;
    }
    return 0;
  };
  const timed = byLamport.map((change): Timed & { rank: number } => {
    const noted = change.timestamp > SECONDS_MAX ? Math.floor(change.timestamp / 1000) : change.timestamp;
    let time = Math.max(0, noted, timeAt(change.peer, change.counter - 1));
    for (const dep of change.deps) time = Math.max(time, timeAt(dep.peer, dep.counter));
    const list = known.get(change.peer) ?? [];
    list.push({ counter: change.counter, end: change.counter + change.length, time });
    known.set(change.peer, list);
    return { change, time, rank: change.lamport };
  });
  return timed.sort((a, b) => a.time - b.time || a.rank - b.rank || (a.change.peer < b.change.peer ? -1 : 1));
}

/** Fewer steps, of about as many operations each; the last one stays. */
function thinned(all: readonly Step[], stepsMax: number): Step[] {
  const total = all.reduce((sum, step) => sum + step.operations, 0);
  const result: Step[] = [];
  let part: Step[] = [];
  let seen = 0;
  for (const step of all) {
    part.push(step);
    seen += step.operations;
    if (seen * stepsMax < total * (result.length + 1)) continue;
    result.push({
      ...step,
      peers: [...new Set(part.flatMap(({ peers }) => peers))],
      operations: part.reduce((sum, { operations }) => sum + operations, 0),
    });
    part = [];
  }
  return result;
}
