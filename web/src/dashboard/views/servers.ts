// The servers that answer, with the health lines of `lorogo status`.

import { h } from "../../common/dom";
import { get } from "../api";
import { bytes, count, microseconds } from "../format";
import { isTrouble } from "../health";
import { serversOf, type Server } from "../model";
import { notice, put, Rows, setText, timeAgo, type Mounted, type Row } from "../page";
import { Poller } from "../poller";

export function serversView(): Mounted {
  const cards = new Rows<Server>(h("ul", { id: "servers", "data-testid": "servers", class: "cards" }), (one) => one.id, serverCard);
  const problem = notice();
  const element = h("div", { class: "view" },
    h("div", { class: "bar" }, h("h1", { tabindex: -1 }, "Servers")), cards.parent, problem.element);
  let some = false;
  const poller = new Poller({
    load: async (signal) => serversOf(await get("/v1/servers", signal)),
    show: (servers) => {
      some = servers.length > 0;
      cards.show(servers);
      problem.show(some ? "" : "no server is running: start one with `lorogo serve`", "bad");
    },
    updated: (hearing) => {
      put(cards.parent, "data-old", hearing.failures > 0 ? "" : null);
      if (hearing.failures > 0 && !some) problem.show(`not loaded: ${hearing.problem}`, "bad");
    },
  });
  return { element, title: "Servers", close: () => poller.close() };
}

const FIGURES: readonly (readonly [string, (one: Server) => string])[] = [
  ["open documents", (one) => count(one.documents)],
  ["ACK p50 / p99", (one) => `${microseconds(one.ackP50)} / ${microseconds(one.ackP99)}`],
  ["accepted", (one) => count(one.accepted)],
  ["refused", (one) => count(one.refused)],
  ["takeovers", (one) => count(one.takeovers)],
  ["loads", (one) => count(one.loads)],
  ["journal", (one) => bytes(one.journalBytes)],
  ["durability", (one) => one.durability ?? "–"],
];

function serverCard(first: Server): Row<Server> {
  const mark = h("span", { class: "pill" });
  const version = h("span", {});
  const started = timeAgo();
  const words = new Rows<string>(h("ul", { class: "words" }), (fact) => fact, wordRow);
  const values = FIGURES.map(() => h("dd", {}));
  const figures = FIGURES.map(([name], at) => h("div", {}, h("dt", {}, name), values[at]));
  const element = h("li", { class: "panel server-card", "data-server": first.id, "data-testid": "server" },
    h("div", { class: "bar" }, h("h2", { class: "id" }, first.id), mark),
    h("p", { class: "quiet" }, version, ", started ", started.element),
    words.parent, h("dl", { class: "figures" }, ...figures));
  return {
    element,
    update(one) {
      setText(mark, one.ready === null ? "–" : one.ready ? "ready" : "NOT READY");
      put(mark, "data-tone", one.ready === null ? "quiet" : !one.ready ? "bad" : one.health.some(isTrouble) ? "warn" : "ok");
      setText(version, `lorogo ${one.version ?? "–"}`);
      started.show(one.started);
      words.show(one.health);
      FIGURES.forEach(([, figure], at) => setText(values[at] as HTMLElement, figure(one)));
    },
  };
}

function wordRow(fact: string): Row<string> {
  const element = h("li", { "data-tone": isTrouble(fact) ? "bad" : "quiet" }, fact);
  return { element, update: () => undefined };
}
