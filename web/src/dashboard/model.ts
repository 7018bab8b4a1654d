// The gateway's JSON as the views use it; the only place that knows its field names.

import { facts, flag, list, number, sum, text, time } from "./facts";
import { NO_SAMPLES, samplesOf, type Samples } from "./series";

export const STATES = ["UP", "STARTING", "DOWN", "ERROR"] as const;

/** Explanations of document states, as tooltips. */
export const STATE_MEANINGS: Readonly<Record<string, string>> = {
  UP: "UP: loaded by a server",
  STARTING: "STARTING: a server is loading it",
  DOWN: "DOWN: not loaded, opened on demand",
  ERROR: "ERROR: could not be loaded, needs an operator",
};

/** DOWN is the normal state of most documents, not an error. */
export function stateWords(state: string): string {
  return state === "DOWN" ? "idle (DOWN)" : state;
}

export interface Takeover {
  readonly document: string;
  readonly from: string | null;
  readonly to: string | null;
  readonly at: number | null;
}

export interface Failure {
  readonly document: string;
  readonly trace: string | null;
  readonly at: number | null;
}

export interface Overview {
  readonly connected: boolean | null; // the gateway, to NATS
  readonly states: Readonly<Record<(typeof STATES)[number], number | null>>;
  readonly documents: number | null;
  readonly serversReady: number | null;
  readonly servers: number | null;
  readonly updatesPerSecond: number | null;
  readonly bytesPerSecond: number | null;
  readonly refusedPerSecond: number | null;
  readonly ackP50: number | null; // microseconds
  readonly ackP99: number | null;
  readonly acksWaiting: number | null;
  readonly syncP50: number | null; // of the journals' fdatasync, microseconds
  readonly syncP99: number | null;
  readonly walBytes: number | null;
  readonly walBytesMax: number | null;
  readonly walMessages: number | null;
  readonly snapshotBytes: number | null;
  readonly journalBytes: number | null;
  readonly connections: number | null;
  readonly socketDocuments: number | null; // that connections of this gateway have joined
  readonly takeovers: readonly Takeover[];
  readonly errors: readonly Failure[];
}

export function overviewOf(body: unknown): Overview {
  const it = facts(body);
  const documents = facts(it["documents"]);
  const servers = facts(it["servers"]);
  const throughput = facts(it["throughput"]);
  const ack = facts(it["ack"]);
  const wal = facts(it["wal"]);
  const sockets = facts(it["sockets"]);
  const sync = facts(it["sync"]);
  const connected = flag(it["connected"]);
  // server statistics are known only if a server answered, their number only if NATS was connected
  const asked = connected !== false;
  const answered = asked && number(servers["total"]) !== 0;
  const states = {
    UP: number(documents["UP"]),
    STARTING: number(documents["STARTING"]),
    DOWN: number(documents["DOWN"]),
    ERROR: number(documents["ERROR"]),
  };
  return {
    connected,
    states,
    documents: sum(Object.values(states)),
    serversReady: asked ? number(servers["ready"]) : null,
    servers: asked ? number(servers["total"]) : null,
    updatesPerSecond: number(throughput["updates_per_second"]),
    bytesPerSecond: number(throughput["bytes_per_second"]),
    refusedPerSecond: number(throughput["nacks_per_second"]),
    ackP50: number(ack["p50_us"]),
    ackP99: number(ack["p99_us"]),
    acksWaiting: answered ? number(facts(it["waiting"])["acks"]) : null,
    syncP50: number(sync["p50_us"]),
    syncP99: number(sync["p99_us"]),
    walBytes: number(wal["bytes"]),
    walBytesMax: bound(wal["bytes_max"]),
    walMessages: number(wal["messages"]),
    snapshotBytes: number(it["snapshot_bytes"]),
    journalBytes: answered ? number(it["journal_bytes"]) : null,
    connections: number(sockets["connections"]),
    socketDocuments: number(sockets["documents"]),
    takeovers: list(it["takeovers"]).map(takeoverOf),
    errors: list(it["errors"]).map(failureOf),
  };
}

function takeoverOf(value: unknown): Takeover {
  const it = facts(value);
  return { document: text(it["document"]) ?? "?", from: text(it["from"]), to: text(it["to"]), at: time(it["time"]) };
}

function failureOf(value: unknown): Failure {
  const it = facts(value);
  return { document: text(it["document"]) ?? "?", trace: text(it["trace"]), at: time(it["time"]) };
}

/** A stream without a limit has -1 or 0. */
function bound(value: unknown): number | null {
  const most = number(value);
  return most !== null && most > 0 ? most : null;
}

export function samplesFrom(body: unknown): Samples {
  const it = facts(body);
  const times = list(it["time"]).map((value) => {
    const at = time(value);
    return at === null ? null : at / 1000;
  });
  if (times.length === 0) return NO_SAMPLES;
  const samples = samplesOf(times, it);
  const servers = samples.columns.get("servers");
  const journals = samples.columns.get("journal_bytes");
  if (servers === undefined || journals === undefined) return samples;
  const known = journals.map((value, at) => (servers[at] === 0 ? null : value)); // without an answer the value is unknown, not zero
  return { times: samples.times, columns: new Map(samples.columns).set("journal_bytes", known) };
}

