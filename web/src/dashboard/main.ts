// The operator's dashboard: one page, one view at a time, and the state of the connection.

import "../common/theme.css";
import "./dashboard.css";
import { byId, h } from "../common/dom";
import { signInByAddress, signInForm, signOut, signedInAs } from "../common/sign-in";
import { themeSwitch } from "../common/theme";
import { LAST_KEY, whoIsIt } from "../common/who";
import { plainly, sentence } from "../common/words";
import { get, type Refusal } from "./api";
import { clock, count, span } from "./format";
import { overviewOf, type Overview } from "./model";
import { put, setText, tickTimes, type Mounted } from "./page";
import { Poller } from "./poller";
import { connection, SILENCE, type Hearing } from "./rhythm";
import { parseRoute, type Route, type View } from "./route";
import { documentView } from "./views/document";
import { documentsView, type DocumentsView } from "./views/documents";
import { errorsView } from "./views/errors";
import { overviewView } from "./views/overview";
import { rejectedView } from "./views/rejected";
import { serversView } from "./views/servers";

type Shown = Mounted & { show?(overview: Overview): void };

const main = byId("main");
const badge = byId("errors-badge");
const seen = byId("connection");
const spoken = byId("connection-spoken");

let view: View | null = null;
let mounted: Shown | null = null;
let latest: Overview | null = null;
let hearing: Hearing = SILENCE;
let again = 0;

const poller = new Poller<Overview>({
  load: async (signal) => overviewOf(await get("/v1/overview", signal)),
  show: (overview) => {
    if (main.hidden) letIn();
    latest = overview;
    mounted?.show?.(overview);
    setText(badge, overview.states.ERROR ? count(overview.states.ERROR) : "");
    badge.hidden = !overview.states.ERROR;
  },
  refused: turnAway,
  updated: (latest, next) => {
    hearing = latest;
    again = next;
    tellConnection();
  },
});

/** The dashboard is for operators only: show the sign-in form with the reason. */
function turnAway(refusal: Refusal): void {
  if (refusal.status !== 401 && refusal.status !== 403) return;
  const title = refusal.status === 401 ? "This page needs a token" : "This token is not an operator's";
  const why = refusal.status === 401 ? sentence(plainly(refusal.code, refusal.message)) : "The dashboard is for operators: sign in as one.";
  mounted?.close();
  mounted = null;
  if (main.hidden) {
    setText(byId("sign-in-title"), title);
    setText(byId("sign-in-why"), why);
    return;
  }
  main.hidden = true;
  main.before(h("section", { id: "sign-in", class: "view", "data-testid": "sign-in-panel", "aria-labelledby": "sign-in-title" },
    h("h1", { id: "sign-in-title", tabindex: -1 }, title), h("p", { id: "sign-in-why" }, why), signInForm(arrived)));
}

/** The user signed in or out. */
function arrived(): void {
  byId("link-problem").hidden = true;
  poller.now();
  void showWho();
}

async function showWho(): Promise<void> {
  const out = (): void => void signOut().then((done) => {
    if (done) arrived();
    else showLinkProblem("You are still signed in: the gateway cannot be reached.");
  });
  byId("who").replaceChildren(signedInAs(await whoIsIt(), out));
}

function showLinkProblem(problem: string): void {
  setText(byId("link-problem"), problem);
  byId("link-problem").hidden = problem === "";
}

async function lookAtAddress(arriving: ReturnType<typeof signInByAddress>): Promise<void> {
  const { changed, problem } = await arriving;
  if (changed) arrived();
  if (problem !== "") showLinkProblem(problem);
}

function letIn(): void {
  byId("sign-in").remove();
  main.hidden = false;
  navigate();
}

function open(route: Route): Shown {
  switch (route.view) {
    case "overview":
      return overviewView();
    case "documents":
      return documentsView(route.prefix, route.after);
    case "document":
      return documentView(route.id);
    case "servers":
      return serversView();
    case "rejected":
      return rejectedView();
    case "errors":
      return errorsView(() => poller.now());
  }
}

function unknownPlace(): Shown {
  const element = h("div", { class: "view" }, h("h1", { tabindex: -1 }, "No such page"),
    h("p", {}, "This address is not a view. ", h("a", { href: "#/overview" }, "Go to the overview")));
  return { element, title: "No such page", close: () => undefined };
}

function navigate(): void {
  if (main.hidden) return;
  const route = parseRoute(location.hash);
  if (route?.view === "documents" && view === "documents" && mounted !== null) {
    (mounted as DocumentsView).go(route.prefix, route.after);
    return;
  }
  const first = mounted === null;
  mounted?.close();
  mounted = route === null ? unknownPlace() : open(route);
  view = route?.view ?? null;
  main.replaceChildren(mounted.element);
  document.title = `${mounted.title} · lorogo`;
  const section = view === "document" ? "documents" : view;
  for (const link of document.querySelectorAll<HTMLAnchorElement>("#tabs a")) {
    const here = link.dataset["view"] === section;
    put(link, "aria-current", here ? "page" : null);
    if (here) link.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  if (latest !== null) mounted.show?.(latest);
  if (!first) {
    mounted.element.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
    scrollTo({ top: 0 });
  }
}

function tellConnection(): void {
  const now = Date.now();
  const state = connection(hearing, main.hidden === true);
  put(seen, "data-state", state);
  put(document.body, "data-connection", state);
  if (state === "lost") {
    const since = hearing.answeredAt === null ? "never answered" : `last answer ${span(now - hearing.answeredAt)} ago`;
    const next = Math.ceil((again - now) / 1000);
    setText(seen, `${since}${next > 0 ? `; retry in ${next} s` : "; retrying"}`);
    put(seen, "title", hearing.problem);
    setText(spoken, hearing.answeredAt === null ? `no connection: ${hearing.problem}` : `connection lost, last answer at ${clock(hearing.answeredAt)}: ${hearing.problem}`);
  } else {
    setText(seen, { live: "live", refused: "no access", connecting: "connecting…" }[state]);
    put(seen, "title", null);
    setText(spoken, { live: "connected", refused: "no access", connecting: "connecting" }[state]);
  }
}

byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is handled by this page
  main.focus();
});
byId("theme").append(themeSwitch());
addEventListener("hashchange", () => {
  void lookAtAddress(signInByAddress());
  navigate();
});
setInterval(() => {
  if (document.hidden) return;
  tickTimes(main, Date.now());
  tellConnection();
}, 1000);
const signing = signInByAddress(); // removes the token from the URL before anything else reads it
navigate();
tellConnection();
void lookAtAddress(signing).then(showWho);
addEventListener("storage", (event) => {
  if (event.key === LAST_KEY) arrived(); // another tab signed in or out
});
