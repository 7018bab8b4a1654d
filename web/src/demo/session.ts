/** One open document: the LoroDoc, its room, its copy in this browser, its editor. */

import { LoroDoc, type PeerID } from "loro-crdt";
import type { Node } from "prosemirror-model";
import type { EditorView } from "prosemirror-view";
import type { Owner } from "../common/who";
import { AUTHORS, begunElsewhere, hasContent, hasSeed, isSeedPeer, makeRoom, otherRoots, plainText, read, seed } from "./content";
import { become, createEditor } from "./editor";
import { Link, type Closed } from "./link";
import { cleanName, Presence, type Identity } from "./presence";
import { NEW, START, mark, mustSendAgain, next, waiting, type Input, type Mark, type State } from "./saved";
import { schema } from "./schema";
import { Copies } from "./store";

/** The user of a session. */
export interface Person {
  readonly owner: Owner;
  /** The copy may be shown before the server has admitted the user: it is unreachable or requires no token. */
  readonly trusted: boolean;
  /** See `LinkEvents.ours`. */
  ours(): Promise<Closed>;
}

export interface SessionEvents {
  marked(mark: Mark): void;
  /** Whether this browser has stored all edits. */
  kept(all: boolean): void;
  people(): void;
  /** The editor is ready. */
  ready(view: EditorView): void;
  edited(view: EditorView): void;
  /** The roots that the editor does not show. */
  others(roots: readonly string[]): void;
  /** The document is no longer only local: it is requested from a server. */
  begun(): void;
  closed(why: Closed, unsaved: number, text: string): void;
}

/** The undo plugin leaves commits of this origin alone. */
const NOT_UNDONE = "sys:init";
/** Edits of one peer within so many seconds are one change with one time. */
const CHANGE_SECONDS = 5;
/** How long to wait for an unknown document before the user may write offline. */
const OPEN_WAIT_MS = 3_000;
const KEEP_UNSAVED_MS = 300;
const KEEP_SAVED_MS = 3_000;
const WATCHDOG_MS = 5_000;
/** Errors after which the document cannot be edited, permanently. */
const ENDED: ReadonlySet<string> = new Set(["deleted", "not_found"]);
/** Another program created the document while we showed it as empty. */
export const BEGUN_ELSEWHERE = "begun_elsewhere";

export class Session {
  readonly doc = new LoroDoc();
  readonly presence: Presence;
  readonly #id: string;
  readonly #events: SessionEvents;
  readonly #person: Person;
  readonly #copies: Copies;
  readonly #cleanups: (() => void)[] = [];
  readonly #url: string;
  #link: Link | null = null;
  #view: EditorView | null = null;
  #state: State = START;
  #serverVersion: ReadonlyMap<string, number> | null = null;
  #noted = false;
  #authorNoted = false;
  #readOnly = false;
  /** Changes since the last copy was stored. */
  #unkept = false;
  #keepTimer: ReturnType<typeof setTimeout> | undefined;
  #keepCost = 0;
  #suspect = false;
  #elsewhereTimer: ReturnType<typeof setTimeout> | undefined;
  #elsewhereCost = 0;
  #over = false;

  constructor(url: string, id: string, person: Person, own: Identity, events: SessionEvents) {
    this.#url = url;
    this.#id = id;
    this.#person = person;
    this.#events = events;
    this.doc.setRecordTimestamp(true);
    this.doc.setChangeMergeInterval(CHANGE_SECONDS);
    this.#copies = new Copies(id, person.owner, this.doc.peerIdStr);
    this.presence = new Presence(this.doc, own);
  }

  get view(): EditorView | null {
    return this.#view;
  }

  get editable(): boolean {
    return !this.#readOnly && !this.#over;
  }

