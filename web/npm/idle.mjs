// npm clients that join and then do nothing. Takes {"url", "clients", "rooms"} as its argument, prints "joined" when
// all are in their rooms (client n is in room n modulo rooms), and ends with its stdin.
import { LoroDoc } from "loro-crdt";
import { LoroAdaptor } from "loro-adaptors/loro";
import { LoroWebsocketClient } from "loro-websocket";
import WebSocket from "ws";

globalThis.WebSocket = WebSocket;
process.setMaxListeners(0); // every client listens to "online" and "offline"
const { url, clients, rooms, first } = JSON.parse(process.argv[2]);
const AT_ONCE = 20;
let closed = 0;

async function one(number) {
  const client = new LoroWebsocketClient({ url, onWsClose: () => closed++ });
  await client.waitConnected();
  const doc = new LoroDoc();
  const room = await client.join({ roomId: `${first}-${number % rooms}`, crdtAdaptor: new LoroAdaptor(doc) });
  await room.waitForReachingServerVersion();
}

let next = 0;
await Promise.all(
  Array.from({ length: AT_ONCE }, async () => {
    while (next < clients) await one(next++);
  }),
);
console.log(`joined ${clients - closed}`);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
