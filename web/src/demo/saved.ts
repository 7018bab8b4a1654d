/**
 * The saved state of the user's edits.
 *
 * A pure state machine. Its inputs are what happened (an edit, a frame, a
 * closed socket), its output is `mark(state)`. It is "saved" only while the
 * room is joined and every operation of the document is confirmed by the
 * server: in the version of its JoinResponseOk, by an Ack with status ok, or
 * because the server sent it (it relays accepted updates only).
 */

/** The number of known operations by peer, as in Loro's version vectors. */
export type Version = ReadonlyMap<string, number>;

/** Operations `start` to before `end` of one peer. */
export interface Span {
  readonly peer: string;
  readonly start: number;
  readonly end: number;
}

export type Input =
  | { readonly type: "local"; readonly version: Version }
  | { readonly type: "sent"; readonly batch: string; readonly spans: readonly Span[] }
  | { readonly type: "acked"; readonly batch: string }
  | { readonly type: "refused"; readonly batch: string; readonly reason: string }
  | { readonly type: "received"; readonly spans: readonly Span[] }
  /** The version that a server confirmed to an earlier page of this browser. */
  | { readonly type: "remembered"; readonly version: Version }
  | { readonly type: "joined"; readonly version: Version; readonly readOnly: boolean }
  | { readonly type: "begun" }
  | { readonly type: "rejoining" }
  | { readonly type: "closed" }
  | { readonly type: "failed"; readonly reason: string };

export interface State {
  /** `new`: not requested from a server yet. */
  readonly room: "new" | "connecting" | "joined" | "away" | "failed";
  readonly readOnly: boolean;
  readonly local: Version;
  readonly promised: Version;
  /** Confirmed operations that are not adjacent to `promised` yet: an earlier Ack is outstanding. */
  readonly ahead: readonly Span[];
  readonly inFlight: ReadonlyMap<string, readonly Span[]>;
  /** Why the last batch was refused; cleared once nothing waits. */
  readonly refusal: string | null;
  readonly failure: string | null;
}

export interface Mark {
  readonly state: "new" | "connecting" | "saved" | "saving" | "offline" | "problem";
  /** Operations that the server has not confirmed. */
  readonly waiting: number;
  readonly reason: string | null;
  readonly readOnly: boolean;
}

/** Permanent refusals: sending the same bytes again cannot help. */
export const REFUSALS: ReadonlySet<string> = new Set(["invalid_update", "permission_denied", "payload_too_large"]);

export const START: State = {
  room: "connecting",
  readOnly: false,
  local: new Map(),
  promised: new Map(),
  ahead: [],
  inFlight: new Map(),
  refusal: null,
  failure: null,
};

/** The state of a new document, which its first edit creates. */
export const NEW: State = { ...START, room: "new" };

export function next(state: State, input: Input): State {
  return settle(step(state, input));
}

function step(state: State, input: Input): State {
  switch (input.type) {
    case "local":
      return { ...state, local: input.version };
    case "sent":
      return { ...state, inFlight: new Map(state.inFlight).set(input.batch, input.spans) };
    case "acked": {
      const spans = state.inFlight.get(input.batch);
      if (!spans) return state;
      return promise({ ...state, inFlight: without(state.inFlight, input.batch) }, spans);
    }
    case "refused": {
      if (!state.inFlight.has(input.batch)) return state;
      const inFlight = without(state.inFlight, input.batch);
      // Not joined: it was sent too early, and the join in progress sends it again.
      return { ...state, inFlight, refusal: state.room === "joined" ? input.reason : state.refusal };
    }
    case "received":
      return promise(state, input.spans);
    case "remembered":
      return promise(state, [...input.version].map(([peer, end]) => ({ peer, start: 0, end })));
    case "joined":
      // Replaced, not merged: operations that the server no longer has are not saved.
      return {
        ...state, room: "joined", readOnly: input.readOnly, promised: input.version,
        ahead: [], refusal: null, failure: null,
      };
    case "begun":
      return state.room === "new" ? { ...state, room: "connecting" } : state;
    case "rejoining":
      return state.room === "failed" ? state : { ...state, room: "away" };
    case "closed":
      return { ...state, room: state.room === "failed" ? "failed" : "away", inFlight: new Map(), ahead: [] };
    case "failed":
      return { ...state, room: "failed", failure: input.reason };
  }
}

/** Operations of the document that the server has not confirmed. */
export function waiting(state: State): number {
  let count = 0;
  for (const [peer, end] of state.local) count += Math.max(0, end - (state.promised.get(peer) ?? 0));
  return count;
}

export function mark(state: State): Mark {
  const count = waiting(state);
  const marked = (name: Mark["state"], reason: string | null): Mark => ({
    state: name, waiting: count, reason, readOnly: state.readOnly,
  });
  if (state.room === "failed") return marked("problem", state.failure);
  if (count > 0 && state.refusal !== null && REFUSALS.has(state.refusal)) return marked("problem", state.refusal);
  if (state.room === "new" || state.room === "connecting") return marked(state.room, null);
  if (state.room === "away") return marked("offline", null);
  return count === 0 ? marked("saved", null) : marked("saving", state.refusal);
}

/** True if the server dropped updates that should be resent, and none is in flight. */
export function mustSendAgain(state: State): boolean {
  return state.room === "joined" && !state.readOnly && state.inFlight.size === 0 && waiting(state) > 0
    && (state.refusal === null || !REFUSALS.has(state.refusal));
}

function promise(state: State, spans: readonly Span[]): State {
  const promised = new Map(state.promised);
  let left = [...state.ahead, ...spans];
  for (;;) {
    const gaps = left.filter(({ peer, start, end }) => {
      const known = promised.get(peer) ?? 0;
      if (start > known) return true;
      if (end > known) promised.set(peer, end);
      return false;
    });
    if (gaps.length === left.length) return { ...state, promised, ahead: gaps };
    left = gaps;
  }
}

function settle(state: State): State {
  return state.refusal !== null && waiting(state) === 0 ? { ...state, refusal: null } : state;
}

function without<K, V>(map: ReadonlyMap<K, V>, key: K): Map<K, V> {
  const copy = new Map(map);
  copy.delete(key);
  return copy;
}
