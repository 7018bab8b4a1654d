/**
 * The room on the server, through the unmodified npm client.
 *
 * The client does not report successful Acks, and in some cases forgets a room
 * silently, so this module reads the frames of its socket: outgoing ones have
 * the id of each batch, incoming ones Acks and errors. saved.ts decides what
 * they mean.
 */

import { LoroAdaptor, LoroEphemeralAdaptor } from "loro-adaptors/loro";
import { VersionVector, decodeImportBlobMeta, type EphemeralStore, type LoroDoc } from "loro-crdt";
import {
  CrdtType, JoinErrorCode, MessageType, RoomErrorCode, UpdateStatusCode,
  tryDecode, type JoinResponseOk, type ProtocolMessage,
} from "loro-protocol";
import { LoroWebsocketClient } from "loro-websocket";
import { hasSeed, isSeedPeer, seed } from "./content";
import type { Input, Span } from "./saved";

/** Why a room is closed permanently, or until the user acts. */
export type Closed = "history_trimmed" | "deleted" | (string & {});

/** Parse an error about the token: `token-...: sentence` if another one may help, `permission-denied: sentence`. */
export function tokenProblem(why: Closed): { readonly code: string; readonly sentence: string } | null {
  const found = /^(token-[a-z]+|permission-denied): (.*)$/s.exec(why);
  return found ? { code: found[1] ?? "", sentence: found[2] ?? "" } : null;
}

export interface LinkEvents {
  input(input: Input): void;
  /** The first answer of the server, and each later join. */
  joined(): void;
  closed(why: Closed): void;
  /** Called for each new connection before sending: "" if it has the same user, else the reason. Rejects if unknown. */
  ours?(): Promise<Closed>;
}

/** Close codes after which a retry cannot help; the client's own list is longer. */
const FATAL_CLOSE = [4400, 4401];
/** The prefix of a RoomError for a token that has ended; the reason follows. */
const TOKEN_ENDED = "auth_failed: ";
/** Silence after which a ping is sent; without an answer the connection is closed. */
const SILENCE_MS = 20_000;
const ANSWER_MS = 8_000;
const LOOK_MS = 4_000;
const STATUS_NAMES = new Map<number, string>([
  [UpdateStatusCode.Unknown, "unknown"],
  [UpdateStatusCode.PermissionDenied, "permission_denied"],
  [UpdateStatusCode.InvalidUpdate, "invalid_update"],
  [UpdateStatusCode.PayloadTooLarge, "payload_too_large"],
  [UpdateStatusCode.RateLimited, "rate_limited"],
  [UpdateStatusCode.FragmentTimeout, "fragment_timeout"],
  [UpdateStatusCode.AppError, "app_error"],
]);

export class Link {
  readonly #client: LoroWebsocketClient;
  readonly #id: string;
  readonly #doc: LoroDoc;
  readonly #presence: EphemeralStore;
  readonly #events: LinkEvents;
  #adaptor: WatchedAdaptor | null = null;
  #sending: readonly Span[] | null = null;
  /** The client keeps joining this room by itself. */
  #member = false;
  #presenceMember = false;
  #over = false;
  #lastMessage = 0;
  #asked = 0;
  readonly #timer = setInterval(() => this.#look(), LOOK_MS);
  readonly #offline = (): void => this.#leaveSocket();