  /** Opens the document; a new one is not requested before the first edit. */
  async start(isNew: boolean): Promise<void> {
    if (isNew) this.#state = NEW;
    await (isNew ? undefined : this.#loadCopies());
    if (this.#over) return;
    this.#cleanups.push(
      this.doc.subscribeLocalUpdates(() => this.#note()),
      this.doc.subscribe(() => this.#note()),
      this.presence.subscribe(() => {
        const { name } = this.presence.identity;
        this.presence.settle();
        if (this.#authorNoted && this.presence.identity.name !== name) this.#noteAuthor();
        this.#events.people();
      }),
    );
    this.#note();
    if (isNew || (this.#person.trusted && hasContent(this.doc))) this.#begin();
    if (!isNew) this.connect();
    void this.#copies.prune().catch(() => undefined);
  }

  connect(): void {
    if (this.#link || this.#over) return;
    this.#input({ type: "begun" });
    this.#events.begun();
    this.#link = new Link(this.#url, this.#id, this.doc, this.presence, {
      input: (input) => this.#input(input),
      joined: () => setTimeout(() => this.#beginIfComplete()),
      closed: (why) => this.#closed(why),
      ours: () => this.#person.ours(),
    });
    const wait = setTimeout(() => this.#beginOffline(), OPEN_WAIT_MS);
    const watchdog = setInterval(() => this.#watchdog(), WATCHDOG_MS);
    this.#cleanups.push(() => clearTimeout(wait), () => clearInterval(watchdog));
  }

  /** Also changes the author's name in the history. */
  rename(name: string): void {
    this.presence.rename(name);
    if (this.#authorNoted) this.#noteAuthor();
  }

  nameOf(peer: string): string {
    const present = this.presence.people().find((person) => person.peer === peer);
    return present?.name ?? cleanName(this.doc.getMap(AUTHORS).get(peer)) ?? `peer ${peer.slice(-4)}`;
  }

  /**
   * Restores the text as an ordinary edit, which syncs and can be undone.
   * (Loro's `revertTo` and `diff` take seconds with large documents, and
   * would also revert the names of authors.)
   */
  restore(past: Node): void {
    if (this.editable && this.#view) this.#view.dispatch(become(this.#view.state, past));
  }

  text(): string {
    return plainText(this.#view?.state.doc ?? read(schema, this.doc));
  }

  get unsafe(): boolean {
    return waiting(this.#state) > 0 && this.#unkept;
  }

  retry(): void {
    this.#link?.retry();
  }

  /** Reconnect after a sign-in. */
  renew(): void {
    this.#link?.renew();
  }

  /** Store a copy now: the page may be closing. */
  async keepNow(): Promise<void> {
    if (this.#unkept) await this.#keep();
  }

  async forget(): Promise<void> {
    clearTimeout(this.#keepTimer);
    this.#unkept = false;
    await this.#copies.clear().catch(() => undefined);
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    for (const cleanup of this.#cleanups.splice(0)) cleanup();
    clearTimeout(this.#keepTimer);
    clearTimeout(this.#elsewhereTimer);
    this.presence.stop();
    this.#view?.destroy();
    this.#view = null;
    this.#link?.close();
  }

  async #loadCopies(): Promise<void> {
    try {
      for (const { bytes, promised } of await this.#copies.load()) {
        try {
          this.doc.import(bytes);
          this.#state = next(this.#state, { type: "remembered", version: new Map(promised) });
        } catch {
          // a damaged copy; the server has the rest
        }
      }
    } catch {
      // no store in this browser: beforeunload warns while something is unsaved
    }
  }

  #input(input: Input): void {
    if (input.type === "joined") {
      this.#serverVersion = input.version;
      if (this.#readOnly !== input.readOnly) this.#setReadOnly(input.readOnly);
    }
    this.#state = next(this.#state, input);
    this.#events.marked(mark(this.#state));
    if (input.type === "joined" && hasContent(this.doc)) this.#begin();
    if (input.type === "received") {
      this.#beginIfComplete();
      this.#lookElsewhere();
    }
  }

  /**
   * The seed is local until the first edit sends it. If another program creates the text meanwhile, the two do
   * not merge: then start again with the other one.
   */
  #lookElsewhere(): void {
    const unsent = (): boolean => hasSeed(this.doc) && ![...this.#state.promised.keys()].some(isSeedPeer) && this.doc.version().get(this.doc.peerIdStr) === undefined;
    if (this.#elsewhereTimer !== undefined || !unsent()) return;
    this.#elsewhereTimer = setTimeout(() => {
      this.#elsewhereTimer = undefined;
      const began = performance.now();
      const elsewhere = unsent() && begunElsewhere(this.doc);
      this.#elsewhereCost = performance.now() - began;
      if (elsewhere) this.#closed(BEGUN_ELSEWHERE);
    }, this.#elsewhereCost * 20);
  }

  #note(): void {
    if (this.#noted) return;
    this.#noted = true;
    queueMicrotask(() => {
      this.#noted = false;
      if (this.#over) return;
      // The seed is not an edit: every page can create it again.
      const version = [...this.doc.version().toJSON()].filter(([peer]) => !isSeedPeer(peer));
      this.#input({ type: "local", version: new Map(version) });
      this.#events.others(otherRoots(this.doc));
      this.#unkept = version.length > 0;
      this.#events.kept(!this.#unkept);
      this.#keepSoon();
    });
  }

  /** Shows the editor after the sync, with a first paragraph if there is none. */
  #beginIfComplete(): void {
    if (this.#view || this.#over || !this.#serverVersion) return;
    const own = this.doc.version();
    for (const [peer, end] of this.#serverVersion) if ((own.get(peer as PeerID) ?? 0) < end) return;
    this.#begin();
  }

  /** Not if the server has refused it: there is nothing to edit. */
  #beginOffline(): void {
    if (this.#state.room !== "joined" && this.#state.room !== "failed") this.#begin();
  }

  #begin(): void {
    if (this.#view || this.#over) return;
    if (!hasContent(this.doc)) this.doc.import(seed());
    this.#view = createEditor({
      place: document.getElementById("paper") as HTMLElement,
      doc: this.doc,
      presence: this.presence,
      editable: () => this.editable,
      changed: (view, own) => {
        if (own) this.connect();
        if (own && !this.#authorNoted) this.#noteAuthor();
        this.#events.edited(view);
      },
      emptied: (blocks) => {
        if (blocks.filter((id) => makeRoom(this.doc, id)).length > 0) this.doc.commit({ origin: NOT_UNDONE });
      },
    });
    this.#events.ready(this.#view);
  }

  #noteAuthor(): void {
    this.#authorNoted = true;
    // After the binding has written the edit that made us an author.
    queueMicrotask(() => {
      if (this.#over) return;
      this.doc.commit();
      this.doc.getMap(AUTHORS).set(this.doc.peerIdStr, this.presence.identity.name);
      this.doc.commit({ origin: NOT_UNDONE });
    });
  }

  #setReadOnly(readOnly: boolean): void {
    this.#readOnly = readOnly;
    this.#view?.setProps({ editable: () => this.editable });
    if (this.#view) this.#events.edited(this.#view);
  }

  #closed(why: Closed): void {
    if (ENDED.has(why)) this.#setReadOnly(true);
    this.#events.closed(why, waiting(this.#state), this.text());
  }

  #watchdog(): void {
    const stuck = mustSendAgain(this.#state);
    if (stuck && this.#suspect) this.#link?.sendFrom(this.#state.promised);
    this.#suspect = stuck;
  }

  #keepSoon(): void {
    if (!this.#unkept) return;
    const wait = waiting(this.#state) > 0 ? KEEP_UNSAVED_MS : KEEP_SAVED_MS;
    // Exporting a large document takes time: pause twenty times as long.
    this.#keepTimer ??= setTimeout(() => void this.#keep(), Math.max(wait, this.#keepCost * 20));
  }

  async #keep(): Promise<void> {
    clearTimeout(this.#keepTimer);
    this.#keepTimer = undefined;
    const began = performance.now();
    const bytes = this.doc.export({ mode: "snapshot" });
    this.#keepCost = performance.now() - began;
    const version = this.doc.version();
    try {
      const kept = await this.#copies.save(bytes, [...this.#state.promised], waiting(this.#state) > 0);
      if (kept && this.doc.version().compare(version) === 0) {
        this.#unkept = false;
        this.#events.kept(true);
      }
    } catch {
      // full or blocked: not stored, and the next change tries again
    }
  }
}
