import assert from "node:assert/strict";
import { test } from "node:test";
import { idOfPath, isDocumentId, newDocumentId } from "../src/demo/id";

const table: [string, string | null | undefined][] = [
  ["/", null], ["", null], ["/notes", "notes"], ["/notes/", "notes"], ["/A-z_0=", "A-z_0="],
  ["/-a", undefined], ["/_kv", undefined], ["/_kvx", undefined], ["/_k", "_k"], ["/a.b", undefined], ["/a/b", undefined],
  ["/%61", "a"], ["/%zz", undefined], ["/%C3%A9", undefined], [`/${"x".repeat(128)}`, "x".repeat(128)], [`/${"x".repeat(129)}`, undefined],
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
