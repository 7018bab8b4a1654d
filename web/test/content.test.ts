import assert from "node:assert/strict";
import { test } from "node:test";
import { LoroDoc, LoroList, LoroMap, LoroText } from "loro-crdt";
import { begunElsewhere, hasContent, otherRoots, plainText, read, seed } from "../src/demo/content";
import { schema } from "../src/demo/schema";

test("two who begin a document apart share its first paragraph", () => {
  const [a, b] = [new LoroDoc(), new LoroDoc()];
  for (const doc of [a, b]) doc.import(seed());
  for (const [doc, word] of [[a, "one"], [b, "two"]] as const) {
    const first = (doc.getMap("doc").get("children") as LoroList).get(0) as LoroMap;
    ((first.get("children") as LoroList).get(0) as LoroText).insert(0, word);
    doc.commit();
  }
  a.import(b.export({ mode: "update" }));
  b.import(a.export({ mode: "update" }));
  assert.equal(read(schema, a).toString(), read(schema, b).toString());
  assert.match(plainText(read(schema, a)), /one/);
  assert.match(plainText(read(schema, a)), /two/);
});

test("the seed's operations never change", () => {
  const doc = new LoroDoc();
  doc.import(seed());
  assert.deepEqual([...doc.version().toJSON()], [["5113970442817366021", 8]]);
  assert.equal(hasContent(doc), true);
});

test("a text that does not build on the seed was begun elsewhere", () => {
  const other = new LoroDoc();
  other.getText("body").insert(0, "by another program");
  other.commit();
  const doc = new LoroDoc();
  doc.import(seed());
  doc.import(other.export({ mode: "update" }));
  assert.equal(begunElsewhere(doc), false);
  const friend = new LoroDoc();
  friend.import(seed());
  friend.getMap("doc").set("more", 1);
  friend.commit();
  doc.import(friend.export({ mode: "update" }));
  assert.equal(begunElsewhere(doc), false);
  other.getMap("doc").set("nodeName", "doc");
  other.commit();
  doc.import(other.export({ mode: "update" }));
  assert.equal(begunElsewhere(doc), true);
});

test("reading writes nothing and survives strange shapes", () => {
  const doc = new LoroDoc();
  doc.configTextStyle({ "no-such-mark": { expand: "none" } });
  const root = doc.getMap("doc");
  root.set("nodeName", "doc");
  const children = root.setContainer("children", new LoroList());
  children.insert(0, "text");
  children.insert(1, null);
  children.insertContainer(2, new LoroMap()); // half born
  children.insertContainer(3, new LoroMap()).set("nodeName", "no-such-node");
  children.insertContainer(4, new LoroMap()).set("nodeName", 7);
  const heading = children.insertContainer(5, new LoroMap());
  heading.set("nodeName", "heading");
  heading.set("attributes", "none");
  const text = heading.setContainer("children", new LoroList()).insertContainer(0, new LoroText());
  text.insert(0, "kept");
  text.mark({ start: 0, end: 4 }, "no-such-mark", true);
  children.insertContainer(6, new LoroMap()).set("nodeName", "list_item"); // where no item may be
  doc.commit();
  const before = doc.opCount();
  assert.match(plainText(read(schema, doc)), /kept/);
  assert.equal(doc.opCount(), before);
  assert.equal(read(schema, new LoroDoc()).toString(), "doc(paragraph)");
});

test("roots of other programs are named, the editor's own are not", () => {
  const doc = new LoroDoc();
  doc.import(seed());
  doc.getMap("people").set("1", "Ana");
  assert.deepEqual(otherRoots(doc), []);
  const other = new LoroDoc();
  other.getList("tasks").push("x");
  other.getMap("body").set("a", 1);
  other.getText("empty");
  other.commit();
  doc.import(other.export({ mode: "update" }));
  assert.deepEqual(otherRoots(doc), ["body", "tasks"]);
});
