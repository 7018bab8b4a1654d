// Clients of the unchanged npm packages, driven from elsewhere: one JSON command per line on stdin,
// {"id", "do", ...arguments}; one answer per line on stdout, {"id", "value"} or {"id", "error"}.
import { createHash } from "node:crypto";
import { createInterface } from "node:readline";
import { EphemeralStore, LoroDoc } from "loro-crdt";
import { LoroAdaptor, LoroEphemeralAdaptor, LoroPersistentStoreAdaptor } from "loro-adaptors/loro";
import { LoroWebsocketClient } from "loro-websocket";
import WebSocket from "ws";
import { Tap, until } from "./tap.mjs";

globalThis.WebSocket = WebSocket; // Node 20 has none
process.setMaxListeners(0); // every client listens to "online" and "offline"
console.error = console.warn = (...words) => process.stderr.write(`${words.map(String).join(" ")}\n`);

const SECONDS = 40;
const PRESENCE_MS = 3_600_000; // longer than any test: what vanishes was taken away
const clients = new Map();

class Person {
  constructor(url) {
    const reconnect = { initialDelayMs: 50, maxDelayMs: 500 };
    this.url = url;
    this.client = new LoroWebsocketClient({ url, reconnect });
    this.tap = new Tap(this.client);
    this.rooms = new Map(); // crdt + id: {room, doc or store, statuses, refused}
    this.typing = undefined;
  }

  at(room, crdt = "%LOR") {
    const found = this.rooms.get(crdt + room);
    if (!found) throw new Error(`not in ${crdt}${room}`);
    return found;
  }

  // Type one word at the end; its batch, if there was a socket to send it on.
  word(room, text) {
    const { doc } = this.at(room);
    this.tap.last = undefined;
    const body = doc.getText("body");
    body.insert(body.length, text);
    doc.commit();
    return this.tap.last;
  }
}

function adaptorOf(crdt, joined) {
  switch (crdt) {
    case "%LOR":
      joined.doc = new LoroDoc();
      return new LoroAdaptor(joined.doc, {
        onUpdateError: (_updates, code, reason) => joined.refused.push({ code, reason }),
        onImportError: (error) => joined.importErrors.push(error.message),
      });
    case "%EPH":
      joined.store = new EphemeralStore(PRESENCE_MS);
      return new LoroEphemeralAdaptor(joined.store);
    case "%EPS":
      joined.store = new EphemeralStore(PRESENCE_MS);
      return new LoroPersistentStoreAdaptor(joined.store);
    default: // one that the server does not know
      joined.doc = new LoroDoc();
      return Object.assign(new LoroAdaptor(joined.doc), { crdtType: crdt });
  }
}

