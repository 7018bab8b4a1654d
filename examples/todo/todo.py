"""A to-do list that several people edit at once, in the terminal.

    python todo.py groceries ana

It keeps a copy in the folder `ana.store`, so it also works offline.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator

import items
from loro import LoroDoc

import lorogo_client
from lorogo_client import LorogoError, Session, State

COMMANDS = "add TEXT, done N, move N TO, remove N, or quit"


def edit(doc: LoroDoc, line: str) -> None:
    """Execute the command in the line. Raises ValueError if it is unknown."""
    match line.split():
        case ["add", _, *_]:
            items.add(doc, line.split(maxsplit=1)[1])
        case ["done", number] if number.isdecimal():
            items.done(doc, int(number))
        case ["move", number, to] if number.isdecimal() and to.isdecimal():
            items.move(doc, int(number), int(to))
        case ["remove", number] if number.isdecimal():
            items.remove(doc, int(number))
        case _:
            raise ValueError(f"unknown command; use {COMMANDS}")


class Screen:
    """Prints the list when it has changed."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.printed = ""

    def show(self) -> None:
        """Print the list with its sync state and the people present."""
        session = self.session
        match session.state:
            case State.OFFLINE:  # presence is unknown while offline
                mark = f"offline, {session.unsaved} not saved"
            case state:
                names = sorted({str(entry["name"]) for entry in session.presence.all().values()})
                mark = f"{state.value} ({', '.join(names)})"
        lines = [f"{session.document_id}: {mark}"]
        for number, row in enumerate(items.rows(session.doc), 1):
            lines.append(f"  {number}. [{'x' if row['done'] else ' '}] {row['text']}")
        text = "\n".join(lines)
        if text != self.printed:
            self.printed = text
            self.print(text)

    def print(self, text: str) -> None:
        """Print the text over the prompt, and the prompt below it."""
        print(f"\r{text}\n> ", end="", flush=True)

    async def follow(self, feed: AsyncIterator[object]) -> None:
        """Show the list after every event of the feed."""
        async for _ in feed:
            self.show()


async def typed() -> AsyncIterator[str]:
    """Yield the lines typed by the user, without blocking the event loop."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := (await reader.readline()).decode().strip():
        yield line


async def take_part(session: Session, name: str) -> None:
    """Show the others' edits and execute typed commands, until `quit` or the end of input."""
    screen = Screen(session)
    session.presence.set({"name": name})
    async with asyncio.TaskGroup() as group:
        feeds = (session.states(), session.changes(), session.presence.watch())
        following = [group.create_task(screen.follow(feed)) for feed in feeds]
        async for line in typed():
            if line == "quit":
                break
            try:
                edit(session.doc, line)
            except ValueError as problem:
                screen.print(str(problem))
                continue
            session.commit()  # sent to the server in the background
            await session.stored()  # on this disk
            screen.printed = ""  # show it even if the line changed nothing
            screen.show()
        for task in following:
            task.cancel()


async def main() -> None:
    options = argparse.ArgumentParser(description="A to-do list for several people.")
    options.add_argument("document")
    options.add_argument("name")
    given = options.parse_args()
    logging.basicConfig(filename=f"{given.name}.log")  # warnings of the client, kept out of the list
    nats = os.environ.get("LOROGO_NATS", "nats://127.0.0.1:4222")
    async with (
        lorogo_client.connect(nats, store=f"{given.name}.store") as client,
        client.open(given.document, create=True) as session,
    ):
        await take_part(session, given.name)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except* LorogoError as group:
        sys.exit(f"todo: {group.exceptions[0]}")
    except* KeyboardInterrupt:
        pass
