import assert from "node:assert/strict";
import { test } from "node:test";
import { question, signIn, signInByAddress, signOut, subjectIn, tokenIn, withoutToken } from "../src/common/sign-in";
import { LAST_KEY, lastOwner, ownerOf, whoIsIt, whoOf } from "../src/common/who";
import { plainly, sentence, shownName } from "../src/common/words";

const table: [string, string, string][] = [
  ["", "", ""],
  ["#", "", "#"],
  ["#/overview", "", "#/overview"],
  ["#token=a.b.c", "a.b.c", ""],
  ["#token=", "", ""],
  ["#token=a%2Eb.c%20", "a.b.c", ""],
  ["#token=%zz", "%zz", ""],
  ["#/documents?x=1&token=a.b.c", "a.b.c", "#/documents?x=1"],
  ["#token=a.b.c&x=1", "a.b.c", "#x=1"],
  ["#token=a&token=b", "a", ""],
  ["#mytoken=a", "", "#mytoken=a"],
  ["#/documents/token=a", "", "#/documents/token=a"],
];

for (const [hash, token, rest] of table) {
  test(`behind the # of ${JSON.stringify(hash)} there is ${token === "" ? "no token" : "a token"}`, () => {
    assert.deepEqual(tokenIn(hash), { token, rest });
  });
}

/** A token with a subject, as far as a page can read it. */
const tokenOf = (sub: unknown): string => `e30.${Buffer.from(JSON.stringify({ sub })).toString("base64url")}.c2ln`;
const json = (status: number, body: unknown) => async (): Promise<Response> => new Response(JSON.stringify(body), { status });
const ANA = { open: false, subject: "ana", expires: null, documents: { plan: "write" }, operator: false };

interface World { readonly asked: string[]; readonly addresses: string[]; readonly kept: Map<string, string> }

/** A browser at this address, whose questions to the reader and to the gateway are answered so. */
function browser(address: string, answers: Record<string, () => Promise<Response>>, agrees = true): World {
  const { pathname, search, hash } = new URL(address, "http://here");
  const world: World = { asked: [], addresses: [], kept: new Map() };
  Object.assign(globalThis, {
    location: { pathname, search, hash },
    history: { state: null, replaceState: (_: unknown, __: string, to: string) => world.addresses.push(to) },
    confirm: (text: string) => (world.asked.push(text), agrees),
    fetch: (_: string, { method = "GET" }: RequestInit = {}) => {
      world.asked.push(method);
      return answers[method]?.() ?? Promise.reject(new TypeError("connection refused"));
    },
    localStorage: { getItem: (key: string) => world.kept.get(key) ?? null, setItem: (key: string, value: string) => world.kept.set(key, value), removeItem: (key: string) => world.kept.delete(key) },
  });
  return world;
}

test("only tokens are taken out of a query", () => {
  const queries = ["", "?", "?a=1", "?token=x", "?token", "?a=1&token=x&b=2", "?TOKEN=x", "?mytoken=x"];
  assert.deepEqual(queries.map(withoutToken), ["", "", "?a=1", "", "", "?a=1&b=2", "", "?mytoken=x"]);
});

test("a token's subject is read, whatever its letters; of anything else there is none", () => {
  assert.equal(subjectIn(tokenOf("Zoë ÿÿÿ 🦦")), "Zoë ÿÿÿ 🦦");
  for (const text of ["", "a", "a.b.c", "a.%.c", tokenOf(7), tokenOf(undefined), "a.bnVsbA.c"]) assert.equal(subjectIn(text), null, text);
});

test("the user confirms only if another user would be signed in", () => {
  assert.equal(question(tokenOf("ben"), "as ana"), "Open as ben instead of ana?");
  assert.equal(question("garbage", "as ana"), "Open as another user instead of ana?");
  for (const here of [null, "", "as ben"]) assert.equal(question(tokenOf("ben"), here), "");
});

test("an answer that cannot be read is never taken for an open gateway", () => {
  assert.deepEqual(whoOf(200, { open: true, subject: "" }), { is: "open" });
  assert.deepEqual(whoOf(200, ANA), { is: "subject", subject: "ana", documents: { plan: "write" } });
  assert.equal(whoOf(401, { code: "token-expired", detail: "over" }).is, "anonymous");
  for (const [status, body] of [[200, null], [200, "<html>"], [200, { open: "yes" }], [200, { open: false, subject: "" }], [404, {}], [429, {}], [503, { open: true }]] as const) {
    assert.deepEqual(whoOf(status, body), { is: "unknown" });
  }
});

