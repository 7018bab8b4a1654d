// Measures servers of the loro-protocol with npm clients, in turns: one writer and some readers per room, each on
// a connection of its own. Takes {"servers": {name: url}, "room", "readers", "bare", "blocks", "edits"} as its
// argument and prints, per server, milliseconds of every edit: until its Ack, until each reader, until the last.
// Bare readers are sockets that count frames and have no document: what is left is the server's time.
import { LoroDoc } from "loro-crdt";
import { LoroAdaptor } from "loro-adaptors/loro";
import { MessageType, encode, tryDecode } from "loro-protocol";
import { LoroWebsocketClient } from "loro-websocket";
import WebSocket from "ws";

globalThis.WebSocket = WebSocket;
process.setMaxListeners(0); // every client listens to "online" and "offline"
const { servers, readers, bare, blocks, edits, room } = JSON.parse(process.argv[2]);
const KEY = "x";
const EDIT_SECONDS = 20;

async function member(url) {
  const client = new LoroWebsocketClient({ url, disablePing: true });
  await client.waitConnected();
  const doc = new LoroDoc();
  const refused = [];
  const adaptor = new LoroAdaptor(doc, { onUpdateError: (_, code) => refused.push(code) });
  const joined = await client.join({ roomId: room, crdtAdaptor: adaptor });
  await joined.waitForReachingServerVersion();
  return { client, doc, refused };
}

// A socket that is in the room, and nothing else.
function bareReader(url) {
  const socket = new WebSocket(url);
  const reader = { updates: 0, onUpdate: () => {} };
  const kind = 4 + 1 + room.length; // behind the magic and the room's id with its length
  socket.on("open", () => {
    const nothing = new Uint8Array();
    socket.send(encode({ type: MessageType.JoinRequest, crdt: "%LOR", roomId: room, auth: nothing, version: nothing }));
  });
  return new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("message", (data) => {
      if (data[kind] === MessageType.JoinResponseOk) resolve(reader);
      else if (data[kind] === MessageType.DocUpdate) {
        reader.updates += 1;
        reader.onUpdate();
      }
    });
  });
}

class Side {
  constructor(writer, others) {
    this.writer = writer;
    this.others = others;
    this.length = 0;
    this.figures = { ack: [], reader: [], last: [] };
    this.acked = () => {};
    this.seen = () => {};
    writer.client.socket.addEventListener("message", (event) => {
      if (tryDecode(new Uint8Array(event.data))?.type === MessageType.Ack) this.acked(performance.now());
    });
    this.backfill = others.map(({ updates }) => updates);
    for (const one of others) {
      if (bare) one.onUpdate = () => this.seen(performance.now());
      else
        one.doc.subscribe(() => {
          if (one.doc.getText("t").length === this.length) this.seen(performance.now());
        });
    }
  }

  // One key, and everything that follows from it.
  async edit(keep) {
    const acked = new Promise((resolve) => (this.acked = resolve));
    const seen = new Promise((resolve) => {
      const times = [];
      this.seen = (now) => {
        times.push(now);
        if (times.length === this.others.length) resolve(times);
      };
    });
    this.length += KEY.length;
    const before = performance.now();
    this.writer.doc.getText("t").insert(this.length - KEY.length, KEY);
    this.writer.doc.commit();
    const [ack, times] = await within(Promise.all([acked, seen]), `edit ${this.length}`);
    if (!keep) return;
    this.figures.ack.push(ack - before);
    this.figures.last.push(Math.max(...times) - before);
    for (const time of times) this.figures.reader.push(time - before);
  }

  // Everybody has the same, and all of it.
  check() {
    const wanted = KEY.repeat(this.length);
    if (bare) return this.others.every(({ updates }, at) => updates - this.backfill[at] === this.length / KEY.length);
    const all = [this.writer, ...this.others];
    return all.every(({ doc, refused }) => doc.getText("t").toString() === wanted && refused.length === 0);
  }
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${EDIT_SECONDS} s`)), EDIT_SECONDS * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const sides = {};
for (const [name, url] of Object.entries(servers)) {
  const writer = await member(url);
  const reader = bare ? bareReader : member;
  const others = await Promise.all(Array.from({ length: readers }, () => reader(url)));
  await new Promise((resolve) => setTimeout(resolve, 200)); // what a server sends to newcomers is behind us
  sides[name] = new Side(writer, others);
}
for (let block = -1; block < blocks; block++) {
  const order = Object.values(sides);
  if (block % 2) order.reverse(); // nobody always follows the same one
  for (const side of order) for (let edit = 0; edit < edits; edit++) await side.edit(block >= 0); // the first block warms up
}
const report = {};
for (const [name, side] of Object.entries(sides)) report[name] = { ...side.figures, right: side.check() };
process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(0));
