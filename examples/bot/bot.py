"""A bot that edits with people: it appends the result to every line that ends with a sum and `=`.

    python bot.py minutes                      # then type "12 * 7 =" into the text `body` of that document

It is an ordinary client with a replica and presence.
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
CHARS_MAX = 100  # of a sum; longer ones are ignored
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def value(node: ast.expr) -> float:
    """Evaluate a sum. Raises ValueError for any other expression, since the text is untrusted."""
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
    """Return the result of the sum at the end of a line; None if there is no sum."""
    words = line.rstrip()
    found = SUM.search(words[:-1][-CHARS_MAX - 1 :]) if words.endswith("=") else None
    if found is None or len(found[0]) > CHARS_MAX:
        return None
    try:
        return f"{value(ast.parse(found[0].strip(), mode='eval').body):.10g}"
    except (SyntaxError, ValueError, ArithmeticError):
        return None


def complete(body: LoroText) -> int:
    """Append the result to every unanswered sum; returns their number."""
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
    """Answer existing sums, then new ones, until the document is deleted."""
    session.presence.set({"name": "the calculating bot"})
    changes = session.changes()  # before the first read, so that no change is missed
    while True:
        # Without an await between read and write, no other edit can change this replica in between.
        # A concurrent edit of another replica is merged and keeps its position.
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
    token = os.environ.get("LOROGO_TOKEN")  # if the server requires one
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
