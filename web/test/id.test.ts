import assert from "node:assert/strict";
import { test } from "node:test";
import { idOfPath, isDocumentId, newDocumentId } from "../src/demo/id";

const table: [string, string | null | undefined][] = [
  ["/", null], ["", null], ["/d/notes", "notes"], ["/d/notes/", "notes"], ["/d/A-z_0=", "A-z_0="],
  ["/d/-a", undefined], ["/d/_kv", undefined], ["/d/_kvx", undefined], ["/d/_k", "_k"], ["/d/a.b", undefined], ["/d/a/b", undefined],
  ["/d/%61", "a"], ["/d/%zz", undefined], ["/d/%C3%A9", undefined], [`/d/${"x".repeat(128)}`, "x".repeat(128)], [`/d/${"x".repeat(129)}`, undefined],
  ["/d/", undefined], ["/d", undefined], ["/notes", undefined],
];

for (const [path, id] of table) {
  test(`the path ${path.slice(0, 20)} names ${id === null ? "no document yet" : id === undefined ? "no document" : "a document"}`, () => {
    assert.equal(idOfPath(path), id);
  });
}

test("new ids are allowed and differ", () => {
  const made = Array.from({ length: 500 }, () => newDocumentId(Math.random));
  assert.ok(made.every(isDocumentId));
  assert.equal(new Set(made).size, made.length);
  assert.ok(isDocumentId(newDocumentId(() => 0)) && isDocumentId(newDocumentId(() => 0.999999)));
});
