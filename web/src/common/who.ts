/** The signed-in user as reported by the gateway, and the owner of copies in this browser. */

export const SESSION_PATH = "/v1/session";
export const DEADLINE_MS = 10_000;
/** The key of the last owner, used while the gateway is unreachable. Other tabs get an event when it changes. */
export const LAST_KEY = "lorogo.owner";

export type Who =
  /** The gateway requires no tokens: all users are the same. */
  | { readonly is: "open" }
  | { readonly is: "subject"; readonly subject: string; readonly documents: Readonly<Record<string, string>> }
  | { readonly is: "anonymous"; readonly code: string; readonly detail: string }
  /** The gateway is unreachable or cannot verify tokens now. */
  | { readonly is: "unknown" };

/** The owner of copies: "" where no sign-in is required. */
export type Owner = string;

export function ownerOf(who: Who): Owner | null {
  if (who.is === "open") return "";
  return who.is === "subject" ? `as ${who.subject}` : null;
}

/** Parse a response of `/v1/session`. A malformed one never counts as "open". */
export function whoOf(status: number, body: unknown): Who {
  const facts = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  if (status === 401) {
    const code = String(facts["code"] ?? "token-missing");
    return { is: "anonymous", code, detail: String(facts["detail"] ?? "the gateway refused the token") };
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

/** The last signed-in owner; null after signing out. */
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
    // storage is blocked: no copy is shown while the gateway is unreachable
  }
}
