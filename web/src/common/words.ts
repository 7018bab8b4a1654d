/** Messages for users, from error codes of the gateway. */

const PLAIN: Readonly<Record<string, string>> = {
  "token-missing": "sign in with your token",
  "permission-denied": "your token does not grant access; sign in with another one",
};

/** The reason why a token is refused, without a full stop. */
export function plainly(code: string, detail: string): string {
  return PLAIN[code] ?? detail;
}

export function sentence(text: string): string {
  return text === "" ? "" : `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.?!]$/.test(text) ? "" : "."}`;
}

const SHOWN_MAX = 64;

/** An untrusted name on one line. */
export function shownName(text: string): string {
  const letters = [...text.replace(/[\p{C}\p{Zl}\p{Zp}\s]+/gu, " ").trim()];
  return letters.length > SHOWN_MAX ? `${letters.slice(0, SHOWN_MAX - 1).join("")}…` : letters.join("");
}
