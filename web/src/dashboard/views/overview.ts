// The overview: tiles, charts, recent takeovers.

import { h } from "../../common/dom";
import { get } from "../api";
import { Chart } from "../chart";
import { ago, bytes, count, fraction, many, microseconds, percent, rate } from "../format";
import { samplesFrom, STATES, STATE_MEANINGS, stateWords, type Failure, type Overview, type Takeover } from "../model";
import { panel, put, Rows, setText, timeAgo, type Mounted } from "../page";
import { Poller } from "../poller";
import { formatRoute } from "../route";
import { column, latestOf, NO_SAMPLES, positive, sinceKnown, withGaps, type Samples } from "../series";

export const WAL_ALARM = 0.7;
const TAKEOVERS_SHOWN = 10;

export interface OverviewView extends Mounted {
  show(overview: Overview): void;
}

export function overviewView(): OverviewView {
  const tiles = new Tiles();
  const throughput = new Chart({
    id: "chart-throughput", title: "Updates per second", format: rate, steps: "until",
    lines: [{ label: "accepted", colour: "--series-1", fill: true }],
  });
  const latency = new Chart({
    id: "chart-latency", title: "ACK latency", format: microseconds, log: true,
    lines: [{ label: "p50", colour: "--series-3" }, { label: "p99", colour: "--series-2" }],
  });
  const wal = new Chart({
    id: "chart-wal", title: "WAL", format: bytes, ticks: "bytes", steps: "until",
    lines: [{ label: "bytes", colour: "--series-5", fill: true }],
  });
  const stored = new Chart({
    id: "chart-journal", title: "Journals and snapshots", format: bytes, ticks: "bytes",
    lines: [{ label: "journals", colour: "--series-4" }, { label: "snapshots", colour: "--series-5" }],
  });
  const charts = [throughput, latency, wal, stored];

  const takeovers = new Rows<Takeover>(
    h("ol", { id: "takeovers", "data-testid": "takeovers", class: "events", reversed: true }), takeoverKey, takeoverRow);
  const calm = h("p", { class: "notice", hidden: true }, "No documents moved since this gateway started");
  const failing = new FailingBanner();

  const cut = h("p", { id: "cut", "data-testid": "cut", class: "panel banner", hidden: true },
    h("b", {}, "The gateway is not connected to NATS:"), " the values may be outdated.");
  const element = h("div", { class: "view" },
    h("h1", { class: "visually-hidden", tabindex: -1 }, "Overview"),
    cut,
    tiles.element,
    failing.element,
    h("div", { class: "charts" }, ...charts.map((chart) => chart.element)),
    panel("Documents that moved", {}, takeovers.parent, calm));

  let known: Overview | null = null;
  let samples: Samples | null = null;
  const draw = (): void => {
    if (known !== null) tiles.show(known, samples ?? NO_SAMPLES);
    if (samples === null) return;
    const { times } = samples;
    throughput.show(times, [column(samples, "updates_per_second")]);
    latency.show(times, [positive(column(samples, "ack_p50_us")), positive(column(samples, "ack_p99_us"))]);
    const { walBytes = null, walBytesMax = null, journalBytes = null, snapshotBytes = null } = known ?? {};
    const alarm = walBytesMax === null ? null : { at: WAL_ALARM * walBytesMax, label: `alarm at ${WAL_ALARM * 100} %` };
    wal.show(times, [column(samples, "wal_bytes")], [walBytes], alarm);
    stored.show(times, [sinceKnown(column(samples, "journal_bytes"), journalBytes), column(samples, "snapshot_bytes")], [journalBytes, snapshotBytes]);
  };
  const poller = new Poller({
    load: async (signal) => withGaps(samplesFrom(await get("/v1/overview/samples", signal))),
    show: (fresh) => {
      samples = fresh;
      draw();
    },
  });

  return {
    element,
    title: "Overview",
    show(overview) {
      cut.hidden = overview.connected !== false;
      known = overview;
      draw();
      takeovers.show(overview.takeovers.slice(0, TAKEOVERS_SHOWN));
      calm.hidden = overview.takeovers.length > 0;
      failing.show(overview);
    },
    close() {
      poller.close();
      for (const chart of charts) chart.close();
    },
  };
}

/** A value with its label; `tone` marks values that need attention. */
class Tile {
  readonly value = h("span", { class: "tile-value" }, "–");
  readonly note = h("span", { class: "tile-note" });
  readonly element: HTMLElement;

  constructor(id: string, label: string, ...more: Node[]) {
    this.element = h("div", { class: "tile", id: `tile-${id}`, "data-testid": `tile-${id}` },
      h("span", { class: "tile-label" }, label), this.value, ...more, this.note);
  }

  show(value: string, note: string, tone: "" | "warn" | "bad" = ""): void {
    setText(this.value, value);
    setText(this.note, note);
    put(this.element, "data-tone", tone === "" ? null : tone);
  }
}

