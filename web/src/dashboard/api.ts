// Questions to the gateway. Every one has a deadline; every problem is a sentence.

const DEADLINE_MS = 10_000;

/** The gateway answered, and the answer is no. */
export class Refusal extends Error {
  constructor(readonly status: number, readonly code: string, detail: string) {
    super(detail);
    this.name = "Refusal";
  }
}

/** Nobody answered, or not in time, or not in JSON. */
export class Unheard extends Error {
  override readonly name = "Unheard";
}

export function get(path: string, signal: AbortSignal): Promise<unknown> {
  return ask("GET", path, signal);
}

export function post(path: string, signal: AbortSignal): Promise<unknown> {
  return ask("POST", path, signal);
}

export function documentPath(id: string, rest: "status" | "history" | "sizes" | "reset"): string {
  return `/v1/documents/${encodeURIComponent(id)}/${rest}`;
}

async function ask(method: string, path: string, signal: AbortSignal): Promise<unknown> {
  const within = AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]);
  let response: Response;
  let body: unknown;
  try {
    response = await fetch(path, { method, signal: within, headers: { Accept: "application/json" }, cache: "no-store" });
    const text = await response.text();
    body = text === "" ? null : JSON.parse(text);
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Unheard(unheard(error));
  }
  if (response.ok) return body;
  const problem = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  const detail = String(problem["detail"] ?? problem["title"] ?? `the gateway answered ${response.status}`);
  throw new Refusal(response.status, String(problem["code"] ?? ""), detail);
}

function unheard(error: unknown): string {
  if (error instanceof DOMException && error.name === "TimeoutError") {
    return `no answer in ${DEADLINE_MS / 1000} s`;
  }
  if (error instanceof SyntaxError) return "the answer is not JSON";
  return "the gateway cannot be reached";
}
