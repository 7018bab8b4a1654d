// Which words about a server are a reason to look: `lorogo status` writes trouble in capitals.

const WELL = /^(journal and stream compared|comparing journal and stream|archive (up to date|open)$|journal copied by (?!nobody)|repaired )/;

export function isTrouble(fact: string): boolean {
  return !WELL.test(fact);
}
