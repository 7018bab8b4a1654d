// Parsing and formatting of routes in the URL fragment.

export type Route =
  | { view: "overview" }
  | { view: "documents"; prefix: string; after: string }
  | { view: "document"; id: string }
  | { view: "servers" }
  | { view: "rejected" }
  | { view: "errors" };

export type View = Route["view"];

/** The route of a fragment; null if it is unknown. An empty one is the overview. */
export function parseRoute(hash: string): Route | null {
  const text = hash.replace(/^#/, "");
  if (text === "" || text === "/") return { view: "overview" };
  const [path = "", query = ""] = splitOnce(text, "?");
  const parts = path.split("/");
  if (parts[0] !== "" || parts.length > 3) return null;
  const [, name, rest] = parts;
  if (rest !== undefined && rest !== "") {
    const id = name === "documents" ? decoded(rest) : null;
    return id === null ? null : { view: "document", id };
  }
  switch (name) {
    case "documents": {
      const asked = new URLSearchParams(query);
      return { view: "documents", prefix: asked.get("prefix") ?? "", after: asked.get("after") ?? "" };
    }
    case "overview":
    case "servers":
    case "rejected":
    case "errors":
      return { view: name };
    default:
      return null;
  }
}

export function formatRoute(route: Route): string {
  if (route.view === "document") return `#/documents/${encodeURIComponent(route.id)}`;
  if (route.view !== "documents") return `#/${route.view}`;
  const asked = new URLSearchParams();
  if (route.prefix !== "") asked.set("prefix", route.prefix);
  if (route.after !== "") asked.set("after", route.after);
  const query = asked.toString();
  return query === "" ? "#/documents" : `#/documents?${query}`;
}

function splitOnce(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null; // an incomplete escape
  }
}
