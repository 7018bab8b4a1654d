import assert from "node:assert/strict";
import { test } from "node:test";
import { tokenIn } from "../src/common/sign-in";

const table: [string, string, string][] = [
  ["", "", ""],
  ["#", "", "#"],
  ["#/overview", "", "#/overview"],
  ["#token=a.b.c", "a.b.c", ""],
  ["#token=", "", ""],
  ["#token=a%2Eb.c%20", "a.b.c", ""],
  ["#token=%zz", "%zz", ""],
  ["#/documents?x=1&token=a.b.c", "a.b.c", "#/documents?x=1"],
  ["#token=a.b.c&x=1", "a.b.c", "#x=1"],
  ["#token=a&token=b", "a", ""],
  ["#mytoken=a", "", "#mytoken=a"],
  ["#/documents/token=a", "", "#/documents/token=a"],
];

for (const [hash, token, rest] of table) {
  test(`behind the # of ${JSON.stringify(hash)} there is ${token === "" ? "no token" : "a token"}`, () => {
    assert.deepEqual(tokenIn(hash), { token, rest });
  });
}
