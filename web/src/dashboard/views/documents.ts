// The list of documents: by id prefix, in pages, updated live.

import { button, h } from "../../common/dom";
import { get } from "../api";
import { bytes, count, many } from "../format";
import { documentsOf, goneWord, type DocumentPage, type DocumentRow } from "../model";
import { cell, notice, pill, put, Rows, setText, table, timeAgo, type Mounted, type Row } from "../page";
import { follow, previous, START, type Trail } from "../paging";
import { Poller } from "../poller";
import { formatRoute } from "../route";
import { documentLink } from "./overview";

const PAGE = 50;
const TYPING_MS = 250;

let trail: Trail = START; // outlives the view, for the way back from a document

export interface DocumentsView extends Mounted {
  /** Another page or prefix of the same view: the search field keeps its focus. */
  go(prefix: string, after: string): void;
}

export function documentsView(prefix: string, after: string): DocumentsView {
  const search = h("input", {
    id: "search", "data-testid": "search", class: "field", type: "search", autocomplete: "off", spellcheck: "false",
    placeholder: "id begins with…", "aria-label": "Find documents whose id begins with", maxlength: 256,
  });
  const found = table("documents", "Documents", ["Document", "State", "Owner", "Snapshot", "WAL", "Last edit"]);
  const rows = new Rows<DocumentRow>(found.body, (row) => row.id, documentRow);
  const problem = notice();
  const back = button({ id: "page-previous", "data-testid": "page-previous" }, "Previous");
  const on = button({ id: "page-next", "data-testid": "page-next" }, "Next");
  const where = h("span", { class: "where", "aria-live": "polite" });
  const element = h("div", { class: "view" },
    h("div", { class: "bar" }, h("h1", { tabindex: -1 }, "Documents"), search),
    h("div", { class: "panel flush" }, found.element, problem.element),
    h("nav", { class: "pager", "aria-label": "Pages" }, back, where, on));

  let page: DocumentPage | null = null;
  const load = async (signal: AbortSignal): Promise<DocumentPage> => {
    const asked = new URLSearchParams({ limit: String(PAGE) });
    const start = trail.starts.at(-1) ?? "";
    if (trail.prefix !== "") asked.set("prefix", trail.prefix);
    if (start !== "") asked.set("after", start);
    return documentsOf(await get(`/v1/documents?${asked}`, signal));
  };
  const show = (fresh: DocumentPage): void => {
    page = fresh;
    rows.show(fresh.rows);
    found.element.hidden = fresh.rows.length === 0;
    problem.show(fresh.rows.length > 0 ? "" : trail.prefix === "" ? "no documents yet" : `no id begins with ${trail.prefix}`);
    back.disabled = previous(trail) === null;
    on.disabled = fresh.next === null;
    setText(where, `page ${trail.starts.length}, ${many(fresh.rows.length, "document")}`);
  };
  trail = follow(trail, prefix, after);
  search.value = prefix;
  const poller = new Poller({
    load, show,
    refused: (refusal) => problem.show(refusal.message, "bad"),
    updated: (hearing) => {
      put(found.element, "data-old", hearing.failures > 0 ? "" : null);
      if (hearing.failures > 0 && page === null) problem.show(`not loaded: ${hearing.problem}`, "bad");
    },
  });

  let typing: ReturnType<typeof setTimeout> | undefined;
  const goTo = (to: string): void => {
    location.hash = formatRoute({ view: "documents", prefix: trail.prefix, after: to });
  };
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      history.replaceState(null, "", formatRoute({ view: "documents", prefix: search.value.trim(), after: "" }));
      dispatchEvent(new HashChangeEvent("hashchange"));
    }, TYPING_MS);
  });
  back.addEventListener("click", () => goTo(previous(trail) ?? ""));
  on.addEventListener("click", () => page?.next && goTo(page.next));

  return {
    element,
    title: "Documents",
    go(newPrefix, newAfter) {
      trail = follow(trail, newPrefix, newAfter);
      if (search.value.trim() !== newPrefix) search.value = newPrefix;
      back.disabled = on.disabled = true;
      poller.now();
      scrollTo({ top: 0 });
    },
    close() {
      clearTimeout(typing);
      poller.close();
    },
  };
}

function documentRow(first: DocumentRow): Row<DocumentRow> {
  const state = pill();
  const edited = timeAgo();
  const gone = h("span", { class: "gone" });
  const owner = h("span", { class: "id server" });
  const snapshot = cell("Snapshot", "number");
  const wal = cell("WAL", "number");
  const element = h("tr", { "data-document": first.id },
    h("th", { scope: "row" }, documentLink(first.id), gone),
    cell("State", "", state.element), cell("Owner", "", owner), snapshot, wal, cell("Last edit", "", edited.element));
  return {
    element,
    update(row) {
      state.show(row.state, row.stale);
      edited.show(row.edited);
      setText(gone, goneWord(row));
      setText(owner, row.owner ?? "–");
      put(owner, "title", row.owner);
      setText(snapshot, row.snapshotBytes === 0 ? "none" : bytes(row.snapshotBytes));
      setText(wal, `${count(row.walMessages)} msg`);
    },
  };
}
