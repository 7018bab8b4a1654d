// Poll intervals and the state of the connection. Times are milliseconds.

export const POLL_MS = 2000;
const BACKOFF_MAX_MS = 30_000;

export interface Hearing {
  readonly answeredAt: number | null; // the time of the last answer
  readonly failures: number; // in a row
  readonly problem: string;
}

export const SILENCE: Hearing = { answeredAt: null, failures: 0, problem: "" };

export function answered(now: number): Hearing {
  return { answeredAt: now, failures: 0, problem: "" };
}

export function failed(hearing: Hearing, problem: string): Hearing {
  return { answeredAt: hearing.answeredAt, failures: hearing.failures + 1, problem };
}

/** The time to wait; `chance` in 0..1 spreads the retries of many dashboards. */
export function waitMs(failures: number, every: number, chance: number): number {
  if (failures === 0) return every;
  const full = Math.min(BACKOFF_MAX_MS, every * 2 ** Math.min(failures, 10));
  return Math.round(Math.max(every, full * (0.75 + 0.25 * chance)));
}

export type Connection = "connecting" | "live" | "refused" | "lost";

/** `refused`: the gateway answers and denies access. */
export function connection(hearing: Hearing, refused: boolean): Connection {
  if (hearing.failures > 0) return "lost";
  if (refused) return "refused";
  return hearing.answeredAt === null ? "connecting" : "live";
}
