// Formatting of values. Unknown values are a dash, never a zero.

export const UNKNOWN = "–";

type Maybe = number | null | undefined;

const known = (value: Maybe): value is number => typeof value === "number" && Number.isFinite(value);

export function count(value: Maybe): string {
  return known(value) ? grouped(Math.round(value)) : UNKNOWN;
}

/** A count with its noun: "1 update", "3 updates", "– updates". */
export function many(value: Maybe, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Per second, short enough for a tile. */
export function rate(value: Maybe): string {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return "0";
  if (Math.abs(value) < 0.1) return "<0.1";
  if (Math.abs(value) < 9.95) return value.toFixed(1);
  if (Math.abs(value) < 99_500) return grouped(Math.round(value));
  return `${grouped(Math.round(value / 1000))}k`;
}

export function bytes(value: Maybe): string {
  if (!known(value)) return UNKNOWN;
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(size) < 1024) return unit === "B" ? `${Math.round(size)} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
}

/** Three digits and the unit that suits them. */
export function microseconds(value: Maybe): string {
  if (!known(value)) return UNKNOWN;
  if (value < 999.5) return `${Math.round(value)} µs`;
  if (value < 999_500) return `${digits(value / 1000)} ms`;
  return `${digits(value / 1_000_000)} s`;
}

export function percent(part: Maybe, whole: Maybe): string {
  const share = fraction(part, whole);
  if (share === null) return UNKNOWN;
  return share > 0 && share < 0.01 ? "<1 %" : `${Math.floor(share * 100)} %`;
}

/** From 0 up; null if either value is unknown or there is no limit. */
export function fraction(part: Maybe, whole: Maybe): number | null {
  return known(part) && known(whole) && whole > 0 ? Math.max(0, part / whole) : null;
}

/** A duration, in the largest useful unit. */
export function span(milliseconds: Maybe): string {
  if (!known(milliseconds)) return UNKNOWN;
  const seconds = Math.max(0, milliseconds) / 1000;
  for (const [unit, size] of [["d", 86_400], ["h", 3600], ["min", 60]] as const) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

/** "12 s ago"; because clocks differ, up to five seconds in the future are "now". */
export function ago(time: Maybe, now: number): string {
  if (!known(time)) return UNKNOWN;
  if (time > now + 5000) return "in the future";
  return now - time < 1000 ? "now" : `${span(now - time)} ago`;
}

export function clock(time: Maybe): string {
  return known(time) ? new Date(time).toLocaleTimeString("en-GB") : UNKNOWN;
}

/** Date and time in the browser's zone, to the second. */
export function moment(time: Maybe): string {
  if (!known(time)) return UNKNOWN;
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return UNKNOWN;
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** A time on an axis: with seconds if ticks are less than a minute apart, with the day if the axis spans more than one. */
export function tickTime(time: number, stepSeconds: number, wholeSeconds: number): string {
  const text = moment(time);
  if (stepSeconds >= 86_400) return text.slice(0, 10);
  if (wholeSeconds > 86_400) return text.slice(5, 16);
  return stepSeconds < 60 ? text.slice(11) : text.slice(11, 16);
}

function digits(value: number): string {
  return value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}

function grouped(value: number): string {
  return value.toLocaleString("en-US");
}
