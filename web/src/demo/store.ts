/**
 * Copies of documents in this browser (IndexedDB), so that unsaved edits
 * survive a reload, and a known document opens offline.
 *
 * One record per document and tab: tabs never overwrite each other. Opening
 * a document merges all its records; once the tab's own record has them, the
 * others are deleted, unless their tab has written since.
 *
 * Records are separate by owner: no user sees, sends or deletes what another
 * wrote in this browser.
 */

import type { Owner } from "../common/who";

const DATABASE = "lorogo";
const COPIES = "copies";
const DOCUMENTS_MAX = 40;
export const COPY_BYTES_MAX = 16 * 1024 * 1024;

interface Copy {
  /** `keptUnder` */
  readonly id: string;
  readonly tab: string;
  readonly revision: number;
  readonly time: number;
  /** 1 or 0, as a sort key: saved copies come first. */
  readonly unsaved: number;
  readonly bytes: Uint8Array;
  /** The version that the server had confirmed. */
  readonly promised: readonly (readonly [string, number])[];
}

/** The key of a document. Ids have no spaces, so keys of two owners differ. */
export function keptUnder(id: string, owner: Owner): string {
  return owner === "" ? id : `${id} ${owner}`;
}

export type Loaded = Pick<Copy, "bytes" | "promised">;

type Stamp = Pick<Copy, "tab" | "revision">;

export class Copies {
  readonly #id: string;
  readonly #tab: string;
  #revision = 0;
  #loaded: Stamp[] = [];
  #database: Promise<IDBDatabase>;

  constructor(id: string, owner: Owner, tab: string) {
    this.#id = keptUnder(id, owner);
    this.#tab = tab;
    this.#database = open();
    this.#database.catch(() => undefined); // each use below reports the error
  }

  /** All copies of this document of this owner, from all tabs. */
  async load(): Promise<Loaded[]> {
    const database = await this.#database;
    const store = database.transaction(COPIES, "readonly").objectStore(COPIES);
    const copies = (await answer(store.getAll(range(this.#id)))) as Copy[];
    this.#loaded = copies.map(({ tab, revision }) => ({ tab, revision }));
    return copies;
  }

  /** Returns false if it is too large to store. */
  async save(bytes: Uint8Array, promised: Copy["promised"], unsaved: boolean): Promise<boolean> {
    if (bytes.length > COPY_BYTES_MAX) return false;
    const database = await this.#database;
    const transaction = database.transaction(COPIES, "readwrite");
    const store = transaction.objectStore(COPIES);
    this.#revision += 1;
    const copy: Copy = {
      id: this.#id, tab: this.#tab, revision: this.#revision, time: Date.now(), unsaved: unsaved ? 1 : 0,
      bytes, promised,
    };
    store.put(copy);
    for (const stamp of this.#loaded.splice(0)) void dropIfUnchanged(store, this.#id, stamp);
    await done(transaction);
    return true;
  }

  /** Delete the copies of this document. */
  async clear(): Promise<void> {
    const database = await this.#database;
    const transaction = database.transaction(COPIES, "readwrite");
    transaction.objectStore(COPIES).delete(range(this.#id));
    await done(transaction);
  }

  /** Limit the number of documents; copies with unsaved edits are deleted last. */
  async prune(): Promise<void> {
    const database = await this.#database;
    const transaction = database.transaction(COPIES, "readwrite");
    const store = transaction.objectStore(COPIES);
    const keys = (await answer(store.index("age").getAllKeys())) as [string, string][];
    for (const key of keys.slice(0, Math.max(0, keys.length - DOCUMENTS_MAX))) store.delete(key);
    await done(transaction);
  }
}

async function dropIfUnchanged(store: IDBObjectStore, id: string, stamp: Stamp): Promise<void> {
  const key = [id, stamp.tab];
  const now = (await answer(store.get(key))) as Copy | undefined;
  if (now && now.revision === stamp.revision) store.delete(key);
}

function range(id: string): IDBKeyRange {
  return IDBKeyRange.bound([id], [id, []]);
}

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => {
      const store = request.result.createObjectStore(COPIES, { keyPath: ["id", "tab"] });
      store.createIndex("age", ["unsaved", "time"]);
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("this browser stores no data"));
    request.onblocked = () => reject(new Error("another tab uses an older version of the store"));
  });
}

function answer<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the browser's store failed"));
  });
}

function done(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error("the browser's store is full"));
    transaction.onerror = () => reject(transaction.error ?? new Error("the browser's store failed"));
  });
}
