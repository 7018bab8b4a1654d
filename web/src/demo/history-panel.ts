/** The slider through a document's past. It works on a copy; the live document is never detached. */

import { LoroDoc, VersionVector, type PeerID } from "loro-crdt";
import { DOMSerializer, type Node } from "prosemirror-model";
import { byId, h } from "../common/dom";
import { isSeedPeer, read } from "./content";
import { steps, type Change, type Step } from "./history";
import { schema } from "./schema";

export interface HistoryHost {
  readonly doc: () => LoroDoc;
  readonly nameOf: (peer: string) => string;
  /** Restore this version as a new change. */
  readonly restore: (past: Node) => void;
  readonly mayEdit: () => boolean;
  readonly opened: (open: boolean) => void;
}

export interface HistoryPanel {
  toggle(open?: boolean): void;
  readonly open: boolean;
}

export function createHistoryPanel(host: HistoryHost): HistoryPanel {
  const panel = byId("history");
  const slider = byId<HTMLInputElement>("history-slider");
  const time = byId("history-time");
  const who = byId("history-who");
  const place = byId("history-position");
  const view = byId("history-view");
  const restore = byId<HTMLButtonElement>("history-restore");
  const serializer = DOMSerializer.fromSchema(schema);
  let copy: LoroDoc | null = null;
  let shown: LoroDoc | null = null;
  let past: Step[] = [];
  let drawn = -1;
  let asked = 0;

  const begin = (): void => {
    const live = host.doc();
    live.commit();
    copy = LoroDoc.fromSnapshot(live.export({ mode: "snapshot" }));
    past = steps(changesOf(copy), undefined, copy.isShallow() ? copy.shallowSinceVV().toJSON() : undefined);
    slider.max = String(Math.max(0, past.length - 1));
    slider.value = slider.max;
    slider.disabled = past.length < 2;
    shown = null;
    drawn = -1;
    draw();
  };

  const draw = (): void => {
    const index = Number(slider.value);
    if (!copy || index === drawn) return;
    drawn = index;
    const step = past[index];
    const last = index >= past.length - 1;
    place.textContent = past.length ? `Version ${index + 1} of ${past.length}${last ? " (now)" : ""}` : "No changes yet";
    time.textContent = step ? timeText(step.time, last) : "";
    if (step?.time) time.setAttribute("datetime", new Date(step.time * 1000).toISOString());
    else time.removeAttribute("datetime");
    who.textContent = step ? people(step.peers) : "";
    slider.setAttribute("aria-valuetext", [place.textContent, time.textContent, who.textContent].filter(Boolean).join(", "));
    restore.disabled = last || !step || !host.mayEdit();
    if (step) {
      shown = travel(copy, shown, step.version);
      const node = read(schema, shown);
      view.replaceChildren(serializer.serializeFragment(node.content));
      if (node.textContent === "") view.replaceChildren(h("p", { class: "nothing" }, "Empty here."));
    }
  };

  const people = (peers: readonly string[]): string => {
    const names = [...new Set(peers.filter((peer) => !isSeedPeer(peer)).map(host.nameOf))];
    if (names.length === 0) return "";
    return names.length > 3 ? `by ${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : `by ${names.join(", ")}`;
  };

  const toggle = (open = panel.hidden !== false): void => {
    panel.hidden = !open;
    view.hidden = !open;
    if (open) {
      begin();
      slider.focus();
    } else {
      copy = null;
      shown = null;
      past = [];
      view.replaceChildren();
    }
    host.opened(open);
  };

  slider.addEventListener("input", () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(draw);
  });
  restore.addEventListener("click", () => {
    draw();
    if (!shown) return;
    const chosen = read(schema, shown);
    toggle(false);
    host.restore(chosen);
  });
  byId("history-close").addEventListener("click", () => toggle(false));
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") toggle(false);
  });

  return { toggle, get open() { return !panel.hidden; } };
}

/**
 * A document at this version. Forward, `from` gets the missing operations; back, a new
 * one gets all operations up to there. Loro's checkout takes seconds to tens
 * of seconds with many containers; a trimmed history has no alternative.
 */
function travel(whole: LoroDoc, from: LoroDoc | null, version: ReadonlyMap<string, number>): LoroDoc {
  if (whole.isShallow()) {
    whole.checkout(whole.vvToFrontiers(new VersionVector(version as Map<PeerID, number>)));
    return whole;
  }
  const known = from?.version().toJSON() ?? new Map<PeerID, number>();
  const forward = [...known].every(([peer, end]) => end <= (version.get(peer) ?? 0));
  const doc = from && forward ? from : new LoroDoc();
  const spans = [...version].flatMap(([peer, end]) => {
    const counter = doc === from ? (known.get(peer as PeerID) ?? 0) : 0;
    return end > counter ? [{ id: { peer: peer as PeerID, counter }, len: end - counter }] : [];
  });
  if (spans.length > 0) doc.import(whole.export({ mode: "updates-in-range", spans }));
  return doc;
}

function changesOf(doc: LoroDoc): Change[] {
  return [...doc.getAllChanges().values()].flat();
}

function timeText(seconds: number, last: boolean): string {
  if (seconds === 0) return last ? "" : "Beginning";
  const date = new Date(seconds * 1000);
  const today = new Date().toDateString() === date.toDateString();
  const text = date.toLocaleString(undefined, today
    ? { hour: "2-digit", minute: "2-digit", second: "2-digit" }
    : { dateStyle: "medium", timeStyle: "short" });
  return last ? `Last edit ${text}` : text;
}
