// Health lines of a server that need attention: `lorogo status` writes problems in capitals.

const WELL = /^(journal and stream compared|comparing journal and stream|archive (up to date|open)$|journal copied by (?!no server)|repaired )/;

export function isTrouble(fact: string): boolean {
  return !WELL.test(fact);
}
