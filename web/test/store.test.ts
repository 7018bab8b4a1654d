import assert from "node:assert/strict";
import { test } from "node:test";
import { keptUnder } from "../src/demo/store";

test("each owner has copies of their own, and an open gateway's are under the id", () => {
  const names = ["", "as ana", "as ben", "as ana b"].map((owner) => keptUnder("plan", owner));
  assert.equal(new Set([...names, keptUnder("plan-as", "as ana")]).size, 5);
  assert.equal(names[0], "plan");
});
