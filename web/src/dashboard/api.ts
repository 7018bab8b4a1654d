// Requests to the gateway. Each has a deadline; each error message is a sentence.

const DEADLINE_MS = 10_000;

/** The gateway responded with an error. */
export class Refusal extends Error {
  constructor(readonly status: number, readonly code: string, detail: string) {
    super(detail);
    this.name = "Refusal";
  }
}

/** No response, no response in time, or one that is not JSON. */
export class NoAnswer extends Error {
  override readonly name = "NoAnswer";
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
    throw new NoAnswer(reasonOf(error));
  }
  if (response.ok) return body;
  const problem = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  const detail = String(problem["detail"] ?? problem["title"] ?? `the gateway responded with ${response.status}`);
  throw new Refusal(response.status, String(problem["code"] ?? ""), detail);
}

function reasonOf(error: unknown): string {
  if (error instanceof DOMException && error.name === "TimeoutError") {
    return `no answer in ${DEADLINE_MS / 1000} s`;
  }
  if (error instanceof SyntaxError) return "the answer is not JSON";
  return "the gateway cannot be reached";
}
