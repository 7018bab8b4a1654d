"""A page followed as its reader would: from top to bottom, in a folder of its own.

What becomes of a block, by its language and the comment above it:

    python                                pasted into `python -m asyncio`, statement by statement,
                                          where the last one left off. With `asyncio.run(`: a program
    text, below a Python block            what that printed, without the values that the interpreter echoes
    console                               typed into a terminal (console.py)
    <!-- terminal: NAME -->               the terminal of that name, which goes on
    <!-- exit code: 2 -->                 how the last command of a console ends
    <!-- file: NAME -->                   written into that file, behind what is there already
    <!-- not run: REASON WORDS -->        left out; the reason is checked (reasons.py)
"""

import ast
import asyncio
import codeop
import inspect
import io
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import lorogo_client
from lorogo_protocol.errors import LorogoError
from lorogo_transport.nats.embedded import find_nats_server
from tests.cli.support import environment
from tests.handbook.console import SHELL, Terminal, same
from tests.handbook.markdown import ROOT, Block
from tests.handbook.reasons import check

SCRIPT_SECONDS = 120.0
PARTS = "\n\n\n"  # between two blocks of one file
_MARKS = re.compile(r"(terminal|exit code|file|not run): (.+)")


def port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def treatment(block: Block, *, below_python: bool) -> tuple[str, str]:
    """The way to treat a block, with its words. AssertionError if no test runs the block."""
    mark = _MARKS.fullmatch(block.mark)
    assert mark is not None or not block.mark, f"{block.where}: <!-- {block.mark} --> means nothing"
    match mark[1] if mark else "", block.language:
        case "not run", _:
            return "leave", mark[2] if mark else ""
        case "file", _:
            return "write", mark[2] if mark else ""
        case (("" | "terminal" | "exit code"), "console"):
            return "type", block.mark
        case "", "python":
            return ("program" if "asyncio.run(" in block.text else "run"), ""
        case "", "text" if below_python:
            return "compare", ""
        case _, language:
            kind = language or "no language"
            raise AssertionError(f"{block.where}: a block of {kind} that is neither run nor marked")


def statements(block: Block) -> list[tuple[int, str]]:
    """The statements of a Python block as an interpreter splits pasted lines, each with its line on the page.

    AssertionError if it refuses one: a line at the left margin right below an indented one is not
    a new statement, and a blank line ends a compound statement.
    """
    complete = codeop.CommandCompiler()
    complete.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    found: list[tuple[int, str]] = []
    pending: list[str] = []
    # the blank line is the reader's Enter
    for line, text in enumerate([*block.text.rstrip("\n").split("\n"), ""], start=block.line):
        if not pending and not text:
            continue
        pending.append(text)
        source = "\n".join(pending)
        try:
            if complete(source, block.page, "single") is None:
                continue
        except SyntaxError as error:
            raise AssertionError(
                f"{block.page}:{line}: an interpreter refuses {text!r}: {error.msg}"
            ) from None
        found.append((line + 1 - len(pending), source))
        pending = []
    assert not pending, f"{block.where}: an interpreter waits for more lines"
    return found


