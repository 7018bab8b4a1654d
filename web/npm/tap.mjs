// What goes over the socket of an unchanged npm client: the batches it sent, how they were answered, and why
// rooms and sockets ended. It listens beside the client and changes nothing.
import { MessageType, tryDecode } from "loro-protocol";

export class Tap {
  constructor(client) {
    this.sent = new Map(); // batch id: {room, bytes, status, at, acked}
    this.joins = []; // every JoinResponseOk
    this.joinErrors = [];
    this.roomErrors = [];
    this.closes = [];
    this.frames = 0; // received, binary
    this.fragments = 0;
    this.last = undefined; // the id of the batch that was sent last
    this.waiting = new Set();
    client.onStatusChange((status) => {
      if (status === "connected") this.attach(client.socket);
    });
  }

  attach(socket) {
    const send = socket.send.bind(socket);
    socket.send = (data, ...rest) => {
      if (typeof data !== "string") this.onSent(tryDecode(data));
      return send(data, ...rest);
    };
    socket.addEventListener("message", (event) => {
      if (typeof event.data !== "string") this.onReceived(tryDecode(new Uint8Array(event.data)));
    });
    socket.addEventListener("close", (event) => {
      this.closes.push({ code: event.code, reason: String(event.reason) });
      this.changed();
    });
  }

  onSent(message) {
    const bytes =
      message?.type === MessageType.DocUpdate
        ? message.updates.reduce((sum, update) => sum + update.length, 0)
        : message?.type === MessageType.DocUpdateFragmentHeader
          ? message.totalSizeBytes
          : undefined;
    if (bytes === undefined) return;
    this.last = message.batchId;
    this.sent.set(message.batchId, { room: message.roomId, crdt: message.crdt, bytes, at: performance.now() });
  }

  onReceived(message) {
    if (!message) return;
    this.frames += 1;
    switch (message.type) {
      case MessageType.DocUpdateFragment:
        this.fragments += 1;
        break;
      case MessageType.JoinResponseOk:
        this.joins.push(message);
        break;
      case MessageType.JoinError:
        this.joinErrors.push({ room: message.roomId, code: message.code, appCode: message.appCode });
        break;
      case MessageType.RoomError:
        this.roomErrors.push({ room: message.roomId, code: message.code, message: message.message });
        break;
      case MessageType.Ack: {
        const batch = this.sent.get(message.refId);
        if (batch && batch.status === undefined) {
          batch.status = message.status;
          batch.acked = performance.now();
        }
      }
    }
    this.changed();
  }

  changed() {
    for (const look of [...this.waiting]) look();
  }

  // What `look` finds, as soon as it finds something.
  until(what, look, seconds) {
    return until(what, look, seconds, (again) => {
      this.waiting.add(again);
      return () => this.waiting.delete(again);
    });
  }
}

// What `look` finds (anything but undefined), asked now and whenever `subscribe`'s callback is called.
export function until(what, look, seconds, subscribe) {
  return new Promise((resolve, reject) => {
    let stop = () => {};
    const timer = setTimeout(() => {
      stop();
      reject(new Error(`not in ${seconds} s: ${what}`));
    }, seconds * 1000);
    const again = () => {
      const found = look();
      if (found === undefined) return;
      clearTimeout(timer);
      stop();
      resolve(found);
    };
    stop = subscribe(again) ?? stop;
    again();
  });
}
