// Permanently refused updates and their reasons.

import { h } from "../../common/dom";
import { get } from "../api";
import { bytes } from "../format";
import { rejectedOf, type Rejected } from "../model";
import { cell, notice, put, Rows, setText, table, timeAgo, type Mounted, type Row } from "../page";
import { Poller } from "../poller";
import { documentLink } from "./overview";

const SHOWN = 200;
const EVERY_MS = 10_000; // reading them transfers their bodies

export function rejectedView(): Mounted {
  const found = table("rejected", "Rejected updates", ["When", "Document", "Reason", "Message", "Size"]);
  const rows = new Rows<Rejected>(found.body, (one) => one.key, rejectedRow);
  const problem = notice();
  const howMany = h("p", { class: "quiet" });
  const element = h("div", { class: "view" },
    h("div", { class: "bar" }, h("h1", { tabindex: -1 }, "Rejected updates"), howMany),
    h("div", { class: "panel flush" }, found.element, problem.element));
  let some = false;
  found.element.hidden = true;
  const poller = new Poller({
    everyMs: EVERY_MS,
    load: async (signal) => rejectedOf(await get(`/v1/rejected?limit=${SHOWN}`, signal)),
    show: (rejected) => {
      some = rejected.length > 0;
      rows.show(rejected);
      setText(howMany, rejected.length >= SHOWN ? `the newest ${SHOWN}` : some ? `${rejected.length}, newest first` : "");
      found.element.hidden = !some;
      problem.show(some ? "" : "no update was rejected");
    },
    updated: (hearing) => {
      put(found.element, "data-old", hearing.failures > 0 ? "" : null);
      if (hearing.failures > 0 && !some) problem.show(`not loaded: ${hearing.problem}`, "bad");
    },
  });
  return { element, title: "Rejected", close: () => poller.close() };
}

function rejectedRow(first: Rejected): Row<Rejected> {
  const when = timeAgo();
  const reason = h("span", { class: "pill", "data-tone": "warn" });
  const message = cell("Message", "wide");
  const size = cell("Size", "number");
  const element = h("tr", {}, cell("When", "", when.element), h("th", { scope: "row" }, documentLink(first.document)),
    cell("Reason", "", reason), message, size);
  return {
    element,
    update(one) {
      when.show(one.at);
      setText(reason, one.reason ?? "–");
      setText(message, one.message ?? "–");
      setText(size, bytes(one.bytes));
    },
  };
}
