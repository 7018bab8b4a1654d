// A document's size over time and dated versions, from its owner. Viewing does not start a document.

import { button, h } from "../../common/dom";
import { documentPath, get } from "../api";
import { Chart } from "../chart";
import { count, moment } from "../format";
import { historyOf, sizesOf, type DocumentStatus, type Version } from "../model";
import { cell, notice, panel, Rows, setText, table, timeAgo, type Row } from "../page";
import { column } from "../series";

const VERSIONS = 50;
const REST_MS = 10_000; // between two requests, however fast it is edited

export class Past {
  readonly size = new Chart({
    id: "chart-size", title: "Size over time", format: count, ticks: "whole", days: true, steps: "on",
    lines: [{ label: "operations", colour: "--series-1", fill: true }],
  });
  private readonly found = table("history", "History, newest first", ["When", "Sequence", "Version"]);
  private readonly rows = new Rows<Version>(this.found.body, (one) => one.version, versionRow);
  private readonly words = notice();
  private readonly start = button({ id: "history-load", "data-testid": "history-load", hidden: true }, "Start and show");
  readonly element = panel("History", { class: "panel flush titled" }, this.found.element, this.words.element,
    h("div", { class: "start" }, this.start));
  private readonly closing = new AbortController();
  private asking = false;
  private asked = 0;
  private shownAt: number | null | undefined; // the sequence shown; undefined: none yet

  constructor(private readonly id: string) {
    this.found.element.hidden = true;
    this.size.element.hidden = true;
    this.start.addEventListener("click", () => {
      this.words.show("loading…");
      void this.load(null);
    });
  }

  /** Follows the document: requests versions when there may be new ones. */
  follow(status: DocumentStatus): void {
    const up = status.state === "UP" && status.sequence !== null;
    this.start.hidden = up || this.asking || this.shownAt !== undefined || status.state === "ERROR" || status.deleted;
    if (up) {
      if (status.sequence !== this.shownAt && Date.now() - this.asked >= REST_MS) void this.load(status.sequence);
    } else if (this.shownAt === undefined && !this.asking) {
      this.words.show(status.state === "ERROR" ? "not available in ERROR" : status.deleted ? "deleted" : "not loaded: start it to see its size and versions");
    }
  }

  close(): void {
    this.closing.abort();
    this.size.close();
  }

  private async load(sequence: number | null): Promise<void> {
    if (this.asking) return;
    this.asking = true;
    this.start.hidden = true;
    this.asked = Date.now();
    try {
      const { signal } = this.closing;
      const [history, sizes] = await Promise.all([
        get(`${documentPath(this.id, "history")}?limit=${VERSIONS}`, signal), get(documentPath(this.id, "sizes"), signal)]);
      const versions = historyOf(history);
      const grown = sizesOf(sizes, Date.now() / 1000);
      this.size.element.hidden = false;
      this.size.show(grown.times, [column(grown, "operations")]);
      this.shownAt = sequence;
      this.rows.show(versions);
      this.found.element.hidden = versions.length === 0;
      this.words.show(versions.length > 0 ? "" : "no versions yet");
    } catch (error) {
      if (this.closing.signal.aborted) return;
      this.words.show(`not loaded: ${error instanceof Error ? error.message : String(error)}`, "bad");
    } finally {
      this.asking = false;
    }
  }
}

function versionRow(first: Version): Row<Version> {
  const when = timeAgo();
  const sequence = cell("Sequence", "number");
  const element = h("tr", {}, cell("When", "", h("span", { class: "at" }, moment(first.at)), when.element), sequence,
    cell("Version", "wide", h("code", {}, first.version)));
  return {
    element,
    update(one) {
      when.show(one.at);
      setText(sequence, count(one.sequence));
    },
  };
}
