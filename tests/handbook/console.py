"""The terminal sessions of a page, typed into a real terminal.

    $ command          typed; the command before it must have ended well
    > words            typed into the running command, behind the `> ` that it prints as its prompt
    ^C                 Ctrl-C
    anything else      what is printed; `...` stands for any characters, alone on a line for any lines

A terminal with a name goes on between blocks, and may print more than is shown. One without a name ends
with its block, and shows everything that is printed.
"""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

SECONDS = 60.0
PROMPT = b"> "
READ_BYTES = 1 << 16
SHELL = shutil.which("bash") or "sh"


def matches(shown: str, printed: str) -> bool:
    """True if the page shows this line; the widths of columns may differ."""
    pattern = ".*".join(map(re.escape, _narrow(shown).split("...")))
    return re.fullmatch(pattern, _narrow(printed)) is not None


def _narrow(line: str) -> str:
    return re.sub("(?<=[^ ])  +", "  ", line.rstrip())


def same(shown: list[str], printed: list[str]) -> bool:
    """True if the page shows these lines; a line `...` stands for any number of them."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(same(shown[1:], printed[at:]) for at in range(len(printed) + 1))
    return bool(printed) and matches(shown[0], printed[0]) and same(shown[1:], printed[1:])


class Terminal:
    """A place to type commands, one after the other."""

    def __init__(self, folder: Path, environment: Mapping[str, str], clean: Callable[[str], str]) -> None:
        """`clean` makes of what is printed what a page would show: usual ports, and so on."""
        self._folder = folder
        self._environment = dict(environment)
        self._clean = clean
        self._process: asyncio.subprocess.Process | None = None
        self._command = ""
        self._unread: list[str] = []
        self._received = b""  # printed, and not read as lines yet

    async def follow(self, lines: list[str], *, goes_on: bool, exit_code: int = 0) -> None:
        """Type what is to be typed, and look whether what is shown is printed."""
        shown: list[str] = []
        for number, line in enumerate(lines):
            more = number and lines[number - 1].endswith("\\") and self._command.endswith("\\")
            if line.startswith("$ ") or more:
                if more:
                    self._command = f"{self._command[:-1]}{line.strip()}"
                else:
                    await self._ended(shown, goes_on=goes_on, exit_code=0)
                    shown, self._command = [], line[2:]
                if not self._command.endswith("\\"):
                    await self._start()
            elif line.startswith("> "):
                await self._type(line[2:])
            elif line.strip() == "^C":
                await self._interrupt()
            elif goes_on:
                await self._printed(line)
            else:
                shown.append(line)
        if not goes_on:
            await self._ended(shown, goes_on=False, exit_code=exit_code)

    async def end(self) -> None:
        """Whatever still runs is gone."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(SHELL, "-c", self._command),
            cwd=self._folder,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._unread = []
        self._received = b""

    async def _type(self, words: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            async with asyncio.timeout(SECONDS):
                while self._received.rpartition(b"\n")[2].rpartition(b"\r")[2] != PROMPT:
                    assert await self._receive(), f"`{self._command}` ended before {words!r} was typed"
        except TimeoutError:
            raise AssertionError(f"`{self._command}` prints no prompt to type {words!r} at") from None
        self._received = self._received.removesuffix(PROMPT)
        self._process.stdin.write(f"{words}\n".encode())
        async with asyncio.timeout(SECONDS):
            await self._process.stdin.drain()

    async def _interrupt(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            while await self._line() is not None:
                pass
            await self._process.wait()

    async def _line(self) -> str | None:
        """The next line that is printed, as a terminal shows it; None at the end."""
        while b"\n" not in self._received and await self._receive():
            pass
        line, newline, self._received = self._received.partition(b"\n")
        if not newline and line in (b"", PROMPT):
            return None
        text = self._clean(line.decode().rstrip("\r").rpartition("\r")[2])
        self._unread.append(text)
        return text

    async def _receive(self) -> bool:
        """Wait for more that is printed; False at the end."""
        assert self._process is not None and self._process.stdout is not None
        more = await self._process.stdout.read(READ_BYTES)
        self._received += more
        return bool(more)

    async def _printed(self, shown: str) -> None:
        """Wait until a line like this one is printed."""
        if not shown.strip() or shown.strip() == "...":
            return
        self._unread = []
        try:
            async with asyncio.timeout(SECONDS):
                while (line := await self._line()) is not None:
                    if matches(shown, line):
                        return
        except TimeoutError:
            pass
        raise AssertionError(f"`{self._command}` did not print {shown!r}, but {self._unread}")

    async def _ended(self, shown: list[str], *, goes_on: bool, exit_code: int) -> None:
        """Wait for the end of the command; it printed what is shown, if it shows everything."""
        process = self._process
        if process is None:
            assert not shown, f"nothing printed {shown}"
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(SECONDS):
                while await self._line() is not None:
                    pass
                code = await process.wait()
        except TimeoutError:
            raise AssertionError(f"`{self._command}` did not end; it printed {self._unread}") from None
        self._process = None
        if goes_on:
            assert code in (0, -signal.SIGINT, 130), f"`{self._command}` ended with {code}: {self._unread}"
            return
        assert code == exit_code, f"`{self._command}` ended with {code}: {self._unread}"
        while shown and not shown[-1].strip():
            shown.pop()
        assert same(shown, self._unread), f"`{self._command}` printed {self._unread}, the page shows {shown}"
