/** The demo page: an address is a document, everybody who opens it writes together. */

import "../common/theme.css";
import "./demo.css";
import { button, byId, h, icon } from "../common/dom";
import { signInByAddress, signInForm } from "../common/sign-in";
import { themeSwitch } from "../common/theme";
import { isEmpty } from "./editor";
import { createHistoryPanel } from "./history-panel";
import { idOfPath, pathOf, newDocumentId } from "./id";
import { tokenProblem, type Closed } from "./link";
import { reasonText, showMark } from "./mark";
import { setUpName, showPeople } from "./people";
import { identity } from "./presence";
import { REFUSALS, type Mark } from "./saved";
import { BEGUN_ELSEWHERE, Session } from "./session";
import { createToolbar } from "./toolbar";

const ROOTS_MAX = 8;
const ROOT_NAME_MAX = 40;

const random = (): number => (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) / 2 ** 32;
const socketUrl = (): string => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;

async function main(): Promise<void> {
  byId("tools").append(themeSwitch());
  byId("copy-link").prepend(icon("link"));
  byId("history-toggle").prepend(icon("clock"));
  byId("history-close").append(icon("close"));
  byId("new-document").append(icon("plus"));
  byId("to-dashboard").append(icon("gauge"));

  await signInByAddress(); // what is wrong with it the first join tells
  let id = idOfPath(location.pathname);
  if (id === undefined) {
    tell("bad-id", "This address is not a document.", "A document id has 1 to 128 letters, digits, _, - or =.", newDocumentLink());
    byId("opening").hidden = true;
    return;
  }
  open(id ?? newDocumentId(random), id === null);
}

/** A new document has its address, and is made, with the first edit or when its link is copied. */
function open(id: string, isNew: boolean): void {
  document.title = `${id} · lorogo`;
  byId("document-id").textContent = id;
  const own = identity();
  const toolbar = createToolbar(byId("toolbar"), () => session.view);
  const panel = createHistoryPanel({
    doc: () => session.doc,
    nameOf: (peer) => session.nameOf(peer),
    restore: (past) => {
      session.restore(past);
      session.view?.focus();
      byId("announce").textContent = "The older version is back, as a new edit.";
    },
    mayEdit: () => session.editable,
    opened: (opened) => {
      byId("history-toggle").setAttribute("aria-expanded", String(opened));
      document.body.classList.toggle("in-history", opened);
      if (!opened) byId("history-toggle").focus();
    },
  });

  const start = (asNew = false): Session => {
    const made: Session = new Session(socketUrl(), id, own, {
      kept: (all) => {
        byId("state").dataset["kept"] = all ? "yes" : "no";
      },
      marked: (mark) => {
        showMark(mark);
        showAway(mark);
        refused(mark);
      },
      people: () => showPeople(made.presence.people()),
      ready: (view) => {
        byId("opening").hidden = true;
        if (byId("banner").dataset["code"] === "not_found") untell();
        byId("history-toggle").removeAttribute("disabled");
        document.body.classList.add("ready");
        showText(view);
        if (isEmpty(view.state.doc)) view.focus();
      },
      edited: (view) => showText(view),
      others: (roots) => showOtherRoots(id, roots),
      begun: () => {
        if (location.pathname !== pathOf(id)) history.replaceState(null, "", `${pathOf(id)}${location.search}${location.hash}`);
      },
      closed: (why, unsaved, text) => closed(why, unsaved, text),
    });
    showPeople(made.presence.people());
    void made.start(asNew);
    return made;
  };

  const showText = (view: NonNullable<Session["view"]>): void => {
    toolbar.show(view, session.editable);
    document.body.classList.toggle("read-only", !session.editable);
    byId("empty").hidden = !isEmpty(view.state.doc);
    byId("invitation").hidden = !session.editable;
    byId("nothing").hidden = session.editable;
    view.dom.setAttribute("aria-readonly", String(!session.editable));
  };

  const signedIn = (): void => {
    untell();
    byId("opening").hidden = session.view !== null;
    session.renew();
  };

  const closed = (why: Closed, unsaved: number, text: string): void => {
    if (!session.view) {
      byId("opening").hidden = true;
      document.body.classList.add("read-only");
    }
    const copy = unsaved > 0 && text !== "" ? copyText(() => text) : null;
    const lost = unsaved > 0 ? " Your last edits were not saved; copy your text before you go on." : "";
    if (why === "history_trimmed" || why === BEGUN_ELSEWHERE) {
      // This copy builds on history that the server does not have: begin with a new one.
      panel.toggle(false);
      session.close();
      document.body.classList.remove("ready", "read-only");
      byId("opening").hidden = false;
      void session.forget().then(() => { session = start(); });
      if (copy && why === "history_trimmed") tell(why, "This document was reloaded.", `The server dropped the history that your copy builds on.${lost}`, copy);
      return;
    }
    const token = tokenProblem(why);
    if (token) {
      const denied = token.code === "permission-denied";
      const shown = byId("banner").dataset["code"];
      if (shown === token.code || (shown?.startsWith("token-") && !denied)) return; // somebody may be typing into it
      const title = denied ? "You may not open this document:" : "This document needs a token.";
      tell(token.code, title, `${token.sentence.charAt(0).toUpperCase()}${token.sentence.slice(1)}.${lost}`, copy, signInForm(signedIn));
      return;
    }
    if (why === "deleted") {
      const left = session.view ? "What you see is the copy of this browser; it can no longer be changed." : "There is nothing left of it here.";
      tell(why, "This document was deleted.", `${left}${lost}`, copy, newDocumentLink());
      return;
    }
    const again = button({ "data-testid": "retry" }, "Try again");
    again.addEventListener("click", () => {
      untell();
      byId("opening").hidden = session.view !== null;
      session.retry();
    });
    if (why === "not_found") {
      tell(why, "There is no such document,", `and you may not make one here.${lost}`, copy, again);
      return;
    }
    tell(why, session.view ? "The document cannot be synced:" : "The document cannot be opened:", `${reasonText(why)}.${lost}`, copy, again);
  };

  const refused = (mark: Mark): void => {
    const is = mark.state === "problem" && mark.waiting > 0 && byId("banner").dataset["code"] !== "refused" && REFUSALS.has(mark.reason ?? "");
    if (mark.state === "saved" && byId("banner").dataset["code"] === "refused") untell();
    if (!is) return;
    const discard = button({ "data-testid": "discard" }, "Discard what is not saved");
    discard.addEventListener("click", () => {
      session.close();
      void session.forget().then(() => location.reload());
    });
    tell("refused", "Your last edits cannot be saved:", `${reasonText(mark.reason)}. Copy your text before you go on.`, copyText(() => session.text()), discard);
  };

  let session = start(isNew);
  addEventListener("hashchange", () => void signInByAddress().then((signed) => { if (signed?.problem === "") signedIn(); }));
  setUpName(own.name, (name) => session.rename(name));
  byId("history-toggle").addEventListener("click", () => panel.toggle());
  byId("copy-link").addEventListener("click", () => {
    session.connect();
    void copyLink();
  });
  byId("paper").addEventListener("click", (event) => {
    if (event.target === event.currentTarget) session.view?.focus();
  });
  addEventListener("beforeunload", (event) => {
    session.keepNow();
    if (session.unsafe) event.preventDefault();
  });
  addEventListener("pagehide", () => {
    session.keepNow();
    session.presence.leave();
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) session.presence.back();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") session.keepNow();
    else session.presence.renew();
  });
}

