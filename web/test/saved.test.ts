import assert from "node:assert/strict";
import { test } from "node:test";
import { NEW, START, mark, mustSendAgain, next, type Input, type Mark, type State } from "../src/demo/saved";

const v = (counts: Record<string, number>): Map<string, number> => new Map(Object.entries(counts));
const span = (peer: string, start: number, end: number) => ({ peer, start, end });
const local = (counts: Record<string, number>): Input => ({ type: "local", version: v(counts) });
const joined = (counts: Record<string, number>, readOnly = false): Input => ({ type: "joined", version: v(counts), readOnly });
const sent = (batch: string, ...spans: ReturnType<typeof span>[]): Input => ({ type: "sent", batch, spans });
const acked = (batch: string): Input => ({ type: "acked", batch });
const refused = (batch: string, reason: string): Input => ({ type: "refused", batch, reason });
const received = (...spans: ReturnType<typeof span>[]): Input => ({ type: "received", spans });
const rejoining: Input = { type: "rejoining" };
const closed: Input = { type: "closed" };

const after = (...inputs: Input[]): State => inputs.reduce(next, START);

const table: [string, Input[], Mark["state"], number, (string | null)?][] = [
  ["no state before the first answer", [], "connecting", 0],
  ["edits before the first answer wait", [local({ a: 3 })], "connecting", 3],
  ["an empty document that is joined is saved", [joined({})], "saved", 0],
  ["what the server has at the join is saved", [local({ a: 3 }), joined({ a: 3 })], "saved", 0],
  ["what the server lacks at the join is being saved", [local({ a: 3 }), joined({ a: 1 })], "saving", 2],
  ["an edit is not saved when it is sent", [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1))], "saving", 1],
  ["an edit is saved by its Ack", [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1)), acked("1")], "saved", 0],
  ["an Ack of another batch saves nothing", [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1)), acked("2")], "saving", 1],
  ["an Ack that overtook an earlier one saves nothing yet",
    [joined({}), local({ a: 2 }), sent("1", span("a", 0, 1)), sent("2", span("a", 1, 2)), acked("2")], "saving", 2],
  ["both Acks save both, in any order",
    [joined({}), local({ a: 2 }), sent("1", span("a", 0, 1)), sent("2", span("a", 1, 2)), acked("2"), acked("1")], "saved", 0],
  ["an Ack twice counts once",
    [joined({}), local({ a: 2 }), sent("1", span("a", 0, 1)), acked("1"), acked("1")], "saving", 1],
  ["edits of others are saved when they come", [joined({}), received(span("b", 0, 4)), local({ b: 4 })], "saved", 0],
  ["an edit beside those of others still waits", [joined({}), received(span("b", 0, 4)), local({ a: 1, b: 4 })], "saving", 1],
  ["what an earlier page was promised does not wait", [{ type: "remembered", version: v({ a: 2 }) }, local({ a: 3 }), closed], "offline", 1],
  ["operations confirmed to an earlier page are not saved if the server lacks them",
    [{ type: "remembered", version: v({ a: 3 }) }, local({ a: 3 }), joined({ a: 1 })], "saving", 2],
  ["a closed socket is offline", [joined({}), closed], "offline", 0],
  ["edits while offline are counted", [joined({}), closed, local({ a: 7 })], "offline", 7],
  ["what was in flight when the socket closed waits",
    [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1)), closed], "offline", 1],
  ["an Ack after the socket closed is not believed",
    [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1)), closed, acked("1")], "offline", 1],
  ["a suggested rejoin is offline until it is answered", [joined({}), rejoining], "offline", 0],
  ["an Ack during a rejoin still counts",
    [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1)), rejoining, acked("1")], "offline", 0],
  ["a rejoin tells what is saved", [joined({}), local({ a: 9 }), closed, joined({ a: 9 })], "saved", 0],
  ["a server that knows less than it promised is not believed",
    [joined({}), local({ a: 2 }), sent("1", span("a", 0, 2)), acked("1"), closed, joined({ a: 1 })], "saving", 1],
  ["a refusal for good is a problem",
    [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1)), refused("1", "invalid_update")], "problem", 1, "invalid_update"],
  ["a refusal for now is still saving",
    [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1)), refused("1", "rate_limited")], "saving", 1, "rate_limited"],
  ["what was refused because it came before the join is no problem",
    [joined({}), closed, local({ a: 1 }), sent("1", span("a", 0, 1)), refused("1", "permission_denied"), joined({})], "saving", 1],
  ["a problem ends when the edit is saved after all",
    [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1)), refused("1", "payload_too_large"), joined({ a: 1 })], "saved", 0],
  ["a closed room is a problem, also after the socket closed",
    [joined({}), { type: "failed", reason: "deleted" }, closed], "problem", 0, "deleted"],
  ["a failed room that is joined again is well", [{ type: "failed", reason: "document_failed" }, joined({})], "saved", 0],
];

