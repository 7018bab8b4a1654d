/**
 * What the page may honestly say about the reader's edits.
 *
 * A pure state machine. Its inputs are what happened (an edit, a frame, a
 * closed socket), its answer is `mark(state)`. "saved" is said only while the
 * room is joined and every operation of the document was promised by the
 * server: in the version of its JoinResponseOk, by an Ack with status ok, or
 * because the server itself sent it to us (it relays only what it accepted).
 */

/** How many operations of each peer are known, as Loro's version vectors say it. */
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
  /** What a server promised to an earlier page of this browser. */
  | { readonly type: "remembered"; readonly version: Version }
  | { readonly type: "joined"; readonly version: Version; readonly readOnly: boolean }
  | { readonly type: "begun" }
  | { readonly type: "rejoining" }
  | { readonly type: "closed" }
  | { readonly type: "failed"; readonly reason: string };

export interface State {
  /** `new`: nobody has asked a server for it yet. */
  readonly room: "new" | "connecting" | "joined" | "away" | "failed";
  readonly readOnly: boolean;
  readonly local: Version;
  readonly promised: Version;
  /** Promised operations that do not touch `promised` yet: an earlier Ack is still to come. */
  readonly ahead: readonly Span[];
  readonly inFlight: ReadonlyMap<string, readonly Span[]>;
  /** Why the last batch was refused; forgotten once nothing waits. */
  readonly refusal: string | null;
  readonly failure: string | null;
}

export interface Mark {
  readonly state: "new" | "connecting" | "saved" | "saving" | "offline" | "problem";
  /** Operations that the server has not promised to keep. */
  readonly waiting: number;
  readonly reason: string | null;
  readonly readOnly: boolean;
}

/** Refusals that sending the same bytes again cannot change. */
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

/** A document that was only named: it is made with the first edit. */
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
      // Not joined: it was sent too early, and the join that is under way sends it again.
      return { ...state, inFlight, refusal: state.room === "joined" ? input.reason : state.refusal };
    }
    case "received":
      return promise(state, input.spans);
    case "remembered":
      return promise(state, [...input.version].map(([peer, end]) => ({ peer, start: 0, end })));
    case "joined":
      // Replaced, not merged: if the server knows less than it promised, that is not saved.
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

/** Operations of the document that the server has not promised to keep. */
export function waiting(state: State): number {
  let count = 0;
  for (const [peer, end] of state.local) count += Math.max(0, end - (state.promised.get(peer) ?? 0));
  return count;
}

export function mark(state: State): Mark {
  const count = waiting(state);
  const say = (name: Mark["state"], reason: string | null): Mark => ({
    state: name, waiting: count, reason, readOnly: state.readOnly,
  });
  if (state.room === "failed") return say("problem", state.failure);
  if (count > 0 && state.refusal !== null && REFUSALS.has(state.refusal)) return say("problem", state.refusal);
  if (state.room === "new" || state.room === "connecting") return say(state.room, null);
  if (state.room === "away") return say("offline", null);
  return count === 0 ? say("saved", null) : say("saving", state.refusal);
}

/** True if the server dropped something that is worth sending again, and nothing is under way. */
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