/** While the server is away others may be gone: they do not look present. */
function showAway({ state, reason }: Mark): void {
  const away = state === "offline" || (state === "problem" && !REFUSALS.has(reason ?? ""));
  document.body.classList.toggle("away", away);
  byId("others").title = away ? "Who was here when the connection broke" : "";
}

/** The editor shows one root of a document; the others are named, so that nobody takes it for empty. */
function showOtherRoots(id: string, roots: readonly string[]): void {
  const element = byId("other-roots");
  const key = roots.join("\n");
  element.hidden = roots.length === 0;
  if (element.dataset["roots"] === key) return;
  element.dataset["roots"] = key;
  const names = roots.slice(0, ROOTS_MAX).map((name) => cut(name, ROOT_NAME_MAX));
  const more = roots.length > ROOTS_MAX ? ` and ${roots.length - ROOTS_MAX} more` : "";
  element.replaceChildren(
    `This document also holds: ${names.join(", ")}${more}. The editor shows and changes only its own part, `, h("code", {}, "doc"), ". ",
    h("a", { href: `/v1/documents/${id}` }, "All of it as JSON"),
  );
}

function cut(text: string, max: number): string {
  const letters = [...text];
  return letters.length > max ? `${letters.slice(0, max - 1).join("")}…` : text;
}

async function copyLink(): Promise<void> {
  const label = byId("copy-link-text");
  const copied = await toClipboard(location.href);
  label.textContent = copied ? "Copied" : "Copy the address above";
  byId("announce").textContent = copied ? "Link copied." : "The browser does not allow copying. Copy the address.";
  setTimeout(() => { label.textContent = "Copy link"; }, 2_000);
}

/** `navigator.clipboard` needs https or localhost; a plain address on a network has the old way only. */
async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "visually-hidden", readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

function copyText(text: () => string): HTMLButtonElement {
  const element = button({ "data-testid": "copy-text" }, "Copy my text");
  element.addEventListener("click", () => void toClipboard(text()).then((copied) => {
    element.textContent = copied ? "Copied" : "Could not copy";
  }));
  return element;
}

function newDocumentLink(): HTMLAnchorElement {
  return h("a", { class: "button", href: "/" }, "New document");
}

function tell(code: string, title: string, text: string, ...actions: (HTMLElement | null)[]): void {
  const banner = byId("banner");
  banner.dataset["code"] = code;
  banner.hidden = false;
  banner.replaceChildren(
    h("p", {}, h("strong", {}, title), " ", text),
    h("div", { class: "actions" }, ...actions),
  );
}

function untell(): void {
  byId("banner").hidden = true;
  delete byId("banner").dataset["code"];
}

void main();