class Tiles {
  private readonly shares = STATES.map((state) => h("i", { "data-state": state }));
  private readonly counts = STATES.map((state) => h("b", { "data-testid": `count-${state}` }, "–"));
  private readonly documents = new Tile("documents", "Documents",
    h("span", { class: "shares", "aria-hidden": "true" }, ...this.shares),
    h("span", { class: "states" }, ...STATES.map((state, at) =>
      h("span", { class: "key", title: STATE_MEANINGS[state] }, h("i", { "data-state": state }), this.counts[at], stateWords(state)))));
  private readonly servers = new Tile("servers", "Servers ready");
  private readonly updates = new Tile("updates", "Updates per second");
  private readonly ack = new Tile("ack", "ACK p50 / p99");
  private readonly fill = h("i", {});
  private readonly meter = h("span", { class: "meter", "aria-hidden": "true" }, this.fill, h("b", { style: `left: ${WAL_ALARM * 100}%` }));
  private readonly wal = new Tile("wal", "WAL", this.meter);
  private readonly journal = new Tile("journal", "Journals");
  private readonly snapshots = new Tile("snapshots", "Snapshots");
  private readonly sockets = new Tile("connections", "Connections");
  readonly element = h("div", { class: "tiles", id: "tiles" }, ...[this.documents, this.servers, this.updates, this.ack,
    this.wal, this.journal, this.snapshots, this.sockets].map((tile) => tile.element));

  show(it: Overview, samples: Samples): void {
    this.documents.show(count(it.documents), "", it.states.ERROR ? "bad" : "");
    STATES.forEach((state, at) => {
      const share = this.shares[at];
      const documents = it.states[state] ?? 0;
      share?.style.setProperty("flex-grow", String(documents));
      share?.toggleAttribute("hidden", documents === 0); // otherwise the gap beside it remains
      const element = this.counts[at];
      if (element) setText(element, count(it.states[state]));
    });
    const { serversReady: ready, servers: all } = it;
    const lacking = ready !== null && all !== null && ready < all;
    this.servers.show(`${count(ready)} of ${count(all)}`, lacking ? "not all acquire documents" : ready ? "all acquire documents" : "",
      ready === 0 ? "bad" : lacking ? "warn" : "");
    const refused = it.refusedPerSecond ? `, ${rate(it.refusedPerSecond)} refused` : "";
    this.updates.show(rate(it.updatesPerSecond), it.bytesPerSecond === null ? "" : `${bytes(it.bytesPerSecond)}/s${refused}`);
    this.showAck(it, samples);
    this.showWal(it);
    this.journal.show(bytes(it.journalBytes), it.syncP50 === null ? "on the servers' disks" : `fdatasync ${microseconds(it.syncP50)} / ${microseconds(it.syncP99)}`);
    this.snapshots.show(bytes(it.snapshotBytes), "in the object store");
    this.sockets.show(count(it.connections), `on ${many(it.socketDocuments, "document")}, at this gateway`);
  }

  /** Without recent ACKs: the last known values and their age. */
  private showAck(it: Overview, samples: Samples): void {
    const waiting = it.acksWaiting ? `${many(it.acksWaiting, "ACK")} waiting` : "";
    const last = it.ackP50 === null ? latestOf(samples, ["ack_p50_us", "ack_p99_us"]) : null;
    const [p50, p99] = last?.values ?? [it.ackP50, it.ackP99];
    const note = last === null ? "on disk, applied, recoverable" : `last known, ${ago(last.time * 1000, Date.now())}`;
    this.ack.show(`${microseconds(p50)} / ${microseconds(p99)}`, waiting || note);
  }

  private showWal(it: Overview): void {
    const full = fraction(it.walBytes, it.walBytesMax);
    const tone = full === null || full < WAL_ALARM ? "" : full < 0.9 ? "warn" : "bad";
    const bound = it.walBytes === null ? "" : it.walBytesMax === null ? `${many(it.walMessages, "message")}, no limit` : `${percent(it.walBytes, it.walBytesMax)} of ${bytes(it.walBytesMax)}`;
    this.wal.show(bytes(it.walBytes), `${bound}${tone === "" ? "" : ": NEARLY FULL"}`, tone);
    this.meter.hidden = full === null;
    this.fill.style.width = `${Math.min(1, full ?? 0) * 100}%`;
  }
}

export function documentLink(id: string): HTMLAnchorElement {
  return h("a", { class: "id", href: formatRoute({ view: "document", id }), title: id }, id);
}

const takeoverKey = (one: Takeover): string => JSON.stringify([one.document, one.from, one.to, one.at]);

function takeoverRow(one: Takeover): { element: HTMLElement; update(one: Takeover): void } {
  const when = timeAgo();
  const server = (name: string | null): HTMLElement => h("span", { class: "id server" }, name ?? "–");
  const element = h("li", {}, h("span", { class: "what" }, documentLink(one.document),
    " moved from ", server(one.from), " to ", server(one.to)), when.element);
  return { element, update: (fresh) => when.show(fresh.at) };
}

/** A banner with the documents in ERROR and a link. */
class FailingBanner {
  private readonly words = h("b", {});
  private readonly names = new Rows<Failure>(h("span", { class: "names" }), (one) => one.document, (one) => {
    const element = documentLink(one.document);
    return { element, update: () => undefined };
  });
  readonly element = h("p", { id: "failing", "data-testid": "failing", class: "panel banner", hidden: true },
    this.words, this.names.parent, h("a", { href: "#/errors" }, "see and reset"));

  show({ states, errors }: Overview): void {
    const all = states.ERROR ?? errors.length;
    this.element.hidden = all === 0;
    setText(this.words, `${many(all, "document")} in ERROR`);
    this.names.show(errors.slice(0, 5));
  }
}
