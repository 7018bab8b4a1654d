/**
 * Sign-in with a token, which is stored in a cookie that scripts cannot read.
 *
 * A link may carry a token in its fragment, which browsers do not send: it is removed from the URL at once.
 */

import { button, h } from "./dom";
import { DEADLINE_MS, SESSION_PATH, lastOwner, ownerOf, remember, whoIsIt, whoOf, type Owner, type Who } from "./who";
import { sentence, shownName } from "./words";

const TOKEN_IGNORED = "the token in the address was ignored, because addresses end up in logs: treat it as leaked, get a new one, and put it after a # or into the form";
const TOKEN = /(?:^#|&)token=([^&]*)/;

/** The token in a URL fragment, and the fragment without it. */
export function tokenIn(hash: string): { readonly token: string; readonly rest: string } {
  const found = TOKEN.exec(hash);
  if (!found) return { token: "", rest: hash };
  const left = hash.slice(1).split("&").filter((part) => !part.startsWith("token=")).join("&");
  let token = found[1] ?? "";
  try {
    token = decodeURIComponent(token);
  } catch {
    // not percent-encoded: use it unchanged
  }
  return { token: token.trim(), rest: left === "" ? "" : `#${left}` };
}

/** The query of a URL without tokens. */
export function withoutToken(search: string): string {
  const kept = search.replace(/^\?/, "").split("&").filter((part) => !/^token(=|$)/i.test(part)).join("&");
  return kept === "" ? "" : `?${kept}`;
}

/** The subject in a token, not verified. */
export function subjectIn(token: string): string | null {
  try {
    const payload = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(payload), (letter) => letter.charCodeAt(0));
    const { sub } = JSON.parse(new TextDecoder().decode(bytes)) as { sub?: unknown };
    return typeof sub === "string" ? sub : null;
  } catch {
    return null;
  }
}

/** The confirmation before a link's token replaces another user; "" if none is needed. */
export function question(token: string, here: Owner | null): string {
  const subject = subjectIn(token);
  if (here === null || here === "" || here === ownerOf({ is: "subject", subject: subject ?? "", documents: {} })) return "";
  return `Open as ${subject === null ? "another user" : shownName(subject)} instead of ${shownName(here.replace(/^as /, ""))}?`;
}

/** The result of a sign-in; `problem` is the reason of a refusal without a full stop, or "". */
export interface Signed {
  readonly problem: string;
  readonly who: Who;
}

export async function signIn(token: string): Promise<Signed> {
  try {
    const response = await fetch(SESSION_PATH, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify({ token }),
      cache: "no-store",
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    const body: unknown = await response.json().catch(() => null);
    const who = whoOf(response.status, body);
    if (response.ok) {
      remember(ownerOf(who));
      return { problem: "", who };
    }
    const detail = typeof body === "object" && body !== null ? (body as Record<string, unknown>)["detail"] : null;
    return { problem: typeof detail === "string" ? detail : `the gateway responded with ${response.status}`, who };
  } catch {
    return { problem: "the gateway cannot be reached", who: { is: "unknown" } };
  }
}

/** Returns false if the gateway cannot be reached: then the cookie remains. */
export async function signOut(): Promise<boolean> {
  try {
    const response = await fetch(SESSION_PATH, { method: "DELETE", cache: "no-store", signal: AbortSignal.timeout(DEADLINE_MS) });
    if (response.ok) remember(null);
    return response.ok;
  } catch {
    return false;
  }
}

/** The result of a sign-in by URL; `problem` is a sentence. */
export interface Arrival {
  readonly changed: boolean;
  readonly problem: string;
}

/** Sign in with the token in the URL, if any, and remove it from the URL and the browser history. */
export async function signInByAddress(): Promise<Arrival> {
  const { token, rest } = tokenIn(location.hash);
  const search = withoutToken(location.search);
  const lost = search !== location.search ? sentence(TOKEN_IGNORED) : "";
  if (rest !== location.hash || lost !== "") history.replaceState(history.state, "", `${location.pathname}${search}${rest}`);
  if (token === "") return { changed: false, problem: lost };
  const here = await whoIsIt();
  const asked = question(token, here.is === "unknown" ? lastOwner() : ownerOf(here));
  if (asked !== "" && !confirm(asked)) return { changed: false, problem: lost };
  const { problem } = await signIn(token);
  const refused = problem === "" ? "" : `The link's token was refused: ${problem}.`;
  return { changed: problem === "", problem: [refused, lost].filter((text) => text !== "").join(" ") };
}

/** The signed-in user with a sign-out button; hidden without one. */
export function signedInAs(who: Who, out: () => void): HTMLElement {
  if (who.is !== "subject") return h("span", { hidden: true });
  const name = shownName(who.subject);
  const leave = button({ class: "button quiet", title: `Signed in as ${name}`, "data-testid": "sign-out" }, "Sign out");
  leave.addEventListener("click", out);
  return h("span", { class: "signed-in", "data-testid": "signed-in" }, h("span", { class: "name", title: `Signed in as ${name}` }, name), leave);
}

/** A form for a token. `done` is called after the gateway has accepted it. */
export function signInForm(done: (who: Who) => void): HTMLFormElement {
  const field = h("input", {
    id: "token", name: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "token-problem", "data-testid": "token",
  });
  const send = h("button", { type: "submit", class: "button primary", "data-testid": "sign-in" }, "Sign in");
  const problem = h("p", { id: "token-problem", class: "problem", role: "alert", "data-testid": "token-problem" });
  const form = h("form", { class: "sign-in" }, h("label", { for: "token" }, "Paste a token"), field, send, problem);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send.disabled = true;
    problem.textContent = "";
    void signIn(field.value.trim()).then((signed) => {
      send.disabled = false;
      if (signed.problem === "") {
        field.value = "";
        done(signed.who);
      } else {
        problem.textContent = sentence(signed.problem);
        field.setAttribute("aria-invalid", "true");
        field.focus();
      }
    });
  });
  return form;
}
