import assert from "node:assert/strict";
import { test } from "node:test";
import { column, largest, latest, latestOf, lonely, positive, samplesOf, sinceKnown, timeRange, withGaps } from "./series";

test("columns keep their place beside the times", () => {
  const samples = samplesOf([1, 2, 3], { rate: [10, null, 30] });
  assert.deepEqual(samples.times, [1, 2, 3]);
  assert.deepEqual(column(samples, "rate"), [10, null, 30]);
});

test("samples without a time, twice or out of order are left out of every column", () => {
  const samples = samplesOf([1, 1, null, 5, 4, NaN, 6], { rate: [1, 2, 3, 4, 5, 6, 7] });
  assert.deepEqual(samples.times, [1, 5, 6]);
  assert.deepEqual(column(samples, "rate"), [1, 4, 7]);
});

test("what is no number is a hole: a short column, a text, a missing name", () => {
  const samples = samplesOf([1, 2, 3], { short: [1], words: ["1", {}, Infinity], alone: 7 });
  assert.deepEqual(column(samples, "short"), [1, null, null]);
  assert.deepEqual(column(samples, "words"), [null, null, null]);
  assert.deepEqual(column(samples, "alone"), [null, null, null]);
  assert.deepEqual(column(samples, "missing"), [null, null, null]);
});

test("no line is drawn over a time without samples", () => {
  const samples = withGaps(samplesOf([0, 5, 10, 110, 115], { rate: [1, 2, 3, 4, 5] }));
  assert.deepEqual(samples.times, [0, 5, 10, 60, 110, 115]);
  assert.deepEqual(column(samples, "rate"), [1, 2, 3, null, 4, 5]);
});

test("samples every 5 s with an open dashboard and every 30 s otherwise have no gap", () => {
  const samples = samplesOf([0, 5, 10, 40, 70], { rate: [1, 2, 3, 4, 5] });
  assert.equal(withGaps(samples), samples);
  assert.deepEqual(withGaps(samplesOf([], {})).times, []);
});

test("a logarithmic axis has no place for zero", () => {
  assert.deepEqual(positive([0, -1, null, 5]), [null, null, null, 5]);
});

test("a value alone between holes is found, so that it can be a point", () => {
  assert.deepEqual(lonely([1, null, 2, 3, null, 0, null, 5]), [0, 5, 7]);
  assert.deepEqual(lonely([]), []);
});

test("the last and the largest are of what is known", () => {
  assert.equal(latest([1, 7, null]), 7);
  assert.equal(latest([null]), null);
  assert.equal(largest([null, -3, -5]), -3);
  assert.equal(largest([]), null);
});

test("the last sample of several columns has all of them", () => {
  const samples = samplesOf([1, 2, 3, 4], { p50: [5, 6, 7, null], p99: [8, 0, null, null] });
  assert.deepEqual(latestOf(samples, ["p50", "p99"]), { time: 2, values: [6, 0] });
  assert.equal(latestOf(samples, ["p50", "missing"]), null);
  assert.equal(latestOf(samplesOf([], {}), ["p50"]), null);
});

test("a curve begins where it is known", () => {
  assert.deepEqual(sinceKnown([0, null, 0, 7, 0, 8], 8), [null, null, null, 7, 0, 8]);
  assert.deepEqual(sinceKnown([0, 0], 9), [null, null]);
  assert.deepEqual(sinceKnown([0, 0], 0), [0, 0]);
  assert.deepEqual(sinceKnown([0, 0], null), [0, 0]);
  assert.deepEqual(sinceKnown([], 5), []);
});

test("a time axis has at least a minute, and ends with the last sample", () => {
  assert.deepEqual(timeRange(1000, 1000), [940, 1000]);
  assert.deepEqual(timeRange(990, 1000), [940, 1000]);
  assert.deepEqual(timeRange(0, 1000), [0, 1000]);
});
