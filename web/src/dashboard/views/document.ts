// One document: status, size over time, history.

import { h } from "../../common/dom";
import { documentPath, get } from "../api";
import { bytes, count, many, moment } from "../format";
import { goneWord, statusOf, type DocumentStatus } from "../model";
import { notice, panel, pill, put, setText, timeAgo, type Mounted } from "../page";
import { Poller } from "../poller";
import { resetControl } from "../reset";
import { Past } from "./past";

export function documentView(id: string): Mounted {
  const state = pill();
  const edited = timeAgo();
  const gone = h("span", { class: "gone" });
  const open = h("a", { class: "button", href: `/d/${encodeURIComponent(id)}`, "data-testid": "open-editor" }, "Open in the editor");
  const facts = new FactList();
  const problem = notice();
  const confirmation = h("p", { class: "result", role: "status", tabindex: -1, "data-testid": "document-result", "data-tone": "ok" });
  const reset = h("div", { id: "reset", hidden: true }, h("p", {},
    "In ERROR: servers failed to load it repeatedly. Fix the cause, then reset it."));
  const past = new Past(id);
  const body = h("div", { class: "view-body" }, reset,
    panel("Facts", {}, facts.element), past.size.element, past.element);
  const element = h("div", { class: "view" },
    h("p", { class: "crumbs" }, h("a", { href: "#/documents" }, "← Documents")),
    h("div", { class: "bar" }, h("h1", { class: "id", tabindex: -1 }, id), state.element, gone, h("span", { class: "space" }), open),
    problem.element, confirmation, body);
  body.hidden = true;
  const afterReset = (words: string): void => {
    setText(confirmation, words);
    confirmation.focus();
    fast.now();
  };

  const fast = new Poller<DocumentStatus>({
    load: async (signal) => statusOf(await get(documentPath(id, "status"), signal)),
    show: (status) => {
      body.hidden = false;
      problem.show("");
      state.show(status.state, status.stale);
      setText(gone, goneWord(status));
      past.follow(status);
      edited.show(status.edited);
      facts.show(status, edited.element);
      const failing = status.state === "ERROR";
      if (failing && reset.childElementCount < 2) reset.append(resetControl(id, afterReset));
      reset.hidden = !failing;
      put(reset, "class", failing ? "panel" : null);
      put(reset, "data-tone", "bad");
    },
    refused: (refusal) => {
      state.show(null);
      body.hidden = true;
      problem.show(refusal.status === 404 ? "this document does not exist" : refusal.message, "bad");
    },
    updated: (hearing) => {
      put(body, "data-old", hearing.failures > 0 ? "" : null);
      if (hearing.failures > 0 && body.hidden) problem.show(`not loaded: ${hearing.problem}`, "bad");
    },
  });
  return {
    element,
    title: id,
    close() {
      fast.close();
      past.close();
    },
  };
}

const FACTS: readonly (readonly [string, (it: DocumentStatus) => string])[] = [
  ["owner", (it) => it.owner ?? "–"],
  ["up since", (it) => moment(it.since)],
  ["last edit", () => ""],
  ["sequence", (it) => count(it.sequence)],
  ["snapshot", (it) => (it.snapshotBytes === 0 ? "none" : bytes(it.snapshotBytes))],
  ["WAL", (it) => `${many(it.walMessages, "message")}${it.walBytes === null ? "" : `, ${bytes(it.walBytes)}`}`],
  ["operations", (it) => count(it.operations)],
  ["changes", (it) => count(it.changes)],
  ["present", (it) => count(it.present)],
  ["lease", (it) => (it.lease === null ? "–" : String(it.lease))],
  ["durability", (it) => it.durability ?? "–"],
  ["trace", (it) => it.trace ?? "–"],
];

class FactList {
  private readonly values = FACTS.map(([name]) => h("dd", { "data-testid": `fact-${name.replace(" ", "-").toLowerCase()}` }));
  private readonly items = FACTS.map(([name], at) => h("div", {}, h("dt", {}, name), this.values[at]));
  readonly element = h("dl", { class: "figures", id: "facts" }, ...this.items);

  show(status: DocumentStatus, edited: HTMLElement): void {
    FACTS.forEach(([name, figure], at) => {
      const value = this.values[at] as HTMLElement;
      if (name === "last edit") {
        if (edited.parentElement !== value) value.replaceChildren(edited);
      } else setText(value, figure(status));
      if (name === "trace") (this.items[at] as HTMLElement).hidden = status.trace === null;
    });
  }
}
