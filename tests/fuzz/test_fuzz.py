"""The fuzz targets hold on their seeds and near them, and the runner tells what it finds."""

import importlib.util
import json
import subprocess
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import child, run, target
from tests.fuzz.mutate import mutated
from tests.fuzz.run import Plan, Result
from tests.fuzz.slate import Slate

_INPUTS = 300
#: forged updates can end the process (see test_crdt.py): those inputs run in a process of their own
_IN_A_PROCESS = {"updates"}


@pytest.mark.parametrize("name", target.names())
def test_every_target_has_a_small_corpus_of_its_own(name: str) -> None:
    """Seeds are in the repository as text, and all of one target's are a few kilobytes."""
    seeds = target.corpus(name)
    assert len(seeds) >= 3
    assert len(set(seeds)) == len(seeds)
    assert sum(map(len, seeds)) < 32 * 1024
    assert all(0 < len(seed) <= target.load(name).bytes_max for seed in seeds)


@pytest.mark.parametrize("name", sorted(set(target.names()) - _IN_A_PROCESS))
def test_a_target_holds_on_its_seeds_and_near_them(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few hundred inputs raise nothing but what the target may refuse."""
    one = target.load(name)
    slate = Slate.create(tmp_path / "slate", one.bytes_max)
    watch = child.Watch(name, one, slate, tmp_path / "found")
    for data in islice(mutated(target.corpus(name), Random(7), one.bytes_max), _INPUTS):
        watch.one(data)
    assert slate.executions == _INPUTS
    found = [
        (json.loads(line)["text"], json.loads(line)["path"]) for line in capsys.readouterr().out.splitlines()
    ]
    assert found == []


@pytest.mark.parametrize("name", sorted(_IN_A_PROCESS))
def test_a_target_in_a_process_of_its_own_holds_on_its_seeds(name: str) -> None:
    """Seeds as they are, which are what a client sends, raise nothing."""
    one = target.load(name)
    for data in target.corpus(name):
        one.check(data)


def fake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, hang_seconds: float = run.HANG_SECONDS
) -> Plan:
    """A target in a folder of its own, with the given body, and a plan to run it."""
    package = tmp_path / "tests" / "fuzz"
    package.mkdir(parents=True)
    for path in target.HERE.glob("*.py"):
        if not path.name.startswith(("fuzz_", "test_")):
            (package / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tests" / "__init__.py").touch()
    (package / "corpus").mkdir()
    (package / "corpus" / "fake.txt").write_text("c2VlZA==\nb3RoZXI=\n", encoding="ascii")
    lines = [
        "import os, time",
        "from tests.fuzz.target import Target",
        f"def run(data):\n    {body}",
        "TARGET = Target(run, lambda: [b'seed'], (KeyError,))",
    ]
    (package / "fuzz_fake.py").write_text("\n".join(lines), encoding="ascii")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "load", lambda _: target.Target(print, list, ()))
    return Plan(1.0, "random", hang_seconds=hang_seconds, found=tmp_path / "found", work=tmp_path / "work")


def test_what_a_target_may_refuse_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions are counted, and a typed refusal is as good as a success."""
    result = run.fuzz("fake", fake(tmp_path, monkeypatch, "raise KeyError"))
    assert result.findings == []
    assert result.executions > 10


def test_what_a_target_raises_is_kept_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finding is a file and one command; the same error again is the same finding, and the run goes on."""
    result = run.fuzz("fake", fake(tmp_path, monkeypatch, "assert data != b'other', 'found it'"))
    assert result.executions > 10
    [(kind, path)] = result.findings
    assert kind.startswith("AssertionError at fuzz_fake.py:")
    assert path.read_bytes() == b"other"
    output = capsys.readouterr().out
    assert "found it" in output
    command = output.partition("try it again: ")[2].strip().split()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1
    assert "found it" in again.stderr
    path.write_bytes(b"good")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("body", "hang_seconds", "kind"),
    [
        ("os.abort() if data == b'other' else None", run.HANG_SECONDS, "the process ended with -6"),
        ("time.sleep(100) if data == b'other' else None", 2.0, "no end after 2 s"),
    ],
)
def test_what_kills_or_hangs_a_target_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, hang_seconds: float, kind: str
) -> None:
    """The input at hand outlives its process."""
    result = run.fuzz("fake", fake(tmp_path, monkeypatch, body, hang_seconds))
    [(found, path)] = result.findings
    assert found.startswith(kind)
    assert path.read_bytes() == b"other"


def test_deaths_are_distinguished_by_their_last_output() -> None:
    """Numbers differ from run to run and do not count; the place in native code does."""
    said = [
        "thread 'x' panicked at here\n",
        "   0: loro_internal::earlier\n",
        "memory allocation of 123 bytes failed\n",
        "   1: std::alloc\n",
        "   2: loro_internal::decode\n",
        "   3: loro_internal::outer\n",
    ]
    assert run._last_words(said) == ": memory allocation of N bytes failed in loro_internal::decode"
    assert run._last_words(["nothing"]) == ""


def test_the_table_has_a_line_for_each_target() -> None:
    """Target, engine, executions, seconds, edges, findings."""
    results = [
        Result("one", "atheris", 12, 3.2, "7"),
        Result("second", "random", 5, 1.0, findings=[("x", Path())]),
    ]
    head, first, second = run.table(results).splitlines()
    assert head.split() == ["target", "engine", "executions", "seconds", "edges", "findings"]
    assert first.split() == ["one", "atheris", "12", "3", "7", "0"]
    assert second.split() == ["second", "random", "5", "1", "-", "1"]


def test_an_unknown_target_is_refused_with_those_that_there_are() -> None:
    """A typing error runs nothing."""
    with pytest.raises(SystemExit, match="frames"):
        run.main(["--seconds", "1", "nothing"])


def test_the_run_says_which_engine_it_uses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the guided engine the run reports that, and stops only if the guided engine was required."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert run.chosen_engine("auto") == "random"
    assert "random mutation" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="atheris is not installed"):
        run.chosen_engine("atheris")


def test_a_watch_tells_each_kind_of_finding_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Panics of Loro, which are no Exceptions, count too."""

    def bad(data: bytes) -> None:
        if data == b"a":
            raise BaseException("panic")  # noqa: TRY002 - as Loro does
        raise ValueError

    slate = Slate.create(tmp_path / "slate", 10)
    watch = child.Watch("x", target.Target(bad, list, ()), slate, tmp_path / "found")
    for data in (b"a", b"b", b"a", b"c"):
        watch.one(data)
    output = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [fact["kind"].split()[0] for fact in output] == ["BaseException", "ValueError"]
    assert slate.executions == 4
    assert slate.data == b"c"
