// Reads untrusted JSON: absent or malformed values are null.

export type Facts = Readonly<Record<string, unknown>>;

export function facts(value: unknown): Facts {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Facts) : {};
}

export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

export function flag(value: unknown): boolean | null {
  return typeof value === "boolean" ? value : null;
}

/** Milliseconds since 1970, from ISO 8601 or from nanoseconds. */
export function time(value: unknown): number | null {
  if (typeof value === "number") return Number.isFinite(value) && value > 0 ? value / 1e6 : null;
  const parsed = typeof value === "string" ? Date.parse(value) : NaN;
  return Number.isNaN(parsed) ? null : parsed;
}

/** The sum of the known values; null if there are none. */
export function sum(values: readonly (number | null)[]): number | null {
  return values.reduce((total, value) => (value === null ? total : (total ?? 0) + value), null);
}