export interface Server {
  readonly id: string;
  readonly version: string | null;
  readonly started: number | null;
  readonly documents: number | null;
  readonly ready: boolean | null;
  readonly health: readonly string[];
  readonly accepted: number | null;
  readonly refused: number | null;
  readonly ackP50: number | null;
  readonly ackP99: number | null;
  readonly durability: string | null;
  readonly journalBytes: number | null;
  readonly loads: number | null;
  readonly takeovers: number | null;
}

export function serversOf(body: unknown): Server[] {
  return list(facts(body)["servers"]).map((value) => {
    const it = facts(value);
    const stats = facts(it["stats"]);
    return {
      id: text(it["server"]) ?? "?",
      version: text(it["version"]),
      started: time(it["started"]),
      documents: number(it["documents"]),
      ready: flag(it["ready"]),
      health: list(it["health"]).map(String),
      accepted: number(stats["accepted"]),
      refused: number(stats["refused"]),
      ackP50: number(stats["ack_us_p50"]),
      ackP99: number(stats["ack_us_p99"]),
      durability: text(stats["durability"]),
      journalBytes: number(stats["journal_disk_bytes"]),
      loads: number(stats["loads"]),
      takeovers: number(stats["takeovers"]),
    };
  });
}

export interface Rejected {
  readonly key: string;
  readonly document: string;
  readonly at: number | null;
  readonly reason: string | null;
  readonly message: string | null;
  readonly bytes: number | null;
  readonly sequence: number | null;
}

export function rejectedOf(body: unknown): Rejected[] {
  return list(facts(body)["rejected"]).map((value, at) => {
    const it = facts(value);
    const sequence = number(it["sequence"]);
    return {
      key: `${sequence ?? `#${at}`}`,
      document: text(it["document"]) ?? "?",
      at: time(it["time"]),
      reason: text(it["reason"]),
      message: text(it["message"]),
      bytes: number(it["bytes"]),
      sequence,
    };
  });
}

export interface DocumentRow {
  readonly id: string;
  readonly state: string | null;
  readonly owner: string | null;
  readonly snapshotBytes: number | null;
  readonly walMessages: number | null;
  readonly edited: number | null;
  readonly stale: boolean; // UP, but not renewed in time
  readonly deleted: boolean;
  readonly erased: boolean;
}

export interface DocumentPage {
  readonly rows: readonly DocumentRow[];
  readonly next: string | null;
}

export function documentsOf(body: unknown): DocumentPage {
  const it = facts(body);
  return { rows: list(it["documents"]).map(rowOf), next: text(it["next"]) };
}

function rowOf(value: unknown): DocumentRow {
  const it = facts(value);
  return {
    id: text(it["document"]) ?? "?",
    state: text(it["state"]),
    owner: text(it["server"]),
    snapshotBytes: number(it["snapshot_bytes"]),
    walMessages: number(it["wal_messages"]),
    edited: time(it["last_edit"]),
    stale: flag(it["stale"]) ?? false,
    deleted: flag(it["deleted"]) ?? false,
    erased: flag(it["erased"]) ?? false,
  };
}

/** The reason why it cannot be edited, in a word; empty if it can. */
export function goneWord(row: DocumentRow): string {
  return row.erased ? "erased" : row.deleted ? "deleted" : "";
}

export interface DocumentStatus extends DocumentRow {
  readonly trace: string | null;
  readonly lease: number | null;
  readonly since: number | null;
  readonly sequence: number | null;
  readonly operations: number | null;
  readonly changes: number | null;
  readonly present: number | null;
  readonly durability: string | null;
  readonly walBytes: number | null;
}

export function statusOf(body: unknown): DocumentStatus {
  const it = facts(body);
  const owner = facts(it["owner"]);
  return {
    ...rowOf(body),
    trace: text(it["trace"]),
    lease: number(it["lease"]) || null,
    since: time(owner["since"]),
    sequence: number(owner["sequence"]),
    operations: number(owner["operations"]),
    changes: number(owner["changes"]),
    present: number(owner["present"]),
    durability: text(owner["durability"]),
    walBytes: number(owner["wal_bytes"]),
  };
}

export interface Version {
  readonly version: string;
  readonly at: number | null;
  readonly sequence: number | null;
}

export function historyOf(body: unknown): Version[] {
  return list(facts(body)["versions"]).map((value) => {
    const it = facts(value);
    return { version: text(it["version"]) ?? "?", at: time(it["time"]), sequence: number(it["sequence"]) };
  });
}

/** A document's operations over time, and at `now`, in seconds. */
export function sizesOf(body: unknown, now: number): Samples {
  const it = facts(body);
  const times = list(it["time"]).map((value) => {
    const at = time(value);
    return at === null ? null : at / 1000;
  });
  return samplesOf([...times, now], { operations: [...list(it["operations"]).slice(0, times.length), it["operations_now"]] });
}

/** The result of a reset. */
export function resetOf(id: string, body: unknown): string {
  return flag(facts(body)["reset"]) === false ? `${id} was not in ERROR any more` : `${id} was reset: the next edit starts it`;
}
