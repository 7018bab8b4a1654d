/** Presence (`%EPH`): names, colours and cursors of users. */

import { Cursor, LoroList, LoroText, type LoroDoc, type PeerID } from "loro-crdt";
import { CursorEphemeralStore, type CursorPresenceState } from "loro-prosemirror";
import { COLORS, isColor, settledColor } from "./colors";
import { ANIMALS, settledName } from "./names";

export interface Person {
  readonly peer: string;
  readonly name: string;
  readonly color: string;
  readonly self: boolean;
  readonly here: boolean;
}

export interface Identity {
  readonly name: string;
  readonly color: string;
  /** A default name, not chosen by the user. */
  readonly given: boolean;
}

export const NAME_MAX = 32;
/** Presence expires after this silence, so it is refreshed more often. */
const TIMEOUT_MS = 30_000;
const RENEW_MS = 10_000;
const PEOPLE_MAX = 200;
/** A side of Loro's cursors. */
const RIGHT = 1;
const NAME_KEY = "lorogo.name";
const GIVEN_KEY = "lorogo.name.given";
const COLOR_KEY = "lorogo.color";

/** The name and colour of this browser; created once and stored. */
export function identity(): Identity {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(Math.random() * from.length)] as T;
  const kept = { chosen: cleanName(recall(NAME_KEY)), given: cleanName(recall(GIVEN_KEY)), color: recall(COLOR_KEY) };
  const color = isColor(kept.color) ? kept.color : pick(COLORS);
  keep(COLOR_KEY, color);
  if (kept.chosen !== null) return { name: kept.chosen, color, given: false };
  const name = kept.given ?? pick(ANIMALS);
  keep(GIVEN_KEY, name);
  return { name, color, given: true };
}

export function keepName(name: string): void {
  keep(NAME_KEY, name);
}

/** A name of 1 to 32 characters on one line, or null. */
export function cleanName(text: unknown): string | null {
  if (typeof text !== "string") return null;
  const name = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ").replace(/\s+/g, " ").trim();
  return name === "" ? null : [...name].slice(0, NAME_MAX).join("");
}

/**
 * The binding's store with four differences: a name stays when the cursor is
 * removed; foreign entries are validated before the editor sees them; while `held`
 * the binding cannot overwrite our cursor with another user's (which it
 * does when it repairs an old cursor); and our cursor in an empty text follows
 * the typed text.
 */
export class Presence extends CursorEphemeralStore {
  readonly #doc: LoroDoc;
  readonly #self: PeerID;
  #identity: Identity;
  readonly #since = Date.now();
  #held = false;
  #gone = false;
  #timer: ReturnType<typeof setInterval>;

  constructor(doc: LoroDoc, own: Identity) {
    super(doc.peerIdStr, TIMEOUT_MS);
    this.#doc = doc;
    this.#self = doc.peerIdStr;
    this.#identity = own;
    this.#timer = setInterval(() => this.renew(), RENEW_MS);
    this.setLocal({});
  }

  get identity(): Identity {
    return this.#identity;
  }

  rename(name: string): void {
    this.#identity = { ...this.#identity, name, given: false };
    this.renew();
  }

