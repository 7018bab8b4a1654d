"""A bot that writes with people: whoever ends a line with a sum and `=` finds the answer behind it.

    python bot.py minutes                      # then type "12 * 7 =" into the text `body` of that document

It is a client like any other: it has a replica, edits it, and is seen by its name.
"""

import argparse
import ast
import asyncio
import operator
import os
import re
import sys

from loro import LoroText

import lorogo_client
from lorogo_client import LorogoError, Session

SUM = re.compile(r"[0-9. +*/()-]+$")
CHARS_MAX = 100  # of a sum: whoever types a longer one gets no answer
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def value(node: ast.expr) -> float:
    """What the sum is. ValueError for anything that is not one: people may type what they like."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value(left), value(right))
        case ast.UnaryOp(op=ast.USub() as op, operand=operand):
            return OPERATORS[type(op)](value(operand))
        case _:
            raise ValueError("not a sum")


def answer(line: str) -> str | None:
    """The answer to the sum at the end of a line, as people write it; None if there is none."""
    words = line.rstrip()
    found = SUM.search(words[:-1][-CHARS_MAX - 1 :]) if words.endswith("=") else None
    if found is None or len(found[0]) > CHARS_MAX:
        return None
    try:
        return f"{value(ast.parse(found[0].strip(), mode='eval').body):.10g}"
    except (SyntaxError, ValueError, ArithmeticError):
        return None


def complete(body: LoroText) -> int:
    """Write the answer behind every sum that waits for one; how many there were."""
    end, done = 0, 0
    for line in body.to_string().split("\n"):
        if (result := answer(line)) is not None:
            written = f" {result}"
            body.insert(end + len(line.rstrip()), written)
            end += len(written)
            done += 1
        end += len(line) + 1
    return done


async def work(session: Session) -> None:
    """Answer what is there, then whatever comes, for as long as the document is there."""
    session.presence.set({"name": "the calculating bot"})
    changes = session.changes()  # before the first look, so that nothing falls between
    while True:
        # Nothing is awaited between reading and writing: nobody's edit can come between in this replica. One
        # that was made elsewhere at the same moment is merged, and stays where it was meant to be.
        if done := complete(session.doc.get_text("body")):
            session.commit("sums")
            await session.flush()
            print(f"answered {done}", flush=True)
        await anext(changes)


async def main() -> None:
    options = argparse.ArgumentParser(description="A bot that answers sums in a document.")
    options.add_argument("document")
    given = options.parse_args()
    nats = os.environ.get("LOROGO_NATS", "nats://127.0.0.1:4222")
    token = os.environ.get("LOROGO_TOKEN")  # for a server that asks for one
    async with (
        lorogo_client.connect(nats, token=token, name="bot") as client,
        client.open(given.document) as session,
    ):
        print(f"answering sums in {given.document}; Ctrl-C ends", flush=True)
        await work(session)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LorogoError as error:
        sys.exit(f"bot: {error}")
    except KeyboardInterrupt:
        pass
