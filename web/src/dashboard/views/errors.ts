// Documents in ERROR: not served until an operator resets them.

import { h } from "../../common/dom";
import { count } from "../format";
import type { Failure, Overview } from "../model";
import { cell, notice, Rows, setText, table, timeAgo, type Mounted, type Row } from "../page";
import { resetControl } from "../reset";
import { documentLink } from "./overview";

export interface ErrorsView extends Mounted {
  show(overview: Overview): void;
}

/** `refresh` requests a new overview after a reset. */
export function errorsView(refresh: () => void): ErrorsView {
  const found = table("errors", "Documents in ERROR", ["Document", "Since", "Trace", "Reset"]);
  const rows = new Rows<Failure>(found.body, (one) => one.document, (one) => failureRow(one, afterReset));
  const afterReset = (words: string): void => {
    setText(confirmation, words);
    confirmation.focus();
    refresh();
  };
  const fine = notice();
  const confirmation = h("p", { class: "result", role: "status", tabindex: -1, "data-testid": "errors-result", "data-tone": "ok" });
  const element = h("div", { class: "view" },
    h("div", { class: "bar" }, h("h1", { tabindex: -1 }, "Errors")),
    h("p", { class: "quiet" }, "A document is in ERROR after servers failed to load it repeatedly. Search their logs for the trace. Fix the cause, then reset it."),
    confirmation,
    h("div", { class: "panel flush" }, found.element, fine.element));
  found.element.hidden = true;
  return {
    element,
    title: "Errors",
    show(overview) {
      rows.show(overview.errors);
      found.element.hidden = overview.errors.length === 0;
      fine.show(wordsFor(overview));
    },
    close: () => undefined,
  };
}

/** The line below the table: no documents, or more than it shows. */
function wordsFor({ states, errors }: Overview): string {
  if (states.ERROR !== null && states.ERROR > errors.length) {
    return errors.length === 0 ? `${count(states.ERROR)} are in ERROR; which ones is not known yet` : `the newest ${errors.length} of ${count(states.ERROR)}`;
  }
  if (errors.length > 0) return "";
  return states.ERROR === null ? "the number of documents in ERROR is unknown" : "no document is in ERROR";
}

function failureRow(first: Failure, afterReset: (words: string) => void): Row<Failure> {
  const when = timeAgo();
  const trace = h("code", {});
  const element = h("tr", { "data-document": first.document }, h("th", { scope: "row" }, documentLink(first.document)),
    cell("Since", "", when.element), cell("Trace", "wide", trace), cell("Reset", "", resetControl(first.document, afterReset)));
  return {
    element,
    update(one) {
      when.show(one.at);
      setText(trace, one.trace ?? "–");
    },
  };
}