  /** Takes another colour and default name for this visit if a user who joined earlier has ours. */
  settle(): void {
    const claims = this.people().map(({ peer, name, color }) => ({ peer, name, color, since: this.#sinceOf(peer), given: this.#isGiven(peer) }));
    const [own, others] = [claims[0] as (typeof claims)[0], claims.slice(1)];
    const color = settledColor(own, others);
    const name = settledName(own, others);
    if (color === this.#identity.color && name === this.#identity.name) return;
    this.#identity = { ...this.#identity, name, color };
    this.renew();
  }

  renew(): void {
    if (!this.#gone) this.setLocal(this.getLocal() ?? {});
  }

  /** Removes our entry for all users; `back` restores it. */
  leave(): void {
    this.#gone = true;
    this.delete(this.#self);
  }

  back(): void {
    this.#gone = false;
    this.setLocal({});
  }

  stop(): void {
    clearInterval(this.#timer);
    this.leave();
  }

  hold<T>(during: () => T): T {
    this.#held = true;
    try {
      return during();
    } finally {
      this.#held = false;
    }
  }

  override setLocal(state: CursorPresenceState): void {
    if (this.#held || this.#gone) return;
    const [anchor, focus] = [this.#atEnd(state.anchor), this.#atEnd(state.focus)];
    const user = { ...this.#identity, since: this.#since };
    super.setLocal({ anchor, focus, user });
  }

  override getAll(): { [peer in PeerID]: CursorPresenceState } {
    const all: { [peer in PeerID]: CursorPresenceState } = {};
    for (const { peer, name, color, self } of this.people()) {
      if (self) continue;
      const entry = this.get(peer) as Record<string, unknown> | undefined;
      const anchor = this.#cursor(entry?.["anchor"]);
      const focus = this.#cursor(entry?.["focus"]);
      all[peer as PeerID] = anchor && focus ? { anchor, focus, user: { name, color } } : { user: { name, color } };
    }
    return all;
  }

  person(peer: string): Person {
    const entry = this.get(peer) as { user?: { name?: unknown; color?: unknown } | null; focus?: unknown } | undefined;
    const self = peer === this.#self;
    const user = self ? this.#identity : entry?.user;
    return {
      peer,
      self,
      name: cleanName(user?.name) ?? `peer ${peer.slice(-4)}`,
      color: isColor(user?.color) ? user.color : (COLORS[Number(BigInt.asUintN(8, peerNumber(peer))) % COLORS.length] ?? COLORS[0]),
      here: self || entry?.focus instanceof Uint8Array,
    };
  }

  /** Identifies the position of a cursor. */
  position(peer: string): string {
    const entry = this.get(peer) as { focus?: unknown } | undefined;
    return entry?.focus instanceof Uint8Array ? entry.focus.join() : "";
  }

  /** All users: this one first, then by name. */
  people(): Person[] {
    const keys = this.keys().filter((key) => key !== this.#self && /^\d{1,20}$/.test(key) && this.#isEntry(key));
    const others = keys.slice(0, PEOPLE_MAX).map((peer) => this.person(peer));
    others.sort((a, b) => a.name.localeCompare(b.name) || (a.peer < b.peer ? -1 : 1));
    return [this.person(this.#self), ...others];
  }

  #sinceOf(peer: string): number {
    if (peer === this.#self) return this.#since;
    const entry = this.get(peer) as { user?: { since?: unknown } | null } | undefined;
    const since = entry?.user?.since;
    return typeof since === "number" && Number.isFinite(since) ? since : 0;
  }

  #isGiven(peer: string): boolean {
    if (peer === this.#self) return this.#identity.given;
    const entry = this.get(peer) as { user?: { given?: unknown } | null } | undefined;
    return entry?.user?.given === true;
  }

  #isEntry(key: string): boolean {
    const entry: unknown = this.get(key);
    return typeof entry === "object" && entry !== null && "user" in entry;
  }

  /**
   * Loro ties a cursor to a letter. An empty text has none, so the cursor stays at the start forever; the binding
   * compares letters only, takes it for the cursor at the end of the text typed since, and never publishes the
   * new position. So publish the end of the text from the beginning.
   */
  #atEnd(cursor: Cursor | undefined): Cursor | undefined {
    if (!cursor || cursor.pos() || cursor.side() === RIGHT) return cursor;
    const text = this.#doc.getContainerById(cursor.containerId());
    return text instanceof LoroText ? text.getCursor(text.length, RIGHT) : cursor;
  }

  #cursor(bytes: unknown): Cursor | undefined {
    if (!(bytes instanceof Uint8Array)) return undefined;
    try {
      const cursor = Cursor.decode(bytes);
      const container = this.#doc.getContainerById(cursor.containerId());
      if (!(container instanceof LoroText || container instanceof LoroList)) return undefined;
      if (container.isDeleted() || !container.parent() || !this.#doc.getCursorPos(cursor)) return undefined;
      return cursor;
    } catch {
      return undefined; // of an edit not received yet, or malformed
    }
  }
}

function peerNumber(peer: string): bigint {
  try {
    return BigInt(peer);
  } catch {
    return 0n;
  }
}

function recall(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function keep(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // storage is blocked: it lasts until the page closes
  }
}
