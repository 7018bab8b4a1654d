// Samples for charts: columns of equal length, ordered times, holes for unknown values.

export type Column = (number | null)[];

export interface Samples {
  readonly times: number[]; // Unix seconds, rising
  readonly columns: ReadonlyMap<string, Column>;
}

export const NO_SAMPLES: Samples = { times: [], columns: new Map() };

/** Columns by name; unordered, repeated or undated samples are dropped, short columns end in holes. */
export function samplesOf(times: readonly (number | null)[], columns: Readonly<Record<string, unknown>>): Samples {
  const picks: number[] = [];
  const rising: number[] = [];
  times.forEach((time, at) => {
    if (time === null || !Number.isFinite(time) || time <= (rising.at(-1) ?? -Infinity)) return;
    picks.push(at);
    rising.push(time);
  });
  const named = new Map<string, Column>();
  for (const [name, column] of Object.entries(columns)) {
    if (Array.isArray(column)) named.set(name, picks.map((at) => finite(column[at])));
  }
  return { times: rising, columns: named };
}

export function finite(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function column(samples: Samples, name: string): Column {
  return samples.columns.get(name) ?? samples.times.map(() => null);
}

/** For a logarithmic axis: values up to zero become holes. */
export function positive(values: Column): Column {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}

// A gateway without an open dashboard samples every 30 s; larger distances are gaps.
const GAP_SECONDS = 90;

/** Inserts a hole between two samples that are far apart, so that no line joins them. */
export function withGaps(samples: Samples, seconds = GAP_SECONDS): Samples {
  const { times } = samples;
  const cuts = new Set<number>();
  for (let at = 1; at < times.length; at++) {
    if ((times[at] ?? 0) - (times[at - 1] ?? 0) > seconds) cuts.add(at);
  }
  if (cuts.size === 0) return samples;
  const spread = <T>(values: readonly T[], hole: (at: number) => T): T[] =>
    values.flatMap((value, at) => (cuts.has(at) ? [hole(at), value] : [value]));
  const columns = new Map([...samples.columns].map(([name, values]) => [name, spread<number | null>(values, () => null)]));
  return { times: spread(times, (at) => ((times[at] ?? 0) + (times[at - 1] ?? 0)) / 2), columns };
}

/** Servers report 0 until they have measured: the curve begins with the first known size, or `now`. */
export function sinceKnown(values: Column, now: number | null): Column {
  const first = values.findIndex((value) => value !== null && value > 0);
  const end = first >= 0 ? first : now !== null && now > 0 ? values.length : 0;
  return values.map((value, at) => (at < end ? null : value));
}

const SPAN_SECONDS_MIN = 60;

/** The range of a time axis: at least a minute, also around a single sample. */
export function timeRange(first: number, last: number): [number, number] {
  return [Math.min(first, last - SPAN_SECONDS_MIN), last];
}

/** Values between two holes, which a line would not show. */
export function lonely(values: Column): number[] {
  return values.flatMap((value, at) => (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null ? [at] : []));
}

/** The last known value. */
export function latest(values: Column): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** The last sample that has all these columns. */
export function latestOf(samples: Samples, names: readonly string[]): { readonly time: number; readonly values: readonly number[] } | null {
  const columns = names.map((name) => column(samples, name));
  for (let at = samples.times.length - 1; at >= 0; at -= 1) {
    const values = columns.flatMap((values) => values[at] ?? []);
    if (values.length === names.length) return { time: samples.times[at] as number, values };
  }
  return null;
}

export function largest(values: Column): number | null {
  return values.reduce<number | null>((most, value) => (value === null ? most : Math.max(most ?? value, value)), null);
}
