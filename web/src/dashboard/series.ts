// Samples as charts want them: columns of one length, times in order, holes where nothing is known.

export type Column = (number | null)[];

export interface Samples {
  readonly times: number[]; // Unix seconds, rising
  readonly columns: ReadonlyMap<string, Column>;
}

export const NO_SAMPLES: Samples = { times: [], columns: new Map() };

/** Columns by name; samples out of order, twice or without a time are left out, short columns end in holes. */
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

/** For a logarithmic axis: what is not above zero has no place on it. */
export function positive(values: Column): Column {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}

// A gateway that nobody watches looks every 30 s; what is further apart was not looked at.
const GAP_SECONDS = 90;

/** A hole between two samples that are far apart, so that no line pretends to know. */
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

/** Sizes that a server tells before it has looked are 0: the curve begins with the first that is known, be it only `now`. */
export function sinceKnown(values: Column, now: number | null): Column {
  const first = values.findIndex((value) => value !== null && value > 0);
  const end = first >= 0 ? first : now !== null && now > 0 ? values.length : 0;
  return values.map((value, at) => (at < end ? null : value));
}

const SPAN_SECONDS_MIN = 60;

/** What a time axis shows: at least a minute, also around a single sample. */
export function timeRange(first: number, last: number): [number, number] {
  return [Math.min(first, last - SPAN_SECONDS_MIN), last];
}

/** Where a value has nothing known beside it: a line would not show it. */
export function lonely(values: Column): number[] {
  return values.flatMap((value, at) => (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null ? [at] : []));
}

/** The last that is known. */
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