test("no two subjects, and no subject and an open gateway, are one owner", () => {
  const owners = ["", "ana", "as ana", "open"].map((subject) => ownerOf({ is: "subject", subject, documents: {} }));
  assert.equal(new Set([...owners, ownerOf({ is: "open" })]).size, 5);
  assert.equal(ownerOf({ is: "anonymous", code: "", detail: "" }), null);
});

test("the last owner is remembered while the gateway is away, and forgotten with the session", async () => {
  const world = browser("/", { GET: json(200, ANA) });
  await whoIsIt();
  assert.equal(lastOwner(), "as ana");
  Object.assign(globalThis, { fetch: json(503, {}) });
  await whoIsIt();
  assert.equal(await signOut(), false);
  assert.equal(lastOwner(), "as ana");
  Object.assign(globalThis, { fetch: async () => new Response(null, { status: 204 }) });
  assert.equal(await signOut(), true);
  assert.equal(world.kept.has(LAST_KEY), false);
  Object.assign(globalThis, { fetch: json(200, ANA) });
  await whoIsIt();
  Object.assign(globalThis, { fetch: json(401, {}) });
  await whoIsIt();
  assert.equal(lastOwner(), null);
});

test("a link of another user needs a confirmation, and without it nothing changes", async () => {
  const world = browser(`/d/plan#token=${tokenOf("ben")}`, { GET: json(200, ANA) }, false);
  assert.deepEqual(await signInByAddress(), { changed: false, problem: "" });
  assert.deepEqual(world.asked, ["GET", "Open as ben instead of ana?"]);
  assert.deepEqual(world.addresses, ["/d/plan"]);
});

test("a link of the same user, or without a signed-in user, needs no confirmation", async () => {
  for (const answer of [json(200, ANA), json(401, {})]) {
    const world = browser(`/d/plan#token=${tokenOf("ana")}`, { GET: answer, POST: json(200, ANA) });
    assert.deepEqual(await signInByAddress(), { changed: true, problem: "" });
    assert.deepEqual(world.asked, ["GET", "POST"]);
  }
});

test("a refused token of a link is reported with the reason", async () => {
  browser(`/d/plan#token=${tokenOf("ana")}`, { GET: json(401, {}), POST: json(401, { code: "token-expired", detail: "the token expired 2 h ago: get a new one" }) });
  assert.deepEqual(await signInByAddress(), { changed: false, problem: "The link's token was refused: the token expired 2 h ago: get a new one." });
});

test("a token in the query is removed, sent nowhere, and reported", async () => {
  const both = browser(`/d/plan?token=x#token=${tokenOf("ana")}`, { GET: json(401, {}), POST: json(401, { detail: "it expired" }) });
  assert.match((await signInByAddress()).problem, /^The link's token was refused: it expired\. The token .* was ignored/);
  assert.deepEqual(both.addresses, ["/d/plan"]);
  const world = browser("/d/plan?a=1&token=x.y.z#/overview", {});
  const { changed, problem } = await signInByAddress();
  assert.equal(changed, false);
  assert.match(problem, /was ignored.*\.$/);
  assert.doesNotMatch(problem, /x\.y\.z/);
  assert.deepEqual([world.addresses, world.asked], [["/d/plan?a=1#/overview"], []]);
});

test("a gateway that does not answer is a problem, not an end", async () => {
  browser("/", {});
  assert.deepEqual(await signIn("a.b.c"), { problem: "the gateway cannot be reached", who: { is: "unknown" } });
});

test("messages to users mention neither headers nor patterns", () => {
  const texts = [plainly("token-missing", "this needs a token: Authorization: Bearer ..."), plainly("permission-denied", "this needs read on 'plan'")];
  for (const text of texts) assert.doesNotMatch(text, /Bearer|needs/);
  assert.equal(sentence(plainly("token-revoked", "the token was revoked: get a new one")), "The token was revoked: get a new one.");
});

test("an untrusted name is one short line", () => {
  assert.equal(shownName(" a\n\u202eb\t c "), "a b c");
  assert.equal([...shownName("🦦".repeat(500))].length, 64);
});
