/** Sentences for people, of what the gateway says to programs. */

const PLAIN: Readonly<Record<string, string>> = {
  "token-missing": "sign in with the one that you were given",
  "permission-denied": "your token does not allow it; sign in with one that does",
};

/** Why a token is not enough, without a dot. */
export function plainly(code: string, detail: string): string {
  return PLAIN[code] ?? detail;
}

export function sentence(text: string): string {
  return text === "" ? "" : `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.?!]$/.test(text) ? "" : "."}`;
}

const SHOWN_MAX = 64;

/** A name that somebody else chose, on one line. */
export function shownName(text: string): string {
  const letters = [...text.replace(/[\p{C}\p{Zl}\p{Zp}\s]+/gu, " ").trim()];
  return letters.length > SHOWN_MAX ? `${letters.slice(0, SHOWN_MAX - 1).join("")}…` : letters.join("");
}
