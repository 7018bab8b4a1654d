import assert from "node:assert/strict";
import { test } from "node:test";
import { isDocumentId } from "../src/demo/id";
import { offer } from "../src/demo/offer";

const zero = (): number => 0;

test("a token for two documents offers them, and no new one", () => {
  assert.deepEqual(offer({ plan: "write", minutes: "read" }, zero), { named: ["minutes", "plan"], fresh: null });
});

test("who may write everywhere begins at once, whatever else is named", () => {
  const { named, fresh } = offer({ "*": "admin", plan: "read" }, zero);
  assert.deepEqual(named, []);
  assert.ok(fresh !== null && isDocumentId(fresh));
});

test("a pattern gives an id that it covers, unless it only reads", () => {
  assert.match(offer({ "minutes-*": "write" }, zero).fresh ?? "", /^minutes-[a-z]+-[a-z]+-2{7}$/);
  assert.match(offer({ "a-*-*-z": "write" }, zero).fresh ?? "", /^a-[a-z]+-[a-z]+-2{7}--z$/);
  assert.equal(offer({ "minutes-*": "read", "*": "read" }, zero).fresh, null);
});

test("what cannot be an id is not offered, and a long list is cut", () => {
  assert.deepEqual(offer({ "../x": "write", "": "write", "_kv*": "write", [`${"x".repeat(127)}*`]: "write" }, zero), { named: [], fresh: null });
  assert.equal(offer(Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`d${n}`, "read"])), zero).named.length, 12);
});
