import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { EphemeralStore, LoroDoc, LoroList, LoroMap, LoroText } from "loro-crdt";
import { UpdateStatusCode } from "loro-protocol";
import { WebSocket } from "ws";
import { read, plainText, seed } from "../src/demo/content";
import { Link } from "../src/demo/link";
import { schema } from "../src/demo/schema";
import { START, mark, next, type Mark, type State } from "../src/demo/saved";
import { Rooms } from "./rooms.mjs";

Object.assign(globalThis, { WebSocket });
const DEADLINE_MS = 10_000;
let rooms: Rooms;
let url: string;

before(async () => {
  rooms = new Rooms({ port: 0, host: "127.0.0.1" });
  await new Promise((resolve) => rooms.server.once("listening", resolve));
  url = `ws://127.0.0.1:${rooms.server.address().port}`;
});
after(() => {
  for (const socket of rooms.sockets.keys()) socket.terminate();
  rooms.server.close();
});

class Page {
  readonly doc = new LoroDoc();
  readonly presence = new EphemeralStore();
  readonly closed: string[] = [];
  readonly #link: Link;
  #state: State = START;
  #waiters: (() => void)[] = [];

  constructor(id: string, ours?: () => Promise<string>) {
    this.doc.subscribeLocalUpdates(() => queueMicrotask(() => this.#local()));
    this.#link = new Link(url, id, this.doc, this.presence, {
      input: (input) => { this.#state = next(this.#state, input); this.#wake(); },
      joined: () => undefined,
      closed: (why) => { this.closed.push(why); this.#wake(); },
      ...(ours ? { ours } : {}),
    });
  }

  write(text: string): void {
    this.doc.getText("t").push(text);
    this.doc.commit();
    this.#local();
  }

  /** The first paragraph, as the editor makes and fills it. */
  look(): void { this.doc.import(seed()); }
  type(text: string): void {
    const block = (this.doc.getMap("doc").get("children") as LoroList).get(0) as LoroMap;
    ((block.get("children") as LoroList).get(0) as LoroText).insert(0, text);
    this.doc.commit();
    this.#local();
  }

  get mark(): Mark { return mark(this.#state); }
  retry(): void { this.#link.retry(); }
  close(): void { this.#link.close(); this.presence.destroy(); }

  async until(what: (page: Page) => boolean): Promise<void> {
    const end = Date.now() + DEADLINE_MS;
    while (!what(this)) {
      assert.ok(Date.now() < end, `still ${JSON.stringify(this.mark)}`);
      await new Promise<void>((resolve) => {
        this.#waiters.push(resolve);
        setTimeout(resolve, 50);
      });
    }
  }

  is(state: Mark["state"]): Promise<void> { return this.until((page) => page.mark.state === state); }
  #local(): void { this.#state = next(this.#state, { type: "local", version: this.doc.version().toJSON() }); this.#wake(); }
  #wake(): void { for (const wake of this.#waiters.splice(0)) wake(); }
}

async function withPage(id: string, run: (page: Page) => Promise<void>): Promise<void> {
  const page = new Page(id);
  try {
    await run(page);
  } finally {
    page.close();
    Object.assign(rooms, { refuse: null, refuseJoin: null, permission: "write" });
    rooms.release();
  }
}

test("an edit is saved when the server Acks it, not before", () => withPage("ack", async (page) => {
  await page.is("saved");
  rooms.holding = true;
  page.write("hello");
  assert.deepEqual([page.mark.state, page.mark.waiting], ["saving", 5]);
  page.write("!");
  await page.until(() => rooms.held.length === 2);
  assert.equal(page.mark.state, "saving");
  rooms.release();
  await page.is("saved");
  assert.equal(rooms.document("ack").getText("t").toString(), "hello!");
}));

test("edits made before the first answer are sent with the join", () => withPage("early", async (page) => {
  page.write("early");
  await page.is("saved");
  assert.equal(rooms.document("early").getText("t").toString(), "early");
}));

test("who looks writes nothing, also after a rejoin", () => withPage("looking", async (page) => {
  page.look(); // as from a copy of this browser, before the first answer
  await page.is("saved");
  rooms.suggestRejoin("looking");
  await page.is("offline");
  await page.is("saved");
  rooms.drop();
  await page.is("offline");
  await page.is("saved");
  page.type("x");
  await page.is("saved");
  assert.equal(rooms.updated.filter((id) => id === "looking").length, 2, "the first paragraph, the edit, and nothing before");
}));

for (const offline of [false, true]) {
  test(`the first paragraph comes with the first edit, made ${offline ? "offline" : "online"}; two who begin at once share it`, () => {
    const id = `first-${offline}`;
    return withPage(id, (one) => withPage(id, async (two) => {
      const pages = [one, two];
      await Promise.all(pages.map((page) => page.is("saved")));
      for (const page of pages) page.look();
      if (offline) {
        rooms.drop();
        await Promise.all(pages.map((page) => page.is("offline")));
      }
      one.type("one");
      two.type("two");
      const whole = (doc: LoroDoc): boolean => ["one", "two"].every((word) => plainText(read(schema, doc)).includes(word));
      await Promise.all(pages.map((page) => page.until(() => whole(page.doc) && page.mark.state === "saved")));
      for (const { doc } of [one, two, { doc: rooms.document(id) }]) assert.equal(plainText(read(schema, doc)).length, 6);
    }));
  });
}

test("an update above a frame's size is Acked as one batch", () => withPage("large", async (page) => {
  await page.is("saved");
  page.write(Array.from({ length: 600 * 1024 }, (_, index) => String.fromCharCode(97 + ((index * 7919) ^ (index >> 3)) % 26)).join(""));
  assert.equal(page.mark.state, "saving");
  await page.is("saved");
  assert.equal(rooms.document("large").getText("t").length, 600 * 1024);
}));

test("edits go on while the server is away, are counted, and arrive when it is back", () => withPage("away", async (page) => {
  await page.is("saved");
  rooms.drop();
  await page.is("offline");
  page.write("offline");
  assert.equal(page.mark.waiting, 7);
  await page.is("saved");
  assert.equal(rooms.document("away").getText("t").toString(), "offline");
}));

test("what was in flight when the connection broke is sent again", () => withPage("flight", async (page) => {
  await page.is("saved");
  rooms.holding = true;
  page.write("lost?");
  await page.until(() => rooms.held.length === 1);
  rooms.held.length = 0; // the server died with it
  rooms.holding = false;
  rooms.drop(1013, "try again later");
  await page.is("offline");
  await page.is("saved");
  assert.equal(rooms.document("flight").getText("t").toString(), "lost?");
}));

test("a first join that is cut off is tried again on the next connection", () => {
  rooms.cutJoins = 1;
  return withPage("cut", async (page) => {
    await page.is("offline");
    await page.is("saved");
    assert.equal(rooms.cutJoins, 0);
  });
});

test("a suggested rejoin is offline until the room is joined again", () => withPage("rejoin", async (page) => {
  await page.is("saved");
  rooms.suggestRejoin("rejoin");
  await page.is("offline");
  await page.is("saved");
}));

test("a refusal for good is a problem with its reason", () => withPage("refused", async (page) => {
  await page.is("saved");
  rooms.refuse = UpdateStatusCode.InvalidUpdate;
  page.write("x");
  await page.is("problem");
  assert.equal(page.mark.reason, "invalid_update");
}));

for (const code of ["history_trimmed", "deleted", "not_found", "document_failed"]) {
  test(`a join that is answered with ${code} says so`, () => {
    rooms.refuseJoin = code;
    return withPage(`join-${code}`, async (page) => {
      await page.is("problem");
      assert.deepEqual(page.closed, [code]);
      rooms.refuseJoin = null;
      page.retry();
      await page.is("saved");
    });
  });
}

test("a document that is deleted while it is open is a problem", () => withPage("evicted", async (page) => {
  await page.is("saved");
  rooms.evict("evicted");
  await page.is("problem");
  assert.deepEqual(page.closed, ["deleted"]);
}));

test("a reader without write access gets the refusal", () => {
  rooms.permission = "read";
  return withPage("reader", async (page) => {
    await page.is("saved");
    assert.equal(page.mark.readOnly, true);
  });
});

test("presence of one page is seen by another, also after the connection broke", () => withPage("eph", (one) => withPage("eph", async (two) => {
  await Promise.all([one.is("saved"), two.is("saved")]);
  one.presence.set("1", "here");
  await two.until(() => two.presence.get("1") === "here");
  rooms.drop();
  await Promise.all([one.is("offline"), two.is("offline")]);
  await Promise.all([one.is("saved"), two.is("saved")]);
  one.presence.set("1", "again");
  await two.until(() => two.presence.get("1") === "again");
})));

test("edits made offline are not sent as another user's", async () => {
  const answers = ["", "somebody_else"];
  const page = new Page("theirs", async () => answers.shift() ?? "");
  try {
    page.write("saved");
    await page.is("saved");
    rooms.drop();
    await page.is("offline");
    page.write(", unsaved");
    await page.until(({ closed }) => closed.length > 0);
    assert.deepEqual(page.closed, ["somebody_else"]);
    page.write(", later");
    await withPage("theirs", (other) => other.is("saved")); // whatever was on its way has come
    assert.equal(rooms.document("theirs").getText("t").toString(), "saved");
    assert.equal(page.mark.state, "problem");
  } finally {
    page.close();
  }
});

test("while the connection's user is unknown nothing is sent, and the check is repeated", async () => {
  let known = false;
  let asked = 0;
  const page = new Page("unsure", async () => {
    asked += 1;
    if (!known) throw new Error("away");
    return "";
  });
  try {
    page.write("mine");
    await page.until(() => asked > 1);
    await withPage("unsure", (other) => other.is("saved"));
    assert.equal(rooms.document("unsure").getText("t").toString(), "");
    known = true;
    await page.is("saved");
    assert.equal(rooms.document("unsure").getText("t").toString(), "mine");
  } finally {
    page.close();
  }
});
