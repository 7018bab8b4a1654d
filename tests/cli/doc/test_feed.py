"""`lorogo feed` against `lorogo dev`: real processes, as a user has them."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lorogo_cli.doc.feed import _read, parse_since
from lorogo_cli.errors import CommandError
from tests.cli.support import Running, lorogo, refused, said


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A `lorogo dev` of this file's own."""
    dev = Running(["dev", "--port", "0", "--web-port", "0"], cwd=tmp_path_factory.mktemp("dev"), name="dev")
    try:
        found = re.search(r"NATS +(nats://\S+)", dev.wait_for("asyncio.run(main())"))
        assert found is not None
        yield found[1]
    finally:
        dev.kill()


def set_title(url: str, cwd: Path, document: str, title: str) -> None:
    said(lorogo("doc", "set", document, "title", json.dumps(title), cwd=cwd, env={"LOROGO_NATS": url}))


@pytest.mark.nats
@pytest.mark.slow
def test_lines_go_on_where_the_file_says(url: str, tmp_path: Path) -> None:
    """Two runs with one position file print every update once; one document can be chosen."""
    set_title(url, tmp_path, "one", "a")
    set_title(url, tmp_path, "two", "b")
    place = tmp_path / "position"
    seen: list[dict[str, object]] = []
    for turn, wanted in enumerate(("a", "ab")):
        set_title(url, tmp_path, "one", wanted + "c")
        arguments = ["feed", "--json", "--position", str(place), "--document", "one", "--nats", url]
        running = Running(arguments + ([] if turn else ["--since", "0"]), cwd=tmp_path, name=f"feed-{turn}")
        try:
            running.wait_for("\n" if turn else '"sequence":3')
            assert running.stop(signal.SIGINT) == 130
            assert running.err.read_text() == ""
        finally:
            running.kill()
        seen += [json.loads(line) for line in running.out.read_text().splitlines()]
    assert [line["document"] for line in seen] == ["one"] * 3
    assert len({line["log_id"] for line in seen}) == 3
    assert place.read_text().startswith("lf1-")
    sentence = refused(lorogo("feed", "--since", "0", "--position", str(place), "--nats", url, cwd=tmp_path))
    assert "leave out --since" in sentence
    place.write_text("lf1-nonsense")
    sentence = refused(lorogo("feed", "--position", str(place), "--nats", url, cwd=tmp_path))
    assert sentence.startswith(f"{place} does not contain a feed position: remove it")


@pytest.mark.nats
@pytest.mark.slow
def test_lines_for_people(url: str, tmp_path: Path) -> None:
    """Time, document, size and sequence."""
    set_title(url, tmp_path, "shown", "x")
    running = Running(
        ["feed", "--since", "1h", "--document", "shown", "--nats", url], cwd=tmp_path, name="feed"
    )
    try:
        text = running.wait_for("\n")
    finally:
        running.kill()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.+-]+  shown  \d+ B  at \d+  [\w-]+\n", text), text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("now", "'now'"), ("0", "0"), ("4711", "4711"), ("1970-01-01T00:00:05+00:00", "00:00:05+00:00")],
)
def test_since_is_read(text: str, shown: str) -> None:
    """A word, a sequence, or a time."""
    assert shown in (repr if text == "now" else str)(parse_since(text, now_ns=10**18))


def test_a_wrong_since_is_a_sentence() -> None:
    """An invalid value is refused with the valid kinds; a feed does not begin at a version of one
    document.
    """
    for text in ("yesterday", "vAbCd"):
        with pytest.raises(
            CommandError, match=r"takes now, 0 \(everything\), a sequence, a time .* or an age"
        ):
            parse_since(text, now_ns=0)


@pytest.mark.parametrize("text", ["", "\n", None])
def test_a_position_file_with_nothing_in_it_is_a_beginning(tmp_path: Path, text: str | None) -> None:
    """An empty file counts as missing: the feed begins at --since."""
    if text is not None:
        (tmp_path / "position").write_text(text)
    assert _read(tmp_path / "position") is None


@pytest.mark.parametrize("data", [b"lf1-nonsense", b"\xff\xfe", b"4711"])
def test_a_broken_position_file_is_named_with_what_to_do(tmp_path: Path, data: bytes) -> None:
    """It is not taken for a beginning: that would be read twice, or left out."""
    place = tmp_path / "position"
    place.write_bytes(data)
    with pytest.raises(CommandError, match=f"{place} does not contain a feed position: remove it"):
        _read(place)
