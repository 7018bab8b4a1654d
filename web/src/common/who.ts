/** Who is signed in, by the gateway's word, and whose the things are that this browser keeps. */

export const SESSION_PATH = "/v1/session";
export const DEADLINE_MS = 10_000;
/** Where the last owner is remembered, for when the gateway is away. Other tabs hear when it changes. */
export const LAST_KEY = "lorogo.owner";

export type Who =
  /** No keys: everybody is the same. */
  | { readonly is: "open" }
  | { readonly is: "subject"; readonly subject: string; readonly documents: Readonly<Record<string, string>> }
  | { readonly is: "nobody"; readonly code: string; readonly detail: string }
  /** The gateway is away, or cannot tell now. */
  | { readonly is: "unknown" };

/** Whose copies are whose: "" where nobody signs in; null for nobody. */
export type Owner = string;

export function ownerOf(who: Who): Owner | null {
  if (who.is === "open") return "";
  return who.is === "subject" ? `as ${who.subject}` : null;
}

/** What an answer of `/v1/session` says. What cannot be read is never taken for "open". */
export function whoOf(status: number, body: unknown): Who {
  const facts = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  if (status === 401) {
    const code = String(facts["code"] ?? "token-missing");
    return { is: "nobody", code, detail: String(facts["detail"] ?? "the gateway knows no such token") };
  }
  if (status !== 200) return { is: "unknown" };
  if (facts["open"] === true) return { is: "open" };
  const { subject, documents } = facts;
  if (typeof subject !== "string" || subject === "") return { is: "unknown" };
  const granted = typeof documents === "object" && documents !== null ? Object.entries(documents) : [];
  return { is: "subject", subject, documents: Object.fromEntries(granted.map(([pattern, access]) => [pattern, String(access)])) };
}

export async function whoIsIt(): Promise<Who> {
  let who: Who;
  try {
    const response = await fetch(SESSION_PATH, { headers: { Accept: "application/json" }, cache: "no-store", signal: AbortSignal.timeout(DEADLINE_MS) });
    who = whoOf(response.status, await response.json().catch(() => null));
  } catch {
    return { is: "unknown" };
  }
  if (who.is !== "unknown") remember(ownerOf(who));
  return who;
}

/** The owner that was last seen here; null after signing out. */
export function lastOwner(): Owner | null {
  try {
    return localStorage.getItem(LAST_KEY);
  } catch {
    return null;
  }
}

export function remember(owner: Owner | null): void {
  try {
    if (owner === null) localStorage.removeItem(LAST_KEY);
    else if (localStorage.getItem(LAST_KEY) !== owner) localStorage.setItem(LAST_KEY, owner);
  } catch {
    // no store: nothing is shown while the gateway is away
  }
}