for (const [name, inputs, state, waiting, reason] of table) {
  test(name, () => {
    const found = mark(after(...inputs));
    assert.equal(found.state, state);
    assert.equal(found.waiting, waiting);
    if (reason !== undefined) assert.equal(found.reason, reason);
  });
}

test("a reader sees that edits are not accepted", () => {
  assert.equal(mark(after(joined({}, true))).readOnly, true);
});

test("what was dropped is sent again once nothing is under way", () => {
  const base = [joined({}), local({ a: 1 }), sent("1", span("a", 0, 1))];
  assert.equal(mustSendAgain(after(...base)), false);
  assert.equal(mustSendAgain(after(...base, refused("1", "rate_limited"))), true);
  assert.equal(mustSendAgain(after(...base, refused("1", "invalid_update"))), false);
  assert.equal(mustSendAgain(after(...base, acked("1"))), false);
  assert.equal(mustSendAgain(after(...base, closed)), false);
});

test("over random histories, the state is saved only if joined and every operation is confirmed", () => {
  let seed = 20260116;
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
    return (seed >> 8) % below;
  };
  for (let round = 0; round < 300; round += 1) {
    let state = START;
    let isJoined = false;
    let own = 0;
    let next_ = 0;
    let server = 0; // what a real server would have: a prefix of our operations
    const flying: { batch: string; start: number; end: number }[] = [];
    for (let turn = 0; turn < 60; turn += 1) {
      const roll = random(10);
      if (roll < 4) {
        const start = own;
        own += 1 + random(3);
        state = next(state, local({ a: own }));
        if (isJoined) {
          const batch = String((next_ += 1));
          flying.push({ batch, start, end: own });
          state = next(state, sent(batch, span("a", start, own)));
        }
      } else if (roll < 7 && flying.length > 0) {
        const one = flying.splice(random(flying.length), 1)[0]!;
        state = next(state, acked(one.batch));
        if (one.start <= server) server = Math.max(server, one.end);
      } else if (roll === 7) {
        isJoined = false;
        flying.length = 0;
        state = next(state, closed);
      } else if (roll === 8 && !isJoined) {
        isJoined = true;
        state = next(state, joined({ a: server }));
        if (own > server) {
          const batch = String((next_ += 1));
          flying.push({ batch, start: server, end: own });
          state = next(state, sent(batch, span("a", server, own)));
        }
      }
      const shown = mark(state);
      if (shown.state === "saved") assert.ok(isJoined && shown.waiting === 0 && flying.every(({ end }) => end <= own));
      if (flying.length > 0) assert.notEqual(shown.state, "saved");
      assert.ok(shown.waiting >= 0 && shown.waiting <= own);
    }
  }
});

test("a new document is new until it is requested from a server, and never again", () => {
  assert.equal(mark(NEW).state, "new");
  assert.equal(mark(next(NEW, local({ a: 1 }))).state, "new");
  assert.equal(mark(next(NEW, { type: "begun" })).state, "connecting");
  assert.equal(mark(after(joined({}), { type: "begun" })).state, "saved");
});
