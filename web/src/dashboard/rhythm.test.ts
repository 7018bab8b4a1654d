import assert from "node:assert/strict";
import { test } from "node:test";
import { answered, connection, failed, POLL_MS, SILENCE, waitMs } from "./rhythm";

test("asks every two seconds while it is answered", () => {
  assert.equal(waitMs(0, POLL_MS, 0.5), 2000);
});

test("waits longer with every failure, never more than half a minute, never less than usual", () => {
  const waits = [1, 2, 3, 4, 5, 50].map((failures) => waitMs(failures, POLL_MS, 1));
  assert.deepEqual(waits, [4000, 8000, 16_000, 30_000, 30_000, 30_000]);
  assert.equal(waitMs(1, POLL_MS, 0), 3000);
  assert.equal(waitMs(9, 60_000, 0), 60_000);
});

test("a failure keeps the time of the last answer, an answer forgets failures", () => {
  const lost = failed(failed(answered(7), "once"), "twice");
  assert.deepEqual(lost, { answeredAt: 7, failures: 2, problem: "twice" });
  assert.deepEqual([SILENCE, answered(7), lost, failed(SILENCE, "")].map((one) => connection(one, false)), ["connecting", "live", "lost", "lost"]);
  assert.equal(connection(answered(9), false), "live");
});

test("an answer that refuses is not live, and no answer is lost whatever was refused before", () => {
  assert.equal(connection(answered(9), true), "refused");
  assert.equal(connection(failed(answered(9), "gone"), true), "lost");
});
