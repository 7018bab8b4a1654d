/** The demo page: each URL is a document that all its visitors edit together. */

import "../common/theme.css";
import "./demo.css";
import { button, byId, h, icon } from "../common/dom";
import { signInByAddress, signInForm, signOut, signedInAs } from "../common/sign-in";
import { themeSwitch } from "../common/theme";
import { LAST_KEY, lastOwner, ownerOf, whoIsIt, type Who } from "../common/who";
import { plainly, sentence } from "../common/words";
import { isEmpty } from "./editor";
import { createHistoryPanel } from "./history-panel";
import { idOfPath, pathOf, newDocumentId } from "./id";
import { tokenProblem, type Closed } from "./link";
import { reasonText, showMark } from "./mark";
import { offer } from "./offer";
import { setUpName, showPeople } from "./people";
import { identity } from "./presence";
import { REFUSALS, type Mark } from "./saved";
import { BEGUN_ELSEWHERE, Session, type Person } from "./session";
import { createToolbar } from "./toolbar";

const ROOTS_MAX = 8;
const ROOT_NAME_MAX = 40;
const AGAIN_MS = 2_000;
/** Another user than the writer of these edits is signed in. */
const ANOTHER_USER = "somebody_else";

const random = (): number => (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) / 2 ** 32;
const socketUrl = (): string => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;

async function main(): Promise<void> {
  byId("tools").append(themeSwitch());
  byId("copy-link").prepend(icon("link"));
  byId("history-toggle").prepend(icon("clock"));
  byId("history-close").append(icon("close"));
  byId("new-document").append(icon("plus"));
  byId("to-dashboard").append(icon("gauge"));

  const { problem } = await signInByAddress();
  const id = idOfPath(location.pathname);
  if (id === undefined) {
    showBanner("bad-id", "This address is not a document.", "A document id has 1 to 128 letters, digits, _, - or =.", newDocumentLink());
    byId("opening").hidden = true;
    return;
  }
  const who = await signedIn(problem);
  if (who.is !== "anonymous" && problem !== "") showBanner("link", "", problem, dismiss());
  if (id !== null) return open(id, false, who);
  const { named, fresh } = who.is === "subject" ? offer(who.documents, random) : { named: [], fresh: newDocumentId(random) };
  if (named.length === 0 && fresh !== null) return open(fresh, true, who);
  showWho(who, async () => undefined);
  byId("opening").hidden = true;
  document.body.classList.add("no-document");
  const text = named.length > 0 ? "Your token names these documents:" : "Your token names no document; open one by its address.";
  const links = [...named, ...(fresh === null ? [] : [fresh])].map((one) => h("a", { class: "button", href: pathOf(one), "data-testid": "offered" }, one === fresh ? "New document" : one));
  showBanner("choose", "Which document?", text, ...links);
}

/** The signed-in user; shows the sign-in form first if there is none, without any document. */
async function signedIn(problem: string): Promise<Who> {
  for (;;) {
    const who = await whoIsIt();
    if (who.is === "unknown" && lastOwner() === null) {
      showBanner("unreachable", "The gateway cannot be reached.", "Trying again.");
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    } else if (who.is === "anonymous") {
      byId("opening").hidden = true;
      document.body.classList.add("no-document");
      showMark({ state: "problem", waiting: 0, reason: `${who.code}: ${who.detail}`, readOnly: true });
      const { title, text } = tokenWords(who.code, who.detail);
      await new Promise<void>((resolve) => showBanner(who.code, title, problem === "" ? text : problem, signInForm(() => resolve())));
      hideBanner();
      problem = "";
      document.body.classList.remove("no-document");
      byId("opening").hidden = false;
    } else {
      if (byId("banner").dataset["code"] === "unreachable") hideBanner();
      return who;
    }
  }
}

function tokenWords(code: string, detail: string): { readonly title: string; readonly text: string } {
  const title = code === "permission-denied" ? "You may not open this document:" : code === "token-missing" ? "This document needs a token." : "Please sign in again:";
  return { title, text: sentence(plainly(code, detail)) };
}

/** `keep` stores unsaved edits before the user signs out. */
function showWho(who: Who, keep: () => Promise<void>): void {
  byId("who").replaceChildren(signedInAs(who, () => void keep().then(signOut).then((done) => {
    if (done) location.reload();
    else showBanner("sign-out", "You are still signed in:", "the gateway cannot be reached.", dismiss());
  })));
}

