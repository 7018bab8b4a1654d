import assert from "node:assert/strict";
import { test } from "node:test";
import { LoroDoc, VersionVector, type PeerID } from "loro-crdt";
import { steps, type Change } from "../src/demo/history";

const change = (peer: string, counter: number, length: number, timestamp: number, lamport = counter, deps: Change["deps"] = []): Change =>
  ({ peer, counter, length, timestamp, lamport, deps });
const frontiersOf = (doc: LoroDoc, version: ReadonlyMap<string, number>) =>
  doc.vvToFrontiers(new VersionVector(version as Map<PeerID, number>));

test("no changes are no steps", () => {
  assert.deepEqual(steps([]), []);
});

test("a pause of more than a minute begins a new step", () => {
  const found = steps([change("1", 0, 2, 1000), change("1", 2, 2, 2000)]);
  assert.deepEqual(found.map(({ time, operations }) => [time, operations]), [[1000, 2], [2000, 2]]);
});

test("a long change is cut into pieces", () => {
  const found = steps([change("1", 0, 1000, 5)], 10);
  assert.equal(found.length, 10);
  assert.deepEqual(found.at(-1)?.version, new Map([["1", 1000]]));
});

test("a change counts as made no earlier than what it builds on", () => {
  const found = steps([
    change("1", 0, 10, 5000),
    change("2", 0, 10, 100, 10, [{ peer: "1", counter: 9 }]), // a clock that is late
  ]);
  for (const { version } of found) if (version.has("2")) assert.equal(version.get("1"), 10);
});

test("milliseconds are understood as such", () => {
  assert.equal(steps([change("1", 0, 1, 1_700_000_000_000)])[0]?.time, 1_700_000_000);
});

test("many people with pauses are still at most so many steps, and the last one is now", () => {
  const many = Array.from({ length: 3000 }, (_, index) => change(String(index % 7), Math.floor(index / 7), 1, index * 100, index));
  const found = steps(many, 200);
  assert.ok(found.length <= 200 && found.length > 150);
  assert.equal([...(found.at(-1)?.version.values() ?? [])].reduce((a, b) => a + b), 3000);
});

test("a trimmed history begins with what was trimmed", () => {
  const found = steps([change("1", 5, 3, 10)], 200, new Map([["1", 5], ["9", 4]]));
  assert.deepEqual(found.at(-1)?.version, new Map([["1", 8], ["9", 4]]));
});

test("every step of a real document with thousands of changes can be checked out", () => {
  const peers = [1, 2, 3].map((peer) => {
    const doc = new LoroDoc();
    doc.setPeerId(BigInt(peer));
    doc.setChangeMergeInterval(0);
    return doc;
  });
  for (let index = 0; index < 4000; index += 1) {
    const doc = peers[index % 3]!;
    doc.getText("t").insert(0, "x");
    doc.commit({ timestamp: 1_700_000_000 + index * 7 - (index % 3) * 1000 }); // clocks differ by minutes
    if (index % 50 === 0) for (const from of peers) for (const to of peers) if (from !== to) to.import(from.export({ mode: "update", from: to.version() }));
  }
  for (const from of peers) for (const to of peers) if (from !== to) to.import(from.export({ mode: "update", from: to.version() }));
  const copy = LoroDoc.fromSnapshot(peers[0]!.export({ mode: "snapshot" }));
  const changes = [...copy.getAllChanges().values()].flat();
  assert.ok(changes.length > 1400); // Loro lifts times of late clocks, and joins what then has one time
  const found = steps(changes);
  assert.ok(found.length > 100 && found.length <= 200);
  let before = -1;
  for (const step of found) {
    copy.checkout(frontiersOf(copy, step.version));
    const length = copy.getText("t").length;
    assert.equal(length, [...step.version.values()].reduce((a, b) => a + b));
    assert.ok(length > before);
    before = length;
  }
  assert.equal(before, 4000);
});
