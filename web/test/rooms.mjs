/**
 * A server of rooms for tests and for work on the page: documents in memory,
 * and switches to be slow, to refuse, to go away. It is no measure of lorogo.
 */
import { LoroDoc, VersionVector } from "loro-crdt";
import { CrdtType, JoinErrorCode, MessageType, RoomErrorCode, UpdateStatusCode, encode, tryDecode } from "loro-protocol";
import { WebSocketServer } from "ws";

const FRAGMENT_BYTES = 240 * 1024;

export class Rooms {
  documents = new Map();
  sockets = new Map();
  /** While true no update is applied or Acked; `release` does it. */
  holding = false;
  held = [];
  /** Rooms of documents that got an update, one entry for each. */
  updated = [];
  /** A status to answer the next updates with, or null. */
  refuse = null;
  /** An application code to answer the next joins of documents with, or null. */
  refuseJoin = null;
  permission = "write";
  /** So many joins are answered by closing the connection. */
  cutJoins = 0;
  #batch = 0;

  constructor(options) {
    this.server = new WebSocketServer(options);
    this.server.on("connection", (socket) => {
      this.sockets.set(socket, { rooms: new Set(), fragments: new Map() });
      socket.binaryType = "nodebuffer";
      socket.on("message", (data, isBinary) => {
        if (!isBinary) {
          if (String(data) === "ping") socket.send("pong");
          return;
        }
        const message = tryDecode(new Uint8Array(data));
        if (message) this.#handle(socket, message);
      });
      socket.on("close", () => this.sockets.delete(socket));
      socket.on("error", () => undefined);
    });
  }

  document(id) {
    if (!this.documents.has(id)) this.documents.set(id, new LoroDoc());
    return this.documents.get(id);
  }

  release() {
    this.holding = false;
    for (const run of this.held.splice(0)) run();
  }

  suggestRejoin(id) {
    this.#toAll(`${CrdtType.Loro}${id}`, null, { type: MessageType.RoomError, crdt: CrdtType.Loro, roomId: id, code: RoomErrorCode.RejoinSuggested, message: "owner lost" });
  }

  evict(id) {
    this.#toAll(`${CrdtType.Loro}${id}`, null, { type: MessageType.RoomError, crdt: CrdtType.Loro, roomId: id, code: RoomErrorCode.Evicted, message: "deleted" });
  }

  drop(code = 1001, reason = "going away") {
    for (const socket of this.sockets.keys()) socket.close(code, reason);
  }

  #handle(socket, message) {
    const { crdt, roomId } = message;
    const member = this.sockets.get(socket);
    switch (message.type) {
      case MessageType.JoinRequest:
        this.#join(socket, member, message);
        break;
      case MessageType.Leave:
        member.rooms.delete(`${crdt}${roomId}`);
        break;
      case MessageType.DocUpdate:
        this.#update(socket, message, message.updates, message.batchId);
        break;
      case MessageType.DocUpdateFragmentHeader:
        member.fragments.set(message.batchId, { parts: [], left: message.fragmentCount });
        break;
      case MessageType.DocUpdateFragment: {
        const batch = member.fragments.get(message.batchId);
        batch.parts[message.index] = message.fragment;
        batch.left -= 1;
        if (batch.left === 0) {
          member.fragments.delete(message.batchId);
          this.#update(socket, message, [new Uint8Array(Buffer.concat(batch.parts))], message.batchId);
        }
        break;
      }
      default:
    }
  }

  #join(socket, member, { crdt, roomId, version }) {
    if (crdt === CrdtType.Loro && this.refuseJoin) {
      this.#send(socket, { type: MessageType.JoinError, crdt, roomId, code: JoinErrorCode.AppError, message: this.refuseJoin, appCode: this.refuseJoin });
      return;
    }
    if (this.cutJoins > 0) {
      this.cutJoins -= 1;
      socket.close(1013, "not served yet");
      return;
    }
    member.rooms.add(`${crdt}${roomId}`);
    const doc = crdt === CrdtType.Loro ? this.document(roomId) : null;
    this.#send(socket, { type: MessageType.JoinResponseOk, crdt, roomId, permission: this.permission, version: doc ? doc.version().encode() : new Uint8Array() });
    if (!doc) return;
    const from = version.length > 0 ? VersionVector.decode(version) : undefined;
    if (from && [0, 1].includes(from.compare(doc.version()))) return;
    this.#sendUpdate(socket, crdt, roomId, doc.export({ mode: "update", from }));
  }

  #update(socket, { crdt, roomId }, updates, batchId) {
    if (crdt === CrdtType.Loro) this.updated.push(roomId);
    const ack = (status) => this.#send(socket, { type: MessageType.Ack, crdt, roomId, refId: batchId, status });
    const run = () => {
      const key = `${crdt}${roomId}`;
      if (!this.sockets.get(socket)?.rooms.has(key)) return ack(UpdateStatusCode.PermissionDenied);
      if (crdt === CrdtType.Loro) {
        if (this.refuse !== null) return ack(this.refuse);
        this.document(roomId).importBatch(updates);
      }
      ack(UpdateStatusCode.Ok);
      for (const update of updates) {
        for (const [other, { rooms }] of this.sockets) if (other !== socket && rooms.has(key)) this.#sendUpdate(other, crdt, roomId, update);
      }
    };
    if (this.holding && crdt === CrdtType.Loro) this.held.push(run);
    else run();
  }

  #sendUpdate(socket, crdt, roomId, update) {
    const batchId = `0x${(this.#batch += 1).toString(16).padStart(16, "0")}`;
    if (update.length <= FRAGMENT_BYTES) {
      this.#send(socket, { type: MessageType.DocUpdate, crdt, roomId, updates: [update], batchId });
      return;
    }
    const count = Math.ceil(update.length / FRAGMENT_BYTES);
    this.#send(socket, { type: MessageType.DocUpdateFragmentHeader, crdt, roomId, batchId, fragmentCount: count, totalSizeBytes: update.length });
    for (let index = 0; index < count; index += 1) {
      const fragment = update.subarray(index * FRAGMENT_BYTES, (index + 1) * FRAGMENT_BYTES);
      this.#send(socket, { type: MessageType.DocUpdateFragment, crdt, roomId, batchId, index, fragment });
    }
  }

  #toAll(key, except, message) {
    for (const [socket, { rooms }] of this.sockets) if (socket !== except && rooms.has(key)) this.#send(socket, message);
  }

  #send(socket, message) {
    if (socket.readyState === 1) socket.send(encode(message));
  }
}
