/** Default names of users who chose none: distinct within a document. */

import { isEarlier, type Arrival } from "./colors";

export const ANIMALS = [
  "Badger", "Bear", "Beaver", "Bison", "Camel", "Cat", "Condor", "Crane", "Deer", "Dolphin", "Eagle", "Falcon", "Ferret", "Finch", "Fox", "Gecko",
  "Goose", "Hare", "Hawk", "Heron", "Horse", "Ibis", "Koala", "Lark", "Lemur", "Lion", "Lynx", "Marten", "Mole", "Moose", "Newt", "Otter",
  "Owl", "Panda", "Puffin", "Raven", "Robin", "Salmon", "Seal", "Sparrow", "Stork", "Swan", "Tiger", "Turtle", "Walrus", "Whale", "Wolf", "Wren",
] as const;

export interface NameClaim extends Arrival {
  readonly name: string;
  /** A default name, not chosen by the user. */
  readonly given: boolean;
}

/**
 * The user's name beside those of others. A chosen name stays. A default name yields to the same name of a user who
 * chose it or joined earlier: then the next unused animal, with a number once all animals are used.
 */
export function settledName(own: NameClaim, others: readonly NameClaim[]): string {
  const taken = (name: string): boolean => others.some((other) => same(other.name, name));
  const yields = others.some((other) => same(other.name, own.name) && (!other.given || isEarlier(other, own)));
  if (!own.given || !yields) return own.name;
  const start = ANIMALS.findIndex((animal) => same(animal, own.name)) + 1;
  const turned = ANIMALS.map((_, at) => ANIMALS[(start + at) % ANIMALS.length] as string);
  for (let number = 1; ; number += 1) {
    const free = turned.map((animal) => (number === 1 ? animal : `${animal} ${number}`)).find((name) => !taken(name));
    if (free !== undefined) return free;
  }
}

function same(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase();
}
