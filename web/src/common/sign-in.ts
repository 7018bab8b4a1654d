/**
 * Signing in with a token: it becomes a cookie that no script can read, ours included.
 *
 * A link may bring one behind its #, which browsers send to nobody: it is taken out of the address at once.
 */

import { button, h } from "./dom";
import { DEADLINE_MS, SESSION_PATH, lastOwner, ownerOf, remember, whoIsIt, whoOf, type Owner, type Who } from "./who";
import { sentence, shownName } from "./words";

const NOT_LOOKED_AT = "a token in the address is not looked at, as addresses end up in logs: take it for lost, get a new one, and put that behind a # or into the form";
const TOKEN = /(?:^#|&)token=([^&]*)/;

/** The token in the part of an address behind the #, and that part without it. */
export function tokenIn(hash: string): { readonly token: string; readonly rest: string } {
  const found = TOKEN.exec(hash);
  if (!found) return { token: "", rest: hash };
  const left = hash.slice(1).split("&").filter((part) => !part.startsWith("token=")).join("&");
  let token = found[1] ?? "";
  try {
    token = decodeURIComponent(token);
  } catch {
    // not an encoding: as it is
  }
  return { token: token.trim(), rest: left === "" ? "" : `#${left}` };
}

/** The query of an address without the tokens in it. */
export function withoutToken(search: string): string {
  const kept = search.replace(/^\?/, "").split("&").filter((part) => !/^token(=|$)/i.test(part)).join("&");
  return kept === "" ? "" : `?${kept}`;
}

/** Whose token it says that it is. Nobody has verified it. */
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

/** What to ask before a link's token takes the place of whoever is here; "" if it would not. */
export function question(token: string, here: Owner | null): string {
  const subject = subjectIn(token);
  if (here === null || here === "" || here === ownerOf({ is: "subject", subject: subject ?? "", documents: {} })) return "";
  return `Open as ${subject === null ? "somebody else" : shownName(subject)} instead of ${shownName(here.replace(/^as /, ""))}?`;
}

/** Why the gateway says no, if it does: `problem` says it, without a dot. */
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
    return { problem: typeof detail === "string" ? detail : `the gateway answered ${response.status}`, who };
  } catch {
    return { problem: "the gateway cannot be reached", who: { is: "unknown" } };
  }
}

/** False if the gateway did not hear it: then the cookie is still there. */
export async function signOut(): Promise<boolean> {
  try {
    const response = await fetch(SESSION_PATH, { method: "DELETE", cache: "no-store", signal: AbortSignal.timeout(DEADLINE_MS) });
    if (response.ok) remember(null);
    return response.ok;
  } catch {
    return false;
  }
}

/** What came of the tokens in the address; `problem` is a sentence. */
export interface Arrival {
  readonly changed: boolean;
  readonly problem: string;
}

/** Sign in with the token of the address, if there is one; it is gone from the address and the history then. */
export async function signInByAddress(): Promise<Arrival> {
  const { token, rest } = tokenIn(location.hash);
  const search = withoutToken(location.search);
  const lost = search !== location.search ? sentence(NOT_LOOKED_AT) : "";
  if (rest !== location.hash || lost !== "") history.replaceState(history.state, "", `${location.pathname}${search}${rest}`);
  if (token === "") return { changed: false, problem: lost };
  const here = await whoIsIt();
  const asked = question(token, here.is === "unknown" ? lastOwner() : ownerOf(here));
  if (asked !== "" && !confirm(asked)) return { changed: false, problem: lost };
  const { problem } = await signIn(token);
  return { changed: problem === "", problem: problem === "" ? lost : `The link does not let you in: ${problem}.` };
}

/** Who is signed in, and the way out; empty where nobody is. */
export function signedInAs(who: Who, out: () => void): HTMLElement {
  if (who.is !== "subject") return h("span", { hidden: true });
  const name = shownName(who.subject);
  const leave = button({ class: "button quiet", "data-testid": "sign-out" }, "Sign out");
  leave.addEventListener("click", out);
  return h("span", { class: "signed-in", "data-testid": "signed-in" }, h("span", { class: "name", title: `Signed in as ${name}` }, name), leave);
}

/** The small form: paste a token. `done` is called once the gateway has taken it. */
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
