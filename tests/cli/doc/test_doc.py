"""`lorogo doc ...` against `lorogo dev`: real processes, as a user has them."""

import asyncio
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loro import LoroDoc

from lorogo_protocol.status import Down, Failed
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.stores.statuses import Statuses
from tests.cli.support import COMMAND, SECONDS, Running, environment, lorogo, refused, said, said_json, until
from tests.server.poison import forged

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PROGRAM = shlex.join(COMMAND)


class Stack:
    """A `lorogo dev` of this file's own."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.dev = Running(["dev", "--port", "0", "--web-port", "0"], cwd=cwd, name="dev")
        self.screen = self.dev.wait_for("asyncio.run(main())")
        found = re.search(r"NATS +(nats://\S+)", self.screen)
        assert found is not None
        self.url = found[1]

    def lorogo(
        self, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        here = {"LOROGO_NATS": self.url, "TMPDIR": str(self.cwd)}
        return lorogo(*arguments, cwd=self.cwd, stdin=stdin, env=here | (env or {}))

    def watch(self, *arguments: str) -> Running:
        watching = Running(
            ["doc", "watch", *arguments, "--json"], cwd=self.cwd, name="watch", env={"LOROGO_NATS": self.url}
        )
        watching.wait_for('"watching"')
        return watching


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("dev"))
    try:
        yield stack
    finally:
        stack.dev.kill()


def run_as_typed(*command: str, cwd: Path) -> str:
    """The output of the command in a shell without the environment of the tests."""
    result = subprocess.run(
        command, cwd=cwd, capture_output=True, env=environment(), timeout=SECONDS, check=False
    )
    assert result.returncode == 0, (command, result.stderr)
    return result.stdout.decode()


async def stored_status(store: Path, document_id: str) -> object:
    """The status of a document in the bucket of that store."""
    async with EmbeddedNats(store) as nats, await connect(nats.url) as transport:
        entry = await Statuses(transport).read(document_id)
        return None if entry is None else entry.status


def test_the_printed_commands_work_and_a_stop_is_graceful(tmp_path: Path) -> None:
    """The commands that `lorogo dev` prints work as printed; SIGTERM ends it with 0, every document DOWN."""
    stack = Stack(tmp_path)
    try:
        commands = [line.strip() for line in stack.screen.splitlines() if line.startswith(f"  {PROGRAM} ")]
        assert len(commands) == 6
        (watch,) = [command for command in commands if " doc watch " in command]
        for command in commands:
            if command != watch:
                assert run_as_typed("/bin/sh", "-c", command, cwd=tmp_path)
        watching = Running(shlex.split(watch)[len(COMMAND) :], cwd=tmp_path, name="watching")
        try:
            snippet = stack.screen.partition("From Python (")[2].partition("\n")[2]
            code = "\n".join(line.removeprefix("  ") for line in snippet.splitlines())

            def typed_and_seen() -> bool | None:
                assert run_as_typed(sys.executable, "-c", code, cwd=tmp_path).startswith("Receipt(")
                return 'title: +"Oh! " at 0' in watching.out.read_text() or None

            until("an edit that is watched", typed_and_seen)
        finally:
            watching.kill()
        document = said_json(stack.lorogo("doc", "get", "hello"))
        assert re.fullmatch("(Oh! )+Hello", document["title"])
        assert document["tasks"] == [{"what": "write", "done": False}]
        assert stack.dev.stop(signal.SIGTERM) == 0
        assert stack.dev.err.read_text() == ""
    finally:
        stack.dev.kill()
    assert isinstance(asyncio.run(stored_status(tmp_path / ".lorogo" / "nats", "hello")), Down)


def test_a_second_dev_says_what_to_do(stack: Stack) -> None:
    """A second process cannot use the port or the store; its error names the option to change."""
    port = stack.url.rpartition(":")[2]
    second = refused(stack.lorogo("dev", "--port", port))
    assert f"port {port} is taken" in second
    assert f" -m lorogo_cli dev --port {int(port) + 1} " in second  # as this process was started
    web = re.search(r"dashboard +http://127\.0\.0\.1:([0-9]+)/dashboard", stack.screen)
    assert web is not None
    taken = refused(stack.lorogo("dev", "--port", "0", "--web-port", web[1], "--store", "other"))
    assert f"port {web[1]} is taken" in taken and "--web-port" in taken
    assert "--store" in refused(stack.lorogo("dev", "--port", "0", "--web-port", "0"))


def test_a_value_is_set_and_got(stack: Stack) -> None:
    """A document is made by the first `set`; a string at the top is a text, parents are made as needed."""
    saved = said_json(stack.lorogo("doc", "set", "minutes", "title", '"Hello"', "--json"))
    assert saved["durability"] == "journal"
    assert said(stack.lorogo("doc", "set", "minutes", "people.0.name", '"Ada"')).startswith("minutes saved")
    said(stack.lorogo("doc", "set", "minutes", "/people/0/age", "36"))
    assert said_json(stack.lorogo("doc", "get", "minutes")) == {
        "title": "Hello",
        "people": [{"name": "Ada", "age": 36}],
    }
    assert said(stack.lorogo("doc", "get", "minutes", "title")) == '"Hello"\n'
    assert said(stack.lorogo("doc", "get", "minutes", "title", "--raw")) == "Hello\n"
    assert said_json(stack.lorogo("doc", "get", "minutes", "$.people[*].age")) == [36]
    whole = said_json(stack.lorogo("doc", "get", "minutes", "people.0.name", "--json"))
    assert whole["matches"] == [["Ada"]]
    assert said_json(stack.lorogo("doc", "get", "minutes", "$..name", "--at", saved["version"])) == []
    assert refused(stack.lorogo("doc", "get", "minutes", "nowhere")) == "minutes has no value at 'nowhere'"


def test_an_unknown_document_is_not_created_by_reading(stack: Stack) -> None:
    """Commands on an unknown document are refused and create nothing; an impossible `set` does neither."""
    for command in (
        ("doc", "get", "ghost"),
        ("doc", "history", "ghost"),
        ("doc", "watch", "ghost"),
        ("doc", "export", "ghost", "ghost.bin"),
        ("doc", "revert", "ghost", "10m"),
        ("doc", "fork", "ghost", "ghost2"),
        ("doc", "edit", "ghost"),
        ("doc", "delete", "ghost", "--yes"),
        ("doc", "restore", "ghost"),
        ("status", "ghost"),
        ("reset", "ghost"),
        ("compact", "ghost"),
    ):
        assert refused(stack.lorogo(*command)).startswith("document 'ghost' does not exist"), command
    assert "is not allowed at the top level" in refused(stack.lorogo("doc", "set", "ghost", "count", "3"))
    documents = said_json(stack.lorogo("status", "--json"))["documents"]
    assert [row for row in documents if row["document"].startswith("ghost")] == []
    assert not (stack.cwd / "ghost.bin").exists()


def test_a_document_goes_back_to_a_version(stack: Stack) -> None:
    """`revert` takes what `set` and `history` show, and the way back is a change too."""
    first = said_json(stack.lorogo("doc", "set", "back", "title", '"one"', "--json"))["version"]
    said(stack.lorogo("doc", "set", "back", "title", '"two"'))
    said(stack.lorogo("doc", "revert", "back", first))
    assert said_json(stack.lorogo("doc", "get", "back")) == {"title": "one"}
    versions = said_json(stack.lorogo("doc", "history", "back", "--json"))
    assert versions
    said(stack.lorogo("doc", "get", "back", "--at", versions[0]["time"]))
    assert versions[0]["version"] in said(stack.lorogo("doc", "history", "back"))
    old = refused(stack.lorogo("doc", "revert", "back", "-9d"))
    assert re.search(r"no version that old: 20[0-9-]+T[0-9:.]+Z", old)
    for command in (("get", "back", "--at"), ("revert", "back"), ("fork", "back", "later", "--at")):
        assert "is in the future" in refused(stack.lorogo("doc", *command, "2999-01-01T00:00"))


def test_a_document_is_forked_exported_and_imported(stack: Stack) -> None:
    """A snapshot on disk is a real Loro snapshot; neither a document nor a file is overwritten."""
    said(stack.lorogo("doc", "set", "origin", "title", '"copy me"'))
    assert said(stack.lorogo("doc", "fork", "origin", "copy")) == "copy has the content of origin\n"
    assert refused(stack.lorogo("doc", "fork", "origin", "copy")) == "copy exists; choose another id"
    exported = said(stack.lorogo("doc", "export", "copy", "copy.bin"))
    assert re.fullmatch(r"copy exported to copy\.bin: [0-9.]+ [KM]?i?B\n", exported)
    assert "--force" in refused(stack.lorogo("doc", "export", "copy", "copy.bin"))
    said(stack.lorogo("doc", "export", "copy", "copy.bin", "--force"))
    payload = (stack.cwd / "copy.bin").read_bytes()
    doc = LoroDoc()
    doc.import_(payload)
    assert doc.get_text("title").to_string() == "copy me"
    piped = stack.lorogo("doc", "export", "copy", "-")
    assert piped.returncode == 0
    said(stack.lorogo("doc", "import", "third", "-", stdin=piped.stdout))
    said(stack.lorogo("doc", "import", "fourth", "copy.bin"))
    assert said_json(stack.lorogo("doc", "get", "third")) == {"title": "copy me"}
    assert "not empty" in refused(stack.lorogo("doc", "import", "third", "copy.bin"))
    words = refused(stack.lorogo("doc", "import", "cut", "-", stdin=piped.stdout[:-7]))
    assert "not a whole Loro snapshot" in words
    assert "document 'cut' does not exist" in refused(stack.lorogo("doc", "get", "cut"))
    words = refused(stack.lorogo("doc", "import", "forged", "-", stdin=forged(payload)))
    assert "not a whole Loro snapshot" in words
    assert "document 'forged' does not exist" in refused(stack.lorogo("doc", "get", "forged"))
    assert sorted(path.name for path in stack.cwd.glob("*copy*")) == ["copy.bin"]


def test_an_edit_sends_only_what_was_changed(stack: Stack) -> None:
    """`doc edit` opens $EDITOR; no change is refused, a mistake or a conflict keeps the text."""
    said(stack.lorogo("doc", "set", "edited", "title", '"before"'))
    said(stack.lorogo("doc", "edit", "edited", env={"EDITOR": "sed -i.bak s/before/after/"}))
    assert said_json(stack.lorogo("doc", "get", "edited")) == {"title": "after"}
    assert "no changes" in refused(stack.lorogo("doc", "edit", "edited", env={"EDITOR": "true"}))
    broken = refused(stack.lorogo("doc", "edit", "edited", env={"EDITOR": 'sed -i s/after/after\\",/'}))
    assert "is not JSON (line" in broken
    kept = Path(broken.rpartition("kept in ")[2])
    assert "after" in kept.read_text()
    kept.unlink()
    kept.parent.rmdir()
    script = stack.cwd / "meanwhile.sh"
    other = shlex.join([*COMMAND, "doc", "set", "edited", "title", '"theirs"'])
    script.write_text(f'#!/bin/sh\n{other} >/dev/null\nsed -i s/after/mine/ "$1"\n')
    script.chmod(0o755)
    conflict = refused(stack.lorogo("doc", "edit", "edited", env={"EDITOR": str(script)}))
    assert "it was changed by another client meanwhile; your text is kept in" in conflict
    assert "mine" in Path(conflict.rpartition("kept in ")[2]).read_text()
    assert said_json(stack.lorogo("doc", "get", "edited")) == {"title": "theirs"}
    gone = refused(stack.lorogo("doc", "edit", "edited", env={"EDITOR": "no-such-editor"}))
    assert "cannot start the editor 'no-such-editor'" in gone
    assert len(list(stack.cwd.glob("lorogo-*"))) == 1  # the text of the conflict: nothing else is left behind


def test_edits_are_watched_as_they_come(stack: Stack) -> None:
    """A line of JSON per change; Ctrl-C ends it quietly with 130."""
    said(stack.lorogo("doc", "set", "watched", "title", '"a"'))
    watching = stack.watch("watched")
    try:
        said(stack.lorogo("doc", "set", "watched", "title", '"ab"'))
        text = watching.wait_for('"changes"')
        assert '{"path":["title"],"kind":"text","diff":[{"retain":1},{"insert":"b"}]}' in text
        assert watching.stop(signal.SIGINT) == 130
        assert watching.err.read_text() == ""
    finally:
        watching.kill()


def test_a_deleted_document_comes_back_only_when_restored(stack: Stack) -> None:
    """Deleting without a terminal needs --yes; the error for a deleted document names the command that
    restores it.
    """
    said(stack.lorogo("doc", "set", "mortal", "title", '"alive"'))
    assert "--yes" in refused(stack.lorogo("doc", "delete", "mortal"))
    assert said(stack.lorogo("doc", "delete", "mortal", "--yes")) == "mortal is deleted\n"
    assert "lorogo doc restore mortal" in refused(stack.lorogo("doc", "get", "mortal"))
    assert "restore" in refused(stack.lorogo("doc", "set", "mortal", "title", '"x"'))
    row = said_json(stack.lorogo("status", "mortal", "--json"))
    assert row["deleted"] is True
    assert said(stack.lorogo("doc", "restore", "mortal")) == "mortal is restored\n"
    assert said_json(stack.lorogo("doc", "get", "mortal")) == {"title": "alive"}


def test_an_erased_document_is_called_erased_for_good(stack: Stack) -> None:
    """No message offers to restore it."""
    said(stack.lorogo("doc", "set", "secret", "title", '"x"'))
    said(stack.lorogo("doc", "delete", "secret", "--purge", "--yes"))
    for command in (["get", "secret"], ["set", "secret", "title", '"y"'], ["history", "secret"]):
        assert refused(stack.lorogo("doc", *command)).endswith("was erased for good")
    assert "erased" in refused(stack.lorogo("doc", "restore", "secret"))
    assert "was already erased" in said(stack.lorogo("doc", "delete", "secret", "--yes"))
    assert said_json(stack.lorogo("doc", "delete", "secret", "--yes", "--json"))["erased"] is True
    assert "secret (erased)" in said(stack.lorogo("status"))
    shown = said(stack.lorogo("status", "secret"))
    assert "erased:       permanently" in shown and "state:" not in shown
    assert "restore" not in shown


@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("y", 0)])
def test_a_terminal_is_asked_before_a_document_is_deleted(stack: Stack, answer: str, code: int) -> None:
    """Only a yes deletes."""
    name = f"asked-{answer}"
    said(stack.lorogo("doc", "set", name, "title", '"?"'))
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, "doc", "delete", name],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=environment(LOROGO_NATS=stack.url),
            cwd=stack.cwd,
        )
        os.write(ours, f"{answer}\n".encode())
        process.communicate(timeout=SECONDS)
        assert process.returncode == code
    finally:
        os.close(ours)
        os.close(theirs)
    assert said_json(stack.lorogo("status", name, "--json"))["deleted"] is (code == 0)


def test_status_tells_who_owns_what(stack: Stack) -> None:
    """Every document with its state, owner, lease and size; the stream has no consumer; starts nothing."""
    said(stack.lorogo("doc", "set", "owned", "title", '"mine"'))
    said(stack.lorogo("doc", "fork", "owned", "asleep"))
    every = said_json(stack.lorogo("status", "--json"))
    rows = {row["document"]: row for row in every["documents"]}
    (server,) = every["servers"]
    assert rows["owned"]["state"] == "UP"
    assert rows["owned"]["server"] == server["server"]
    assert rows["owned"]["lease"] > 0
    assert rows["owned"]["wal_messages"] == 1
    assert rows["asleep"]["state"] == "DOWN"
    assert rows["asleep"]["snapshot_bytes"] > 0
    assert every["stream"]["consumers"] == 0
    table = said(stack.lorogo("status"))
    assert re.search(rf"^owned +UP +{server['server']} ", table, re.MULTILINE)
    assert "0 consumers" in table
    one = said_json(stack.lorogo("status", "owned", "--json"))
    assert one["owner"]["sequence"] > 0
    assert one["owner"]["server"] == server["server"]
    assert "durability:   journal" in said(stack.lorogo("status", "owned"))
    assert said_json(stack.lorogo("status", "asleep", "--json"))["state"] == "DOWN"


async def fail(url: str, document_id: str) -> None:
    """Put a document into ERROR, as servers do that cannot load it."""
    async with await connect(url) as transport:
        await Statuses(transport).write(document_id, Failed("trace-7", 0), expected_revision=0)


def test_a_document_in_error_is_shown_with_its_trace_until_reset(stack: Stack) -> None:
    """No command retries by itself; the error names `reset`, and after it the document opens."""
    asyncio.run(fail(stack.url, "broken"))
    assert re.search("trace-7.*lorogo reset broken", refused(stack.lorogo("doc", "get", "broken")))
    assert "trace-7" in said(stack.lorogo("status", "broken"))
    assert said_json(stack.lorogo("status", "broken", "--json"))["state"] == "ERROR"
    assert said(stack.lorogo("reset", "broken")) == "broken can be opened again\n"
    assert said_json(stack.lorogo("doc", "get", "broken")) == {}


def test_compaction_and_reset_say_what_they_did(stack: Stack) -> None:
    """`compact` gives the snapshot's size and what was purged; `reset` of what is well does nothing."""
    said(stack.lorogo("doc", "set", "compacted", "title", '"x"'))
    said(stack.lorogo("doc", "set", "compacted", "title", '"xy"'))
    done = said_json(stack.lorogo("compact", "compacted", "--json"))
    assert done["snapshot_bytes"] > 0
    assert done["purged"] >= 1
    assert "snapshot of" in said(stack.lorogo("compact", "compacted"))
    assert said_json(stack.lorogo("reset", "compacted", "--json")) == {
        "document": "compacted",
        "reset": False,
    }


def test_a_reader_that_goes_away_is_no_drama(stack: Stack) -> None:
    """`lorogo ... | head` ends without a traceback."""
    process = subprocess.Popen(
        [*COMMAND, "status", "--json"],
        cwd=stack.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(LOROGO_NATS=stack.url),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(SECONDS) == 1
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_name_that_cannot_be_is_refused_before_anything_is_sent(stack: Stack) -> None:
    """Ids, times and versions are checked by the command itself."""
    for command in (("doc", "get", "a.b"), ("doc", "set", "*", "t", "1"), ("doc", "fork", "minutes", "x y")):
        assert "is not a document id" in refused(stack.lorogo(*command))