  constructor(url: string, id: string, doc: LoroDoc, presence: EphemeralStore, events: LinkEvents) {
    this.#id = id;
    this.#doc = doc;
    this.#presence = presence;
    this.#events = events;
    this.#client = new LoroWebsocketClient({
      url,
      pingIntervalMs: 10_000,
      reconnect: { maxDelayMs: 5_000, fatalCloseCodes: FATAL_CLOSE },
    });
    globalThis.addEventListener?.("offline", this.#offline);
    // Join only on an open socket: the client never repeats an interrupted first join.
    this.#client.onStatusChange((status) => {
      if (this.#over) return;
      if (status === "connected") {
        this.#watch(this.#client.socket);
        this.#join();
      } else if (status === "disconnected") {
        // Also when the browser reports offline, long before the socket fails.
        this.#events.input({ type: "closed" });
      }
    });
  }

  /** Send dropped updates again. Without a room the next join sends them. */
  sendFrom(version: ReadonlyMap<string, number>): void {
    const from = new VersionVector(version as Map<`${number}`, number>);
    this.#adaptor?.pass(this.#doc.export({ mode: "update", from }));
  }

  /** Join again after a problem. */
  retry(): void {
    if (this.#client.getStatus() === "connected") this.#join();
    else void this.#client.retryNow().catch(() => undefined);
  }

  /** Reconnect after a sign-in: the handshake carries the token. */
  renew(): void {
    if (this.#client.getStatus() === "connected") this.#client.socket?.close();
    else void this.#client.retryNow().catch(() => undefined);
  }

  close(): void {
    this.#over = true;
    clearInterval(this.#timer);
    globalThis.removeEventListener?.("offline", this.#offline);
    this.#adaptor?.destroy();
    this.#client.destroy();
  }

  #join(): void {
    if (!this.#member) {
      this.#adaptor?.destroy();
      this.#adaptor = new WatchedAdaptor(this.#doc, {
        joined: (res) => this.#joined(res),
        sending: (spans, send) => {
          this.#sending = spans;
          send();
          this.#sending = null;
        },
        received: (spans) => this.#events.input({ type: "received", spans }),
      });
      this.#client.cleanupRoom(this.#id, CrdtType.Loro);
      void this.#client.join({ roomId: this.#id, crdtAdaptor: this.#adaptor }).catch(() => undefined);
    }
    if (!this.#presenceMember) {
      this.#client.cleanupRoom(this.#id, CrdtType.LoroEphemeralStore);
      void this.#client
        .join({ roomId: this.#id, crdtAdaptor: new LoroEphemeralAdaptor(this.#presence) })
        .then(() => { this.#presenceMember = true; }, () => undefined);
    }
  }

  #joined(res: JoinResponseOk): void {
    this.#member = true;
    this.#events.input({ type: "joined", version: versionOf(res), readOnly: res.permission === "read" });
    this.#events.joined();
  }

  /** The client closes dead sockets with a code that browsers reject, so close them here. */
  #leaveSocket(): void {
    this.#events.input({ type: "closed" });
    this.#client.socket?.close();
  }

  #look(): void {
    const now = Date.now();
    if (this.#client.getStatus() !== "connected" || now - this.#lastMessage < SILENCE_MS) return;
    if (this.#asked <= this.#lastMessage) {
      this.#asked = now;
      this.#client.socket.send("ping");
    } else if (now - this.#asked > ANSWER_MS) {
      this.#leaveSocket();
      void this.#client.retryNow().catch(() => undefined);
    }
  }

  #watch(socket: WebSocket): void {
    this.#lastMessage = Date.now();
    const send = socket.send.bind(socket);
    // The cookie of this handshake may have another user's token: do not send our edits as theirs.
    let held: Uint8Array<ArrayBuffer>[] | null = this.#events.ours ? [] : null;
    socket.send = (data) => {
      if (data instanceof Uint8Array) this.#outgoing(tryDecode(data));
      if (held && data instanceof Uint8Array) held.push(data as Uint8Array<ArrayBuffer>);
      else send(data);
    };
    void this.#events.ours?.().then(
      (why) => {
        if (this.#over || socket.readyState !== socket.OPEN) return;
        if (why !== "") return this.#fail(why);
        const frames = held ?? [];
        held = null;
        for (const frame of frames) send(frame);
      },
      () => socket.close(), // and reconnect
    );
    socket.addEventListener("message", (event: MessageEvent<unknown>) => {
      this.#lastMessage = Date.now();
      if (event.data instanceof ArrayBuffer) this.#incoming(tryDecode(new Uint8Array(event.data)));
    });
    socket.addEventListener("close", (event) => {
      if (!this.#over && FATAL_CLOSE.includes(event.code)) this.#fail(event.reason || `closed by the server (${event.code})`);
    });
  }

  #outgoing(message: ProtocolMessage | undefined): void {
    if (message?.crdt !== CrdtType.Loro || !this.#sending) return;
    if (message.type !== MessageType.DocUpdate && message.type !== MessageType.DocUpdateFragmentHeader) return;
    this.#events.input({ type: "sent", batch: message.batchId, spans: this.#sending });
  }

  #incoming(message: ProtocolMessage | undefined): void {
    if (this.#over || message?.crdt !== CrdtType.Loro || message.roomId !== this.#id) return;
    switch (message.type) {
      case MessageType.Ack: {
        const batch = message.refId;
        if (message.status === UpdateStatusCode.Ok) this.#events.input({ type: "acked", batch });
        else this.#events.input({ type: "refused", batch, reason: STATUS_NAMES.get(message.status) ?? "unknown" });
        break;
      }
      case MessageType.RoomError:
        if (message.code === RoomErrorCode.RejoinSuggested) this.#events.input({ type: "rejoining" });
        else this.#fail(message.code === RoomErrorCode.Evicted ? "deleted" : message.message.replace(TOKEN_ENDED, "") || "unknown");
        break;
      case MessageType.JoinError:
        // version_unknown: the client retries once by itself.
        if (message.code !== JoinErrorCode.VersionUnknown) this.#fail(message.appCode ?? (message.message || "refused"));
        break;
      default:
    }
  }

  #fail(why: Closed): void {
    this.#member = false;
    this.#events.input({ type: "failed", reason: why });
    this.#events.closed(why);
  }
}

interface Watch {
  joined(res: JoinResponseOk): void;
  sending(spans: readonly Span[], send: () => void): void;
  received(spans: readonly Span[]): void;
}

/**
 * The npm adaptor with events for sent and received updates. Viewing writes nothing: the update without operations
 * that the adaptor sends to an empty room is dropped, and the seed is sent with the first edit.
 */
class WatchedAdaptor extends LoroAdaptor {
  readonly #watch: Watch;
  #seedThere = false;
  #send: ((update: Uint8Array) => void) | null = null;

  constructor(doc: LoroDoc, watch: Watch) {
    super(doc);
    this.#watch = watch;
  }

  pass(update: Uint8Array): void {
    this.#send?.(update);
  }

  override setCtx(ctx: Parameters<LoroAdaptor["setCtx"]>[0]): void {
    const send = (update: Uint8Array, spans: readonly Span[]): void => {
      this.#noteSeed(spans);
      this.#watch.sending(spans, () => ctx.send([update]));
    };
    this.#send = (update) => {
      const spans = spansOf(update);
      if (spans.every(({ peer }) => isSeedPeer(peer))) return;
      if (!this.#seedThere && hasSeed(this.getDoc()) && !spans.some(({ peer }) => isSeedPeer(peer))) {
        const first = seed();
        send(first, spansOf(first));
      }
      send(update, spans);
    };
    super.setCtx({ ...ctx, send: (updates) => updates.forEach((update) => this.#send?.(update)) });
  }

  override async handleJoinOk(res: JoinResponseOk): Promise<void> {
    this.#seedThere = false;
    this.#noteSeed([...versionOf(res)].map(([peer, end]) => ({ peer, start: 0, end })));
    this.#watch.joined(res);
    await super.handleJoinOk(res);
  }

  override applyUpdate(updates: Uint8Array[]): void {
    super.applyUpdate(updates);
    const spans = updates.flatMap(spansOf);
    this.#noteSeed(spans);
    this.#watch.received(spans);
  }

  override destroy(): void {
    this.#send = null;
    super.destroy();
  }

  #noteSeed(there: readonly Span[]): void {
    this.#seedThere ||= there.some(({ peer }) => isSeedPeer(peer));
  }
}

function versionOf(res: JoinResponseOk): ReadonlyMap<string, number> {
  return res.version.length > 0 ? VersionVector.decode(res.version).toJSON() : new Map<string, number>();
}

function spansOf(update: Uint8Array): Span[] {
  try {
    const meta = decodeImportBlobMeta(update, false);
    const starts = meta.partialStartVersionVector.toJSON();
    return [...meta.partialEndVersionVector.toJSON()].map(([peer, end]) => ({ peer, start: starts.get(peer) ?? 0, end }));
  } catch {
    return []; // malformed: no evidence of what is saved
  }
}
