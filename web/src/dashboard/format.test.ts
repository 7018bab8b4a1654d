import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, bytes, count, fraction, many, microseconds, moment, percent, rate, span, tickTime, UNKNOWN } from "./format";

type Case<T> = readonly [T, string];

function table<T>(name: string, show: (value: T) => string, cases: readonly Case<T>[]): void {
  test(name, () => {
    for (const [value, shown] of cases) assert.equal(show(value), shown, `of ${String(value)}`);
  });
}

test("what is not known is a dash, never a zero", () => {
  for (const value of [null, undefined, NaN, Infinity]) {
    for (const show of [count, rate, bytes, microseconds, span, moment]) assert.equal(show(value), UNKNOWN);
    assert.equal(ago(value, 0), UNKNOWN);
    assert.equal(percent(value, 10), UNKNOWN);
    assert.equal(percent(1, value), UNKNOWN);
  }
});

table("counts are grouped", count, [[0, "0"], [999, "999"], [1_204_311, "1,204,311"]]);
table("one of a thing is one", (value: number | null) => many(value, "room"), [[1, "1 room"], [2, "2 rooms"], [0, "0 rooms"], [null, "– rooms"]]);
table("rates have as many digits as help", rate, [[0, "0"], [0.02, "<0.1"], [3.25, "3.3"], [9.96, "10"], [1234.4, "1,234"], [123_456, "123k"]]);
table("sizes are in powers of 1024, as in `lorogo status`", bytes, [[0, "0 B"], [1023, "1023 B"], [1024, "1.0 KiB"], [1.5 * 1024 ** 2, "1.5 MiB"], [3 * 1024 ** 4, "3.0 TiB"]]);
table("latencies have three digits and their unit", microseconds, [[0, "0 µs"], [850, "850 µs"], [999.6, "1.00 ms"], [1820, "1.82 ms"], [99_960, "100 ms"], [2_400_000, "2.40 s"]]);
table("spans are in the largest useful unit", span, [[0, "0 s"], [12_900, "12 s"], [119_000, "119 s"], [120_000, "2 min"], [3 * 3_600_000, "3 h"], [-5, "0 s"]]);

test("a moment slightly ahead is now: clocks differ", () => {
  assert.equal(ago(1_000, 500), "now");
  assert.equal(ago(10_000, 500), "in the future");
  assert.equal(ago(1_000, 13_500), "12 s ago");
});

test("a share needs a whole", () => {
  assert.equal(fraction(5, 0), null);
  assert.equal(fraction(5, -1), null);
  assert.equal(fraction(7, 10), 0.7);
  assert.equal(percent(1, 1000), "<1 %");
  assert.equal(percent(699, 1000), "69 %");
});

test("ticks of an axis differ from each other", () => {
  const at = new Date(2026, 10, 16, 13, 50, 30).getTime();
  assert.equal(tickTime(at, 30, 300), "13:50:30");
  assert.equal(tickTime(at, 60, 3600), "13:50");
  assert.equal(tickTime(at, 3600, 90_000), "11-16 13:50");
  assert.equal(tickTime(at, 86_400, 900_000), "2026-11-16");
});
