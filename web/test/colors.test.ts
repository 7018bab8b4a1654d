import assert from "node:assert/strict";
import { test } from "node:test";
import { COLORS, settledColor, type Claim } from "../src/demo/colors";

const claim = (peer: string, color: string, since = 0): Claim => ({ peer, color, since });
const [first, second, third] = COLORS;

const table: [string, Claim, Claim[], string][] = [
  ["alone one keeps one's colour", claim("1", first), [], first],
  ["another colour beside it changes nothing", claim("2", first, 9), [claim("1", second)], first],
  ["who came later yields", claim("1", first, 2), [claim("2", first, 1)], second],
  ["who came earlier stays", claim("1", first, 1), [claim("2", first, 2)], first],
  ["of two who came at once the greater peer yields", claim("10", first, 1), [claim("9", first, 1)], second],
  ["of two who came at once the smaller peer stays", claim("9", first, 1), [claim("10", first, 1)], first],
  ["a colour that others have is passed over", claim("3", first, 3), [claim("1", first), claim("2", second)], third],
  ["capitals are no other colour", claim("2", first.toUpperCase(), 2), [claim("1", first)], second],
  ["a colour of another program is nothing to us", claim("2", "#123456", 2), [claim("1", "#123456")], first],
  ["where all are taken once, it stays", claim("9", first, 9), COLORS.map((color, at) => claim(String(at), color)), first],
  ["where ours is taken more often, the next is shared",
    claim("99", first, 9), [...COLORS.map((color, at) => claim(String(at), color)), claim("8", first)], second],
];
for (const [name, own, others, expected] of table) {
  test(name, () => assert.equal(settledColor(own, others), expected));
}

for (const many of [2, 5, 8, 20]) {
  test(`${many} who came with one colour, in any order of news, come to rest with as many colours as there are`, () => {
    let people = Array.from({ length: many }, (_, at) => claim(String(at), first, at % 3));
    for (let round = 0; round < 200; round += 1) {
      const at = (round * 7) % many;
      people = people.map((one, index) => index === at
        ? { ...one, color: settledColor(one, people.filter((other) => other !== one)) } : one);
    }
    const rest = people.map((one) => settledColor(one, people.filter((other) => other !== one)));
    assert.deepEqual(rest, people.map(({ color }) => color));
    assert.equal(new Set(rest).size, Math.min(many, COLORS.length));
  });
}
