import assert from "node:assert/strict";
import { test } from "node:test";
import { words } from "../src/demo/mark";
import type { Mark } from "../src/demo/saved";

const mark = (state: Mark["state"], waiting: number, reason: string | null = null): Mark => ({ state, waiting, reason, readOnly: false });

for (const state of ["saving", "offline", "problem"] as const) {
  test(`${state}: the words name no number, as operations are letters and not edits`, () => {
    const { short, long } = words(mark(state, 12, "invalid_update"));
    assert.doesNotMatch(`${short} ${long}`, /\d/);
    assert.match(`${short} ${long}`, /edits/);
  });
}

test("offline without edits is only offline", () => {
  assert.equal(words(mark("offline", 0)).short, "Offline");
  assert.equal(words(mark("offline", 1)).short, "Offline · edits waiting");
});
