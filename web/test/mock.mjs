// For development only: serves the built pages and an invented gateway that lives.
//
//     npx vite build && node test/mock.mjs [port]
//
// `POST /mock/silence?seconds=20`: answers nothing for so long, to see how the pages bear it.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const PAGES = join(dirname(fileURLToPath(import.meta.url)), "../../lorogo_gateway/built");
const PORT = Number(process.argv[2] ?? 8099);
const CSP = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'";
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm", ".svg": "image/svg+xml" };
const MIB = 1024 * 1024;

let seed = 7;
const random = () => (seed = (seed * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
const pick = (list) => list[Math.floor(random() * list.length)];
const iso = (time) => new Date(time).toISOString();
const started = Date.now();

const SERVERS = ["srv-amber-1", "srv-basalt-2", "srv-cedar-3"];
const WORDS = ["notes", "board", "spec", "draft", "plan", "minutes", "sketch", "budget", "letter", "map"];
const documents = Array.from({ length: 300 }, (_, at) => {
  const state = at === 41 || at === 160 ? "ERROR" : random() < 0.4 ? "UP" : "DOWN";
  return {
    document: `${WORDS[at % WORDS.length]}-${String(at).padStart(3, "0")}`, state,
    server: state === "UP" ? pick(SERVERS) : "", lease: state === "UP" ? 1000 + at : 0,
    deleted: at % 97 === 50, erased: false,
    snapshot_bytes: at % 31 === 9 ? null : Math.floor(400 * 4 ** (random() * 6)),
    wal_messages: state === "UP" ? Math.floor(random() * 400) : 0,
    wal_bytes: state === "UP" ? Math.floor(random() * 90_000) : 0,
    last_edit: at % 41 === 7 ? null : started - Math.floor(random() ** 3 * 9e8),
    trace: state === "ERROR" ? "4bf92f3577b34da6a3ce929d0e0e47" + (10 + (at % 80)) : undefined,
    sequence: Math.floor(random() * 9000), since: started - Math.floor(random() * 3e6),
  };
});
documents.push({ ...documents[0], document: "a" + "w".repeat(180), state: "UP", server: "<script>alert(2)</script>" });
documents.push({ ...documents[2], document: "<img src=x onerror=alert(1)>", stale: true, state: "UP", server: "<b>bold</b>" });
documents.sort((one, other) => (one.document < other.document ? -1 : 1));

const takeovers = [];
const samples = { time: [], updates_per_second: [], ack_p50_us: [], ack_p99_us: [], wal_bytes: [], journal_bytes: [], snapshot_bytes: [], connections: [] };
let clock = 0;
function sample(at) {
  clock++;
  const busy = 220 + 140 * Math.sin(clock / 40) + 60 * random();
  const hit = clock % 130 === 90;
  const now = {
    time: iso(at), updates_per_second: hit ? 12 : busy, ack_p50_us: hit || (clock % 90 > 60 && clock % 5 !== 0) ? null : 1400 + 500 * random(),
    ack_p99_us: hit || (clock % 90 > 60 && clock % 5 !== 0) ? null : 6000 + 9000 * random() ** 4 + (clock % 130 > 90 && clock % 130 < 96 ? 400_000 : 0),
    wal_bytes: 300 * MIB + (clock % 180) * 2.6 * MIB, journal_bytes: 1400 * MIB + clock * 0.9 * MIB,
    snapshot_bytes: 260 * MIB + Math.floor(clock / 30) * 4 * MIB, connections: 120 + Math.round(20 * random()),
  };
  for (const [name, value] of Object.entries(now)) {
    samples[name].push(value);
    if (samples[name].length > 720) samples[name].shift();
  }
}
for (let at = 400; at > 0; at--) if (at < 250 || at > 290) sample(started - at * 5000);

function move() {
  const one = pick(documents.filter((document) => document.state === "UP"));
  const to = pick(SERVERS.filter((name) => name !== one.server));
  takeovers.unshift({ document: one.document, from: one.server, to, time: iso(Date.now()) });
  takeovers.length = Math.min(takeovers.length, 50);
  Object.assign(one, { server: to, lease: one.lease + 7 });
}
for (let at = 0; at < 4; at++) move();
takeovers.forEach((one, at) => (one.time = iso(started - 47_000 * (at + 1) ** 2)));

setInterval(() => sample(Date.now()), 5000);
setInterval(move, 9000);
setInterval(() => {
  for (let edits = 0; edits < 12; edits++) {
    const one = pick(documents);
    if (one.state === "ERROR" || one.deleted) continue;
    if (one.state === "DOWN") Object.assign(one, { state: "STARTING", server: "" });
    else if (one.state === "STARTING") Object.assign(one, { state: "UP", server: pick(SERVERS), lease: 2000 + clock });
    one.last_edit = Date.now();
    one.wal_messages += 1;
    one.wal_bytes += 210;
    one.sequence += 1;
  }
}, 1000);

const REASONS = [["invalid_update", "the update does not decode: unexpected end of input at byte 12"], ["missing_parents", "it needs operations of peer 8812 that never came"],
  ["too_large", "an update may have 64 MiB, this one has more"], ["lost", "<b>kept</b> here because the document was erased meanwhile"]];
const rejected = Array.from({ length: 36 }, (_, at) => {
  const [reason, message] = REASONS[at % REASONS.length];
  return { sequence: 400 - at, document: pick(documents).document, time: iso(started - at * 731_000), reason, message, bytes: 40 + at * 977 };
});

const last = (name) => samples[name].at(-1) ?? null;
function overview() {
  const states = { UP: 0, STARTING: 0, DOWN: 0, ERROR: 0 };
  for (const one of documents) states[one.state]++;
  return {
    time: iso(Date.now()), connected: true, documents: states, sync: { p50_us: 420, p99_us: 2900 }, waiting: { journal: 0, intake: 0, acks: 3, loads: 0 }, servers: { ready: 2, total: 3 },
    throughput: { updates_per_second: last("updates_per_second"), bytes_per_second: last("updates_per_second") * 180, nacks_per_second: 0.2 },
    ack: { p50_us: last("ack_p50_us"), p99_us: last("ack_p99_us") },
    wal: { bytes: last("wal_bytes"), bytes_max: 1024 * MIB, messages: 48_211 },
    snapshot_bytes: last("snapshot_bytes"), journal_bytes: last("journal_bytes"), takeovers,
    errors: documents.filter((one) => one.state === "ERROR").map((one) => ({ document: one.document, trace: one.trace, time: iso(one.since) })),
    sockets: { connections: last("connections"), rooms: 212, documents: 97 },
  };
}

function servers() {
  return SERVERS.map((server, at) => ({
    server, version: "0.6.0", started: iso(started - 1e7 * (at + 1)), documents: documents.filter((one) => one.server === server).length,
    health: [["journal copied by srv-basalt-2, srv-cedar-3", "journal and stream compared 41s ago", "archive up to date"],
      ["ONLY 1 OF 2 REPLICAS: ACKs would wait", "journal copied by srv-amber-1", "comparing journal and stream"],
      ["JOURNAL STOPPED (no space left on the disk of /data)", "NOT READY", "3 updates LOST (kept in loro-rejected)"]][at],
    ready: at < 2, stats: { accepted: 1_204_311 - at * 40_000 + clock, refused: at * 3, ack_us_p50: at === 2 ? null : 1500, ack_us_p99: at === 2 ? null : 9100,
      loads: 412 + at, durability: "journal", journal_disk_bytes: at === 2 ? null : 520 * MIB, takeovers: at },
  }));
}

function problem(status, code, detail) {
  return [status, { type: "about:blank", title: code, status, detail, code }, "application/problem+json"];
}

function answer(method, url) {
  const asked = url.searchParams;
  if (url.pathname === "/v1/overview") return [200, overview()];
  if (url.pathname === "/v1/overview/samples") return [200, samples];
  if (url.pathname === "/v1/servers") return [200, { servers: servers() }];
  if (url.pathname === "/v1/rejected") return [200, { rejected: rejected.slice(0, Number(asked.get("limit") ?? 100)) }];
  if (url.pathname === "/v1/documents") {
    const limit = Number(asked.get("limit") ?? 100);
    const found = documents.filter((one) => one.document.startsWith(asked.get("prefix") ?? "") && one.document > (asked.get("after") ?? ""));
    const page = found.slice(0, limit).map((one) => ({ ...one, last_edit: one.last_edit && iso(one.last_edit) }));
    return [200, { documents: page, next: found.length > limit ? page.at(-1).document : null }];
  }
  const [, id, rest] = url.pathname.match(/^\/v1\/documents\/([^/]+)\/(\w+)$/) ?? [];
  const one = documents.find((document) => document.document === decodeURIComponent(id ?? ""));
  if (one === undefined) return problem(404, "not_found", "no such document");
  if (rest === "status") {
    const owner = { server: one.server, since: iso(one.since), wal_bytes: one.wal_bytes, sequence: one.sequence, operations: one.sequence * 31, changes: one.sequence * 2, present: 2, durability: "journal" };
    return [200, { ...one, last_edit: one.last_edit && iso(one.last_edit), owner: one.state === "UP" ? owner : null }];
  }
  if (rest === "history") {
    if (one.state === "ERROR") return problem(503, "document_failed", "the document is in ERROR");
    return [200, { versions: Array.from({ length: 24 }, (_, at) => ({ version: `vAQ${at}hMxG3ZkTqFh9Jc0`, time: iso((one.last_edit ?? started) - at * at * 61_000), sequence: one.sequence - at * 7 })) }];
  }
  if (rest === "sizes") {
    const at = Array.from({ length: 60 }, (_, step) => step);
    return [200, { document: one.document, time: at.map((step) => iso(started - (60 - step) * 5.4e6)), sequence: at, operations: at.map((step) => (step === 9 ? null : Math.round(step ** 1.4) * 77)), operations_now: 26_000, changes: 9, snapshot_bytes: 1, wal_bytes: 1, wal_messages: 1 }];
  }
  if (rest === "reset" && method === "POST") {
    if (one.state !== "ERROR") return [200, { document: one.document, reset: false }];
    Object.assign(one, { state: "DOWN", trace: undefined });
    return [200, { document: one.document, reset: true }];
  }
  return problem(404, "not_found", "no such path");
}

let silentUntil = 0;
createServer(async (request, response) => {
  const url = new URL(request.url ?? "/", "http://mock");
  const headers = { "Content-Security-Policy": CSP, "Cache-Control": "no-store" };
  if (url.pathname === "/mock/silence") {
    silentUntil = Date.now() + Number(url.searchParams.get("seconds") ?? 20) * 1000;
    return response.end();
  }
  if (Date.now() < silentUntil) return request.destroy();
  if (url.pathname.startsWith("/v1/")) {
    const [status, body, type = "application/json"] = answer(request.method, url);
    return response.writeHead(status, { ...headers, "Content-Type": type }).end(JSON.stringify(body));
  }
  const name = url.pathname === "/dashboard" ? "dashboard.html" : url.pathname.startsWith("/assets/") ? normalize(url.pathname) : "index.html";
  try {
    const data = await readFile(join(PAGES, name));
    response.writeHead(200, { ...headers, "Content-Type": TYPES[extname(name)] ?? "application/octet-stream" }).end(data);
  } catch {
    response.writeHead(404, headers).end();
  }
}).listen(PORT, "127.0.0.1", () => console.log(`http://127.0.0.1:${PORT}/dashboard`));
