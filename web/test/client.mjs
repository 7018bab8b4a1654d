// The npm client against a gateway: `node test/client.mjs ws://host:port/ws`. It says "ready" when the first half
// went well, and "done" when, after a line on stdin, it has come back to a gateway that was started again.
import { EphemeralStore, LoroDoc } from "loro-crdt";
import { LoroAdaptor, LoroEphemeralAdaptor, LoroPersistentStoreAdaptor } from "loro-adaptors/loro";
import { LoroWebsocketClient } from "loro-websocket";
import WebSocket from "ws";

globalThis.WebSocket ??= WebSocket;
const url = process.argv[2];
const roomId = "npm";

const until = async (true_, what) => {
  for (let turn = 0; turn < 1000; turn++) {
    if (true_()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`never came: ${what}`);
};

const open = async (words) => {
  const client = new LoroWebsocketClient({ url });
  await client.waitConnected();
  const one = { client, doc: new LoroDoc(), store: new EphemeralStore(30_000), kept: new EphemeralStore(1e9) };
  one.text = one.doc.getText("t");
  one.statuses = [];
  one.errors = [];
  one.type = (text) => {
    one.text.insert(0, text);
    one.doc.commit();
  };
  if (words) one.type(words);
  const adaptor = new LoroAdaptor(one.doc, { onUpdateError: (_, code, reason) => one.errors.push(reason ?? code) });
  one.room = await client.join({ roomId, crdtAdaptor: adaptor, onStatusChange: (status) => one.statuses.push(status) });
  await client.join({ roomId, crdtAdaptor: new LoroEphemeralAdaptor(one.store) });
  await client.join({ roomId, crdtAdaptor: new LoroPersistentStoreAdaptor(one.kept) });
  return one;
};

const ann = await open("written offline. ");
const bob = await open("");
await bob.room.waitForReachingServerVersion();
await until(() => bob.text.toString() === "written offline. ", "what was written offline");
bob.type("hello, ");
await until(() => ann.text.toString() === "hello, written offline. ", "an update");

ann.store.set("ann", { at: 1 });
await until(() => bob.store.get("ann")?.at === 1, "presence");
ann.kept.set("title", "Minutes");
await until(() => bob.kept.get("title") === "Minutes", "kept presence");

ann.type(Array.from({ length: 300_000 }, (_, i) => String.fromCharCode(0x4e00 + ((i * i * 7919) % 20000))).join(""));
await until(() => bob.text.length === ann.text.length, "a large update, in fragments");
ann.client.close();
await until(() => bob.store.get("ann") === undefined, "that the cursor vanishes");

const cyd = await open("");
await until(() => cyd.text.length === bob.text.length, "all of it, for a newcomer");
await until(() => cyd.kept.get("title") === "Minutes", "kept presence, for a newcomer");
console.log("ready");

process.stdin.once("data", async () => {
  await until(() => bob.statuses.includes("reconnecting") && bob.statuses.at(-1) === "joined", "the room again");
  bob.type("again, ");
  await until(() => cyd.text.toString().startsWith("again, "), "more");
  const errors = [...ann.errors, ...bob.errors, ...cyd.errors];
  if (errors.length) throw new Error(`updates failed: ${errors}`);
  console.log("done");
  process.exit(0);
});
