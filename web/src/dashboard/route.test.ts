import assert from "node:assert/strict";
import { test } from "node:test";
import { follow, previous, START } from "./paging";
import { formatRoute, parseRoute, type Route } from "./route";

test("every route survives its own address", () => {
  const routes: Route[] = [
    { view: "overview" }, { view: "servers" }, { view: "rejected" }, { view: "errors" },
    { view: "documents", prefix: "", after: "" }, { view: "documents", prefix: "a&b=c/%", after: "x#y?z" },
    { view: "document", id: "plain" }, { view: "document", id: "<img src=x>/../%2e&?#" }, { view: "document", id: "ünï 🙂" },
  ];
  for (const route of routes) assert.deepEqual(parseRoute(formatRoute(route)), route);
});

test("an empty address is the overview, a strange one is nothing", () => {
  for (const hash of ["", "#", "#/"]) assert.deepEqual(parseRoute(hash), { view: "overview" });
  for (const hash of ["#main", "#/nothing", "#/servers/x", "#/documents/a/b", "#/documents/%e0%", "#/__proto__"]) {
    assert.equal(parseRoute(hash), null, hash);
  }
});

test("going on and back through pages", () => {
  let trail = follow(START, "", "");
  assert.equal(previous(trail), null);
  trail = follow(trail, "", "doc-50");
  trail = follow(trail, "", "doc-99");
  assert.deepEqual(trail.starts, ["", "doc-50", "doc-99"]);
  assert.equal(previous(trail), "doc-50");
  trail = follow(trail, "", "doc-50");
  assert.deepEqual(trail.starts, ["", "doc-50"]);
  assert.equal(previous(follow(trail, "", "")), null);
});

test("a link into the middle leads back to the first page", () => {
  const trail = follow(START, "board", "board-7");
  assert.deepEqual(trail, { prefix: "board", starts: ["", "board-7"] });
  assert.equal(previous(trail), "");
});

test("another prefix starts a new trail, and so does an earlier page that is not on the trail", () => {
  const trail = follow(follow(START, "", "m"), "", "t");
  assert.deepEqual(follow(trail, "b", "").starts, [""]);
  assert.deepEqual(follow(trail, "", "c").starts, ["", "c"]);
});
