/** Texts of the saved indicator. */

import { byId } from "../common/dom";
import { plainly, sentence } from "../common/words";
import { tokenProblem } from "./link";
import type { Mark } from "./saved";

const REASONS: Record<string, string> = {
  deleted: "the document was deleted",
  not_found: "the document does not exist, and you may not create it",
  document_failed: "the server cannot open this document",
  history_trimmed: "the server dropped the history that this copy builds on",
  invalid_document_id: "the server does not accept this document id",
  too_many_rooms: "too many documents on one connection",
  unsupported_crdt: "the server does not support this kind of document",
  invalid_update: "the server refused an edit",
  permission_denied: "you have read access only",
  payload_too_large: "an edit is too large for the server",
  rate_limited: "the server asked to slow down",
  app_error: "the server's storage is full",
  fragment_timeout: "a part of an edit did not arrive in time",
};

export function reasonText(reason: string | null): string {
  if (reason === null) return "";
  const token = tokenProblem(reason);
  return REASONS[reason] ?? (token ? plainly(token.code, token.sentence) : reason.replaceAll("_", " "));
}

/** A short text for the page and a sentence for its title. No count of edits: `waiting` counts operations, one per letter. */
export function words(mark: Mark): { readonly short: string; readonly long: string } {
  switch (mark.state) {
    case "new":
      return { short: "New", long: "Nothing is on the server yet: the document begins with your first edit." };
    case "connecting":
      return { short: "Connecting…", long: "Connecting to the server." };
    case "saved":
      return mark.readOnly
        ? { short: "Read only", long: "You see changes live, but cannot edit." }
        : { short: "Saved", long: "All edits are on the server's disk." };
    case "saving":
      return {
        short: "Saving…",
        long: `The server has not confirmed your last edits yet${mark.reason ? `: ${reasonText(mark.reason)}` : ""}.`,
      };
    case "offline":
      return mark.waiting > 0
        ? { short: "Offline · edits waiting", long: "Keep writing: your edits are stored here and sent when the server is back." }
        : { short: "Offline", long: "The server cannot be reached. Keep writing: your edits are stored here." };
    case "problem":
      return { short: "Problem", long: `${sentence(reasonText(mark.reason))}${mark.waiting > 0 ? " Your last edits are not saved." : ""}` };
  }
}

export function showMark(mark: Mark): void {
  const element = byId("state");
  const { short, long } = words(mark);
  const before = element.dataset["state"];
  element.dataset["state"] = mark.state;
  element.dataset["waiting"] = String(mark.waiting);
  element.dataset["reason"] = mark.reason ?? "";
  element.title = long;
  const text = byId("state-text");
  if (text.textContent !== short) text.textContent = short;
  // Announced to screen readers only when relevant, not at every key press.
  const quiet = new Set(["new", "saved", "saving", "connecting"]);
  if (before !== mark.state && !(quiet.has(before ?? "") && quiet.has(mark.state))) {
    byId("announce").textContent = `${short}. ${long}`;
  }
}
