import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { LoroDoc, LoroText } from "loro-crdt";
import { Presence } from "../src/demo/presence";

const WHO = { name: "Ana", color: "#be185d", given: false };

/** A document with one text, and the presence of its writer. */
async function withText(run: (doc: LoroDoc, text: LoroText, own: Presence) => void | Promise<void>): Promise<void> {
  const doc = new LoroDoc();
  const text = doc.getMap("doc").setContainer("text", new LoroText());
  doc.commit();
  const own = new Presence(doc, WHO);
  try {
    await run(doc, text, own);
  } finally {
    own.stop();
  }
}

/** Exchanges the entries of two pages. Loro's store orders entries by milliseconds: a second entry needs a later one. */
async function meet(own: Presence, theirs: Presence): Promise<void> {
  for (let round = 0; round < 3; round += 1) {
    await setTimeout(2);
    theirs.apply(own.encodeAll());
    theirs.settle();
    await setTimeout(2);
    own.apply(theirs.encodeAll());
    own.settle();
  }
}

/** Where another page has the writer's cursor. */
function seen(doc: LoroDoc, own: Presence): number | undefined {
  const copy = LoroDoc.fromSnapshot(doc.export({ mode: "snapshot" }));
  const theirs = new Presence(copy, WHO);
  try {
    theirs.apply(own.encodeAll());
    const focus = theirs.getAll()[doc.peerIdStr]?.focus;
    return focus && copy.getCursorPos(focus)?.offset;
  } finally {
    theirs.stop();
  }
}

test("a cursor in an empty text goes along with what is typed there", () => withText((doc, text, own) => {
  const cursor = text.getCursor(0);
  own.setLocal({ anchor: cursor, focus: cursor });
  assert.equal(seen(doc, own), 0);
  text.insert(0, "hello");
  assert.equal(seen(doc, own), 5);
  own.renew();
  assert.equal(seen(doc, own), 5);
}));

for (const at of [0, 2, 5]) {
  test(`a cursor at ${at} of five letters is stored as it is`, () => withText((doc, text, own) => {
    text.insert(0, "hello");
    const cursor = text.getCursor(at);
    own.setLocal({ anchor: cursor, focus: cursor });
    assert.equal(seen(doc, own), at);
    assert.deepEqual(own.getLocal()?.focus?.encode(), cursor?.encode());
  }));
}

test("a cursor stays harmless when its text is deleted", () => withText((doc, text, own) => {
  const cursor = text.getCursor(0);
  own.setLocal({ anchor: cursor, focus: cursor });
  doc.getMap("doc").delete("text");
  doc.commit();
  own.renew();
  own.setLocal({ anchor: cursor, focus: cursor });
  assert.equal(seen(doc, own), undefined);
}));

test("two of one colour come apart when they meet, and keep what they have", () => withText(async (doc, _text, own) => {
  const copy = LoroDoc.fromSnapshot(doc.export({ mode: "snapshot" }));
  const theirs = new Presence(copy, WHO);
  try {
    await meet(own, theirs);
    const colors = own.people().map(({ color }) => color);
    assert.equal(new Set(colors).size, 2);
    assert.ok(colors.includes(WHO.color));
    assert.deepEqual(theirs.people().map(({ color }) => color), colors.reverse());
  } finally {
    theirs.stop();
  }
}));

test("two of one given name come apart when they meet, and the one who chose it keeps it", () => withText(async (doc, _text, own) => {
  const copy = LoroDoc.fromSnapshot(doc.export({ mode: "snapshot" }));
  const theirs = new Presence(copy, { name: "Otter", color: "#7c3aed", given: true });
  try {
    const names = (): string[] => [own.person(doc.peerIdStr).name, own.person(copy.peerIdStr).name];
    await meet(own, theirs);
    assert.deepEqual(names(), ["Ana", "Otter"]);
    own.rename("otter");
    await meet(own, theirs);
    assert.deepEqual(names(), ["otter", "Owl"]);
    assert.equal(theirs.identity.name, "Owl");
  } finally {
    theirs.stop();
  }
}));