const commands = {
  async connect({ client, url }) {
    clients.set(client, new Person(url));
    await clients.get(client).client.waitConnected();
  },

  async join({ person, room, crdt = "%LOR", auth = "", wait = true }) {
    const joined = { statuses: [], refused: [], importErrors: [] };
    const crdtAdaptor = adaptorOf(crdt, joined);
    const before = person.tap.joins.length;
    joined.room = await person.client.join({
      roomId: room,
      crdtAdaptor,
      auth: new TextEncoder().encode(auth),
      onStatusChange: (status) => {
        joined.statuses.push(status);
        person.tap.changed();
      },
    });
    person.rooms.set(crdt + room, joined);
    if (wait) await joined.room.waitForReachingServerVersion();
    const ok = person.tap.joins.slice(before).find((one) => one.roomId === room && one.crdt === crdt);
    return { permission: ok.permission, version: Buffer.from(ok.version).toString("hex") };
  },

  async leave({ person, room, crdt = "%LOR" }) {
    await person.at(room, crdt).room.leave();
  },

  // Type a word and wait for its Ack: the status.
  async type({ person, room, text, acked = true }) {
    const batch = person.word(room, text);
    return acked ? commands.acked({ person, batch }) : batch;
  },

  // An edit that never leaves: what comes after it needs it.
  typeUnsent({ person, room, text }) {
    const { socket } = person.client;
    const { send } = socket;
    socket.send = () => {};
    person.word(room, text);
    socket.send = send;
  },

  acked({ person, batch }) {
    return person.tap.until(`an Ack of ${batch}`, () => person.tap.sent.get(batch)?.status, SECONDS);
  },

  // Words of one's own at the end, one every so many milliseconds, until `rest`.
  startTyping({ person, room, name, every }) {
    const words = []; // {word, batch}
    let number = 0;
    const timer = setInterval(() => {
      const word = `${name}${String(number++).padStart(5, "0")} `;
      words.push({ word, batch: person.word(room, word) });
    }, every);
    person.typing = { words, timer };
  },

  // So many words as quickly as can be, each an update of its own.
  burst({ person, room, name, count }) {
    const words = Array.from({ length: count }, (_, number) => `${name}${String(number).padStart(5, "0")} `);
    for (const word of words) person.word(room, word);
    return words;
  },

  rest({ person }) {
    clearInterval(person.typing.timer);
    return commands.typed({ person });
  },

  // All words so far, and those whose own batch was Acked.
  typed({ person }) {
    const { words } = person.typing;
    const ok = words.filter(({ batch }) => batch && person.tap.sent.get(batch)?.status === 0);
    return { typed: words.map(({ word }) => word), acked: ok.map(({ word }) => word) };
  },

  ackedWords({ person, count }) {
    const look = () => (commands.typed({ person }).acked.length >= count ? true : undefined);
    return person.tap.until(`${count} words Acked`, look, SECONDS);
  },

  text({ person, room }) {
    return person.at(room).doc.getText("body").toString();
  },

  // Until the text has all these words; the text.
  async sees({ person, room, words }) {
    const { doc } = person.at(room);
    const missing = [...words];
    const look = () => {
      const text = doc.getText("body").toString();
      while (missing.length && text.includes(missing[missing.length - 1])) missing.pop();
      return missing.length ? undefined : text;
    };
    try {
      return await until("", look, SECONDS, (again) => doc.subscribe(again));
    } catch {
      throw new Error(`after ${SECONDS} s ${room} has not "${missing.pop()}" nor ${missing.length} others`);
    }
  },

  // What the document is, in a form that Python computes as well.
  facts({ person, room }) {
    const { doc } = person.at(room);
    const text = doc.getText("body").toString();
    return {
      characters: text.length,
      sha256: createHash("sha256").update(text).digest("hex"),
      version: Object.fromEntries(doc.oplogVersion().toJSON()),
      fragments: person.tap.fragments,
      refused: person.at(room).refused,
      importErrors: person.at(room).importErrors,
    };
  },

  async refused({ person, room }) {
    const { refused } = person.at(room);
    return person.tap.until("a refusal", () => (refused.length ? refused[refused.length - 1] : undefined), SECONDS);
  },

  // Bytes that are no update of Loro's, sent as one.
  sendBytes({ person, room, crdt = "%LOR", hex }) {
    person.client.sendExternalUpdates(crdt, room, [Buffer.from(hex, "hex")]);
    return person.tap.last;
  },

  set({ person, room, crdt = "%EPH", key, value }) {
    person.at(room, crdt).store.set(key, value);
    return person.tap.last;
  },

  states({ person, room, crdt = "%EPH" }) {
    return person.at(room, crdt).store.getAllStates();
  },

  // Until the presence is exactly this.
  async presence({ person, room, crdt = "%EPH", states, seconds = SECONDS }) {
    const { store } = person.at(room, crdt);
    const wanted = JSON.stringify(sorted(states));
    const look = () => (JSON.stringify(sorted(store.getAllStates())) === wanted ? true : undefined);
    try {
      return await until("", look, seconds, (again) => store.subscribe(() => setImmediate(again)));
    } catch {
      throw new Error(`the presence of ${room} is ${JSON.stringify(store.getAllStates())}, not ${wanted}`);
    }
  },

  // Until the room's own status was this one, counted from so many statuses on; how many there are then.
  status({ person, room, crdt = "%LOR", status, from = 0 }) {
    const { statuses } = person.at(room, crdt);
    const look = () => (statuses.indexOf(status, from) >= 0 ? statuses.length : undefined);
    return person.tap.until(`${room} ${status}`, look, SECONDS);
  },

  statuses({ person, room, crdt = "%LOR" }) {
    return person.at(room, crdt).statuses;
  },

  roomErrors({ person }) {
    return person.tap.until("a RoomError", () => (person.tap.roomErrors.length ? person.tap.roomErrors : undefined), SECONDS);
  },

  url({ person }) {
    return person.url;
  },

  // What the last join was refused with.
  joinError({ person }) {
    return person.tap.joinErrors.at(-1);
  },

  closes({ person }) {
    return person.tap.closes;
  },

  async ping({ person }) {
    await person.client.ping(SECONDS * 1000);
    return [...person.tap.sent.values()].filter(({ status }) => status === undefined).length;
  },

  // As a browser that is gone: no Leave, no close frame.
  vanish({ client, person }) {
    const { socket } = person.client;
    person.client.destroy = () => {};
    clearInterval(person.typing?.timer);
    socket.terminate();
    clients.delete(client);
    person.client.close();
  },

  close({ client, person }) {
    clearInterval(person.typing?.timer);
    person.client.destroy();
    clients.delete(client);
  },
};

function sorted(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}

function answer(id, fact) {
  process.stdout.write(`${JSON.stringify({ id, ...fact })}\n`);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: name, ...given } = JSON.parse(line);
  const run = async () => {
    const person = clients.get(given.client);
    if (!person && name !== "connect") throw new Error(`no client ${given.client}`);
    return commands[name]({ person, ...given });
  };
  run().then(
    (value) => answer(id, { value: value ?? null }),
    (error) => answer(id, { error: error.message }),
  );
}
process.exit(0);
