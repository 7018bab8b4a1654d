/**
 * The room on the server, by the npm client as it is.
 *
 * The client does not tell of good Acks, and forgets a room in some cases
 * without a word, so we look at the frames of its socket: outgoing ones give
 * the id of each batch, incoming ones Acks and errors. What they mean is
 * decided in saved.ts.
 */

import { LoroAdaptor, LoroEphemeralAdaptor } from "loro-adaptors/loro";
import { VersionVector, decodeImportBlobMeta, type EphemeralStore, type LoroDoc } from "loro-crdt";
import {
  CrdtType, JoinErrorCode, MessageType, RoomErrorCode, UpdateStatusCode,
  tryDecode, type JoinResponseOk, type ProtocolMessage,
} from "loro-protocol";
import { LoroWebsocketClient } from "loro-websocket";
import type { Input, Span } from "./saved";

/** Why a room is closed to us for good, or until the reader acts. */
export type Closed = "history_trimmed" | "deleted" | (string & {});

export interface LinkEvents {
  input(input: Input): void;
  /** The first answer of the server, and each later join. */
  joined(): void;
  closed(why: Closed): void;
}

/** Close codes after which trying again cannot help; the client's own list is longer. */
const FATAL_CLOSE = [4400];
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
    // Joining only on an open socket: a first join that was cut off is never repeated by the client.
    this.#client.onStatusChange((status) => {
      if (status === "connected" && !this.#over) {
        this.#watch(this.#client.socket);
        this.#join();
      }
    });
  }

  /** Operations of others that the server lacks: a seed, a stored copy. Without a room the next join sends them. */
  pass(update: Uint8Array): void {
    this.#adaptor?.pass(update);
  }

  /** Send again what was dropped. */
  sendFrom(version: ReadonlyMap<string, number>): void {
    const from = new VersionVector(version as Map<`${number}`, number>);
    this.pass(this.#doc.export({ mode: "update", from }));
  }

  /** After a problem: join anew. */
  retry(): void {
    if (this.#client.getStatus() === "connected") this.#join();
    else void this.#client.retryNow().catch(() => undefined);
  }

  close(): void {
    this.#over = true;
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
    const version = res.version.length > 0 ? VersionVector.decode(res.version).toJSON() : new Map<string, number>();
    this.#events.input({ type: "joined", version, readOnly: res.permission === "read" });
    this.#events.joined();
  }

  #watch(socket: WebSocket): void {
    const send = socket.send.bind(socket);
    socket.send = (data) => {
      if (data instanceof Uint8Array) this.#outgoing(tryDecode(data));
      send(data);
    };
    socket.addEventListener("message", (event: MessageEvent<unknown>) => {
      if (event.data instanceof ArrayBuffer) this.#incoming(tryDecode(new Uint8Array(event.data)));
    });
    socket.addEventListener("close", (event) => {
      if (this.#over) return;
      this.#events.input({ type: "closed" });
      if (FATAL_CLOSE.includes(event.code)) this.#fail(event.reason || `closed by the server (${event.code})`);
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
        else this.#fail(message.code === RoomErrorCode.Evicted ? "deleted" : message.message || "unknown");
        break;
      case MessageType.JoinError:
        // version_unknown: the client tries once more by itself.
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

/** The npm adaptor, telling what it sends and gets. */
class WatchedAdaptor extends LoroAdaptor {
  readonly #watch: Watch;
  #send: ((update: Uint8Array) => void) | null = null;

  constructor(doc: LoroDoc, watch: Watch) {
    super(doc);
    this.#watch = watch;
  }

  pass(update: Uint8Array): void {
    this.#send?.(update);
  }

  override setCtx(ctx: Parameters<LoroAdaptor["setCtx"]>[0]): void {
    this.#send = (update) => this.#watch.sending(spansOf(update), () => ctx.send([update]));
    super.setCtx({ ...ctx, send: (updates) => updates.forEach((update) => this.#send?.(update)) });
  }

  override async handleJoinOk(res: JoinResponseOk): Promise<void> {
    this.#watch.joined(res);
    await super.handleJoinOk(res);
  }

  override applyUpdate(updates: Uint8Array[]): void {
    super.applyUpdate(updates);
    this.#watch.received(updates.flatMap(spansOf));
  }

  override destroy(): void {
    this.#send = null;
    super.destroy();
  }
}

function spansOf(update: Uint8Array): Span[] {
  try {
    const meta = decodeImportBlobMeta(update, false);
    const starts = meta.partialStartVersionVector.toJSON();
    return [...meta.partialEndVersionVector.toJSON()].map(([peer, end]) => ({ peer, start: starts.get(peer) ?? 0, end }));
  } catch {
    return []; // does not parse: says nothing about what is saved
  }
}
