/**
 * Signing in with a token: it becomes a cookie that no script can read, ours included.
 *
 * A link may bring one behind its #, which browsers send to nobody: it is taken out of the address at once.
 */

import { h } from "./dom";

const PATH = "/v1/session";
const DEADLINE_MS = 10_000;
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

/** Why the gateway says no, if it does: `problem` is a sentence. */
export interface Signed { readonly problem: string }

export async function signIn(token: string): Promise<Signed> {
  try {
    const response = await fetch(PATH, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify({ token }),
      cache: "no-store",
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    if (response.ok) return { problem: "" };
    const body: unknown = await response.json().catch(() => null);
    const detail = typeof body === "object" && body !== null ? (body as Record<string, unknown>)["detail"] : null;
    return { problem: typeof detail === "string" ? detail : `the gateway answered ${response.status}` };
  } catch {
    return { problem: "the gateway cannot be reached" };
  }
}

/** Sign in with the token of the address, if there is one; it is gone from the address and the history then. */
export async function signInByAddress(): Promise<Signed | null> {
  const { token, rest } = tokenIn(location.hash);
  if (rest !== location.hash) history.replaceState(history.state, "", `${location.pathname}${location.search}${rest}`);
  return token === "" ? null : signIn(token);
}

/** The small form: paste a token. `done` is called once the gateway has taken it. */
export function signInForm(done: () => void): HTMLFormElement {
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
        done();
      } else {
        problem.textContent = `${signed.problem.charAt(0).toUpperCase()}${signed.problem.slice(1)}.`;
        field.setAttribute("aria-invalid", "true");
        field.focus();
      }
    });
  });
  return form;
}
