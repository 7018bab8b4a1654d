import assert from "node:assert/strict";
import { test } from "node:test";
import { facts, list, number, sum, text, time } from "./facts";
import { isTrouble } from "./health";
import { documentsOf, historyOf, overviewOf, rejectedOf, samplesFrom, serversOf, sizesOf, statusOf } from "./model";

const NONSENSE: unknown[] = [null, undefined, 7, "text", [], [null, 3, "x", [], {}], {}, { documents: 3, servers: "x", takeovers: {}, time: {} },
  { documents: [null, 5, { document: 9 }], servers: [null], rejected: [0], versions: [[]], takeovers: [null], errors: ["x"], time: [null, "x", {}] }];

test("nonsense from a gateway is shown as unknown, and breaks nothing", () => {
  for (const body of NONSENSE) {
    for (const read of [overviewOf, samplesFrom, serversOf, rejectedOf, documentsOf, statusOf, historyOf, (it: unknown) => sizesOf(it, 5)]) {
      assert.doesNotThrow(() => read(body), `${read.name} of ${JSON.stringify(body)}`);
    }
    assert.equal(overviewOf(body).walBytes, null);
    assert.equal(statusOf(body).sequence, null);
  }
});

test("what only servers know is unknown while none answers, and everything of them while none can be asked", () => {
  const body = { connected: true, servers: { total: 0, ready: 0 }, journal_bytes: 0, waiting: { acks: 0 } };
  const alone = overviewOf(body);
  assert.deepEqual([alone.servers, alone.serversReady, alone.journalBytes, alone.acksWaiting], [0, 0, null, null]);
  const cut = overviewOf({ ...body, connected: false });
  assert.deepEqual([cut.servers, cut.serversReady, cut.journalBytes], [null, null, null]);
  const there = overviewOf({ ...body, servers: { total: 1, ready: 1 } });
  assert.deepEqual([there.servers, there.journalBytes, there.acksWaiting], [1, 0, 0]);
  const samples = samplesFrom({ time: ["2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"], servers: [0, 1], journal_bytes: [0, 7] });
  assert.deepEqual(samples.columns.get("journal_bytes"), [null, 7]);
});

test("a stream without a bound has none", () => {
  assert.equal(overviewOf({ wal: { bytes: 5, bytes_max: -1 } }).walBytesMax, null);
  assert.equal(overviewOf({ wal: null }).walBytes, null);
});

test("a document's size goes on until now", () => {
  const sizes = sizesOf({ time: ["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"], operations: [10, null], operations_now: 30 }, 60);
  assert.deepEqual(sizes.times, [1, 2, 60]);
  assert.deepEqual(sizes.columns.get("operations"), [10, null, 30]);
});

test("facts are what they should be, or null", () => {
  assert.deepEqual([number("5"), number(NaN), number(0), text(""), text(7), text("a")], [null, null, 0, null, null, "a"]);
  assert.deepEqual([facts([1]), list({ length: 1 })], [{}, []]);
  assert.deepEqual([sum([]), sum([null, null]), sum([null, 2, 3])], [null, null, 5]);
});

test("times are ISO 8601 or nanoseconds", () => {
  assert.equal(time("2026-01-02T03:04:05.678+00:00"), Date.UTC(2026, 0, 2, 3, 4, 5, 678));
  assert.equal(time(1_700_000_000_123_000_000), 1_700_000_000_123);
  for (const value of ["", "yesterday", 0, null, {}]) assert.equal(time(value), null);
});

test("health lines of a healthy server need no attention, all others do", () => {
  const well = ["journal copied by s2, s3", "journal and stream compared 41s ago", "comparing journal and stream", "archive up to date", "archive open",
    "repaired 1 document that the stream had lost parts of (2 updates published again)"];
  const trouble = ["JOURNAL STOPPED (no space left)", "NOT READY", "ACKS WAIT (no server)", "ONLY 1 OF 2 REPLICAS: ACKs would wait", "journal copied by no server",
    "CANNOT COPY s2/00 (refused)", "DAMAGE in s1 (details: `lorogo log verify`)", "ARCHIVE away (3 segments waiting)", "3 updates LOST (kept in loro-rejected)",
    "1 deleted document ALIVE AGAIN", "2 documents incomplete", "something new"];
  assert.deepEqual(well.filter(isTrouble), []);
  assert.deepEqual(trouble.filter((fact) => !isTrouble(fact)), []);
});
