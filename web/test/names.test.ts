import assert from "node:assert/strict";
import { test } from "node:test";
import { ANIMALS, settledName, type NameClaim } from "../src/demo/names";

const given = (peer: string, name: string, since = 0): NameClaim => ({ peer, name, since, given: true });
const chosen = (peer: string, name: string, since = 0): NameClaim => ({ peer, name, since, given: false });
const [first, second, third] = ANIMALS;
const all = ANIMALS.map((name, at) => given(String(at), name));

const table: [string, NameClaim, NameClaim[], string][] = [
  ["a reader alone keeps the given name", given("1", first), [], first],
  ["another name beside it changes nothing", given("2", first, 9), [given("1", second)], first],
  ["the reader who came later yields", given("1", first, 2), [given("2", first, 1)], second],
  ["the reader who came earlier stays", given("1", first, 1), [given("2", first, 2)], first],
  ["of two who came at once the greater peer yields", given("10", first, 1), [given("9", first, 1)], second],
  ["a name that others have is passed over", given("3", first, 3), [given("1", first), given("2", second)], third],
  ["a chosen name stays beside the same name", chosen("2", first, 2), [given("1", first), chosen("3", first)], first],
  ["a given name yields to a chosen one that came later", given("1", first, 1), [chosen("2", first.toLowerCase(), 2)], second],
  ["behind the last animal comes the first", given("2", ANIMALS.at(-1)!, 2), [given("1", ANIMALS.at(-1)!)], first],
  ["when every animal is taken, names get a number", given("99", first, 9), all, `${second} 2`],
];
for (const [name, own, others, expected] of table) {
  test(name, () => assert.equal(settledName(own, others), expected));
}

for (const many of [2, 5, 60]) {
  test(`${many} readers who came with one given name come to rest with ${many} names`, () => {
    let people = Array.from({ length: many }, (_, at) => given(String(at), first, at % 3));
    for (let round = 0; round < many * 4; round += 1) {
      const at = (round * 7) % many;
      people = people.map((one, index) => index === at
        ? { ...one, name: settledName(one, people.filter((other) => other !== one)) } : one);
    }
    const rest = people.map((one) => settledName(one, people.filter((other) => other !== one)));
    assert.deepEqual(rest, people.map(({ name }) => name));
    assert.equal(new Set(rest).size, many);
  });
}