/** `seen` is called with the user after every check that finds the same one. */
function personOf(who: Who, seen: (now: Who) => void): Person {
  const owner = ownerOf(who) ?? lastOwner() ?? "";
  return {
    owner,
    trusted: who.is !== "subject",
    ours: async () => {
      const now = await whoIsIt();
      if (now.is === "unknown") throw new Error("the signed-in user is unknown");
      if (now.is === "anonymous") return `${now.code}: ${now.detail}`;
      if (ownerOf(now) !== owner) return ANOTHER_USER;
      seen(now);
      return "";
    },
  };
}

/** A new document gets its address, and is created, with the first edit or when its link is copied. */
function open(id: string, isNew: boolean, who: Who): void {
  document.title = `${id} · lorogo`;
  byId("document-id").textContent = id;
  let own = identity();
  const person = personOf(who, (now) => showWho(now, () => session.keepNow()));
  const toolbar = createToolbar(byId("toolbar"), () => session.view);
  const panel = createHistoryPanel({
    doc: () => session.doc,
    nameOf: (peer) => session.nameOf(peer),
    restore: (past) => {
      session.restore(past);
      session.view?.focus();
      byId("announce").textContent = "The older version is restored, as a new edit.";
    },
    mayEdit: () => session.editable,
    opened: (opened) => {
      byId("history-toggle").setAttribute("aria-expanded", String(opened));
      document.body.classList.toggle("in-history", opened);
      if (!opened) byId("history-toggle").focus();
    },
  });

  const start = (asNew = false): Session => {
    const made: Session = new Session(socketUrl(), id, person, own, {
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
        if (byId("banner").dataset["code"] === "not_found") hideBanner();
        byId("history-toggle").removeAttribute("disabled");
        document.body.classList.add("ready");
        showText(view);
        if (isEmpty(view.state.doc)) view.focus();
      },
      edited: (view) => showText(view),
      others: (roots) => showOtherRoots(id, roots),
      begun: () => {
        if (!hasAddress()) history.replaceState(null, "", `${pathOf(id)}${location.search}${location.hash}`);
        showInvitation();
      },
      closed: (why, unsaved, text) => closed(why, unsaved, text),
    });
    showPeople(made.presence.people());
    void made.start(asNew);
    return made;
  };

  const hasAddress = (): boolean => location.pathname === pathOf(id);
  const showInvitation = (): void => {
    byId("invite").textContent = hasAddress()
      ? "Open this address in a second window, or send it to someone: you will see each other type."
      : "The first letter gives this document its address. Send the link to someone: you will see each other type.";
  };

  const showText = (view: NonNullable<Session["view"]>): void => {
    toolbar.show(view, session.editable);
    document.body.classList.toggle("read-only", !session.editable);
    byId("empty").hidden = !isEmpty(view.state.doc);
    byId("invitation").hidden = !session.editable;
    showInvitation();
    byId("nothing").hidden = session.editable;
    view.dom.setAttribute("aria-readonly", String(!session.editable));
  };

  /** Restart for another user with their own copies; unsaved edits stay with their writer. */
  const beginAnew = (): void => void session.keepNow().then(() => location.reload());

  const cameBack = (now: Who): void => {
    if (gone || ownerOf(now) !== person.owner) return beginAnew();
    hideBanner();
    byId("opening").hidden = session.view !== null;
    session.renew();
  };

  /** Hide the document; unsaved edits are kept for their writer. */
  const leave = (): void => {
    gone = true;
    void session.keepNow();
    panel.toggle(false);
    session.close();
    document.body.classList.remove("ready");
    document.body.classList.add("read-only");
    byId("history-toggle").setAttribute("disabled", "");
    for (const name of ["opening", "empty", "other-roots"]) byId(name).hidden = true;
  };

  const closed = (why: Closed, unsaved: number, text: string): void => {
    if (!session.view) {
      byId("opening").hidden = true;
      document.body.classList.add("read-only");
    }
    const copy = unsaved > 0 && text !== "" ? copyText(() => text) : null;
    const lost = unsaved > 0 ? " Your last edits were not saved; copy your text before you go on." : "";
    if (why === "history_trimmed" || why === BEGUN_ELSEWHERE) {
      // This copy builds on history that the server does not have: start with a new one.
      panel.toggle(false);
      session.close();
      document.body.classList.remove("ready", "read-only");
      byId("opening").hidden = false;
      void session.forget().then(() => { session = start(); });
      if (copy && why === "history_trimmed") showBanner(why, "This document was reloaded.", `The server dropped the history that your copy builds on.${lost}`, copy);
      return;
    }
    if (why === ANOTHER_USER) return beginAnew();
    const token = tokenProblem(why);
    if (token) {
      const denied = token.code === "permission-denied";
      if (denied) leave();
      const shown = byId("banner").dataset["code"];
      if (shown === token.code || (shown?.startsWith("token-") && !denied)) return; // the user may be typing into it
      const words = tokenWords(token.code, token.sentence);
      showBanner(token.code, words.title, `${words.text}${lost}`, copy, signInForm(cameBack));
      return;
    }
    if (why === "deleted") {
      const left = session.view ? "What you see is the copy of this browser; it can no longer be changed." : "This browser has no copy of it.";
      showBanner(why, "This document was deleted.", `${left}${lost}`, copy, newDocumentLink());
      return;
    }
    const again = button({ "data-testid": "retry" }, "Try again");
    again.addEventListener("click", () => {
      hideBanner();
      byId("opening").hidden = session.view !== null;
      session.retry();
    });
    if (why === "not_found") {
      showBanner(why, "This document does not exist,", `and you may not create it.${lost}`, copy, again);
      return;
    }
    showBanner(why, session.view ? "The document cannot be synced:" : "The document cannot be opened:", `${reasonText(why)}.${lost}`, copy, again);
  };

  const refused = (mark: Mark): void => {
    const is = mark.state === "problem" && mark.waiting > 0 && byId("banner").dataset["code"] !== "refused" && REFUSALS.has(mark.reason ?? "");
    if (mark.state === "saved" && byId("banner").dataset["code"] === "refused") hideBanner();
    if (!is) return;
    const discard = button({ "data-testid": "discard" }, "Discard what is not saved");
    discard.addEventListener("click", () => {
      session.close();
      void session.forget().then(() => location.reload());
    });
    showBanner("refused", "Your last edits cannot be saved:", `${reasonText(mark.reason)}. Copy your text before you go on.`, copyText(() => session.text()), discard);
  };

  let gone = false;
  let session = start(isNew);
  showWho(who, () => session.keepNow());
  const lookAgain = (): void => void whoIsIt().then((now) => {
    if (now.is !== "unknown" && ownerOf(now) !== person.owner) beginAnew();
  });
  addEventListener("storage", (event) => {
    if (event.key === LAST_KEY) lookAgain(); // another tab signed in or out
  });
  addEventListener("hashchange", () => void signInByAddress().then(async ({ changed, problem }) => {
    if (changed) cameBack(await whoIsIt());
    else if (problem !== "") showBanner("link", "", problem, dismiss());
  }));
  setUpName(() => session.presence.identity.name, (name) => {
    own = { ...own, name, given: false };
    session.rename(name);
  });
  byId("history-toggle").addEventListener("click", () => panel.toggle());
  byId("copy-link").addEventListener("click", () => {
    session.connect();
    void copyLink();
  });
  byId("paper").addEventListener("click", (event) => {
    if (event.target === event.currentTarget) session.view?.focus();
  });
  addEventListener("beforeunload", (event) => {
    void session.keepNow();
    if (session.unsafe) event.preventDefault();
  });
  addEventListener("pagehide", () => {
    void session.keepNow();
    session.presence.leave();
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) session.presence.back();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") void session.keepNow();
    else session.presence.renew();
  });
}

/** While the server is away others may be gone: they do not look present. */
function showAway({ state, reason }: Mark): void {
  const away = state === "offline" || (state === "problem" && !REFUSALS.has(reason ?? ""));
  document.body.classList.toggle("away", away);
  byId("others").title = away ? "People here before the connection was lost" : "";
}

/** The editor shows one root of a document; name the others, so that it does not look empty. */
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

/** `navigator.clipboard` needs https or localhost; elsewhere use the deprecated API. */
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

function dismiss(): HTMLButtonElement {
  const element = button({ "data-testid": "dismiss" }, "Close");
  element.addEventListener("click", hideBanner);
  return element;
}

function newDocumentLink(): HTMLAnchorElement {
  return h("a", { class: "button", href: "/" }, "New document");
}

function showBanner(code: string, title: string, text: string, ...actions: (HTMLElement | null)[]): void {
  const banner = byId("banner");
  banner.dataset["code"] = code;
  banner.hidden = false;
  banner.replaceChildren(
    h("p", {}, h("strong", {}, title), " ", text),
    h("div", { class: "actions" }, ...actions),
  );
}

function hideBanner(): void {
  byId("banner").hidden = true;
  delete byId("banner").dataset["code"];
}

void main();