class Reader:
    """A reader who follows the blocks of pages."""

    def __init__(self, folder: Path, **names: Any) -> None:
        """`names`: what Python blocks find, as if they had made it themselves."""
        self.folder = folder
        self.nats_port, self.web_port = port(), port()
        self.names: dict[str, Any] = {"__name__": "__page__", **names}
        self._terminals: dict[str, Terminal] = {}
        self._environment = self._made_environment()
        self._printed: list[str] | None = None
        self._modules = set(sys.modules)

    async def read(self, found: list[Block]) -> None:
        """Follow the blocks; raise AssertionError for the first that is not true."""
        sys.path.insert(0, str(self.folder))
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            for block in found:
                try:
                    await self._do(block)
                except Exception as error:
                    error.add_note(f"in {block.where}")
                    raise
        finally:
            os.chdir(before)
            sys.path.remove(str(self.folder))
            await self._tidy()

    async def begin_dev(self) -> None:
        """Have a `lorogo dev` run in another terminal, as pages take for granted."""
        terminal = self._terminal("lorogo dev")
        await terminal.follow(["$ lorogo dev", "lorogo is running..."], goes_on=True)

    def text_of(self, name: str) -> str:
        """A file that the page had written."""
        return (self.folder / name).read_text(encoding="utf-8")

    async def _do(self, block: Block) -> None:
        printed, self._printed = self._printed, None
        match treatment(block, below_python=printed is not None):
            case "leave", words:
                check(words, block)
            case "write", words:
                self._write(words, block.text)
            case "type", words:
                await self._type(words, block)
            case "program", _:
                await self._run_program(block)
            case "run", _:
                await self._run(block)
            case "compare", _:
                shown = block.text.rstrip("\n").split("\n")
                assert printed is not None and same(shown, printed), (
                    f"the page shows {shown}, printed is {printed}"
                )
            case unknown:
                raise AssertionError(unknown)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        assert path.resolve().is_relative_to(self.folder.resolve()), name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="utf-8").rstrip("\n") + PARTS if path.exists() else ""
        path.write_text(before + self._ours(text), encoding="utf-8")

    async def _type(self, words: str, block: Block) -> None:
        kind, _, rest = words.partition(": ")
        name = rest if kind == "terminal" else ""
        terminal = self._terminal(name)
        lines = [self._ours(line) for line in block.text.rstrip("\n").split("\n")]
        code = int(rest) if kind == "exit code" else 0
        await terminal.follow(
            [line if line.startswith(("$ ", "> ")) else self._usual(line) for line in lines],
            goes_on=bool(name),
            exit_code=code,
        )

    def _terminal(self, name: str) -> Terminal:
        if name not in self._terminals:
            self._terminals[name] = Terminal(self.folder, self._environment, self._usual)
        return self._terminals[name]

    async def run_script(self, text: str) -> str:
        """Run a shell script and return its output; its background processes are killed afterwards."""
        out, err = self.folder / "script.out", self.folder / "script.err"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = await asyncio.create_subprocess_exec(
                *(SHELL, "-eu", "-c", self._ours(text)),
                cwd=self.folder,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
                start_new_session=True,
            )
        code: int | None = None
        try:
            async with asyncio.timeout(SCRIPT_SECONDS):
                code = await process.wait()
        except TimeoutError:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        printed = out.read_text(encoding="utf-8")
        assert code == 0, (code, printed, err.read_text(encoding="utf-8"))
        return self._usual(printed)

    async def _run_program(self, block: Block) -> None:
        path = self.folder / f"line-{block.line}.py"
        path.write_text(self._ours(block.text), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(path)),
            cwd=self.folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(60):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode()
        self._printed = [self._usual(line) for line in out.decode().splitlines()]

    async def _run(self, block: Block) -> None:
        out = io.StringIO()
        with redirect_stdout(out):
            async with asyncio.timeout(60):
                for line, source in statements(block):
                    code = compile(
                        "\n" * (line - 1)
                        + self._ours(source),  # so that a traceback names the line of the page
                        str(ROOT / block.page),
                        "exec",
                        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                    )
                    made = eval(code, self.names)  # it is what is tested
                    if inspect.isawaitable(made):
                        await made
        self._printed = [self._usual(line) for line in out.getvalue().splitlines()]

    def _ours(self, text: str) -> str:
        """The text with the ports that are free here."""
        before = r"((?:127\.0\.0\.1|localhost):|--port )"
        text = re.sub(rf"{before}4222\b", rf"\g<1>{self.nats_port}", text)
        return re.sub(rf"{before}8080\b", rf"\g<1>{self.web_port}", text)

    def _usual(self, text: str) -> str:
        """The printed text, with the ports of the page and without colours."""
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
        return text.replace(f":{self.nats_port}", ":4222").replace(f":{self.web_port}", ":8080")

    def _made_environment(self) -> dict[str, str]:
        """A shell with our `lorogo`, `python` and `nats-server`, as after `. .venv/bin/activate`."""
        bin_folder = self.folder / ".bin"
        bin_folder.mkdir()
        self._script(bin_folder / "nats-server", f'exec "{find_nats_server()}" "$@"')
        self._script(bin_folder / "python", f'exec "{sys.executable}" "$@"')
        ports = f"--port {self.nats_port} --web-port {self.web_port}"
        self._script(
            bin_folder / "lorogo",
            f'case "$1" in dev) shift; set -- dev {ports} "$@";; esac\n'
            f'exec "{sys.executable}" -m lorogo_cli "$@"',
        )
        path = os.pathsep.join([str(bin_folder), os.environ.get("PATH", os.defpath)])
        address = f"nats://127.0.0.1:{self.nats_port}"
        return environment(
            PATH=path, LOROGO_NATS=address, LOROGO_OPEN="", NO_COLOR="1", HOME=str(self.folder)
        )

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    async def _tidy(self) -> None:
        for value in list(self.names.values()):
            if isinstance(value, lorogo_client.Client):
                with suppress(LorogoError):
                    await value.leave(raise_unsaved=False)
        for terminal in self._terminals.values():
            await terminal.end()
        for name in set(sys.modules) - self._modules:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(str(self.folder)):
                del sys.modules[name]
        self.names.clear()


def shown_files(found: list[Block]) -> Mapping[str, str]:
    """The content that the page writes into each file, over all its blocks."""
    files: dict[str, str] = {}
    for block in found:
        if block.mark.startswith("file: "):
            name = block.mark.removeprefix("file: ")
            files[name] = files[name].rstrip("\n") + PARTS + block.text if name in files else block.text
    return files
