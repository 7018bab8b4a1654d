"""A server's own id."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lorogo_cli.errors import CommandError
from lorogo_cli.services import worker_identity


def held(
    data: Path, worker: int, new_id: Callable[[], str], *, closed: bool = False
) -> AbstractContextManager[str]:
    return worker_identity.held(data, worker, new_id, closed=closed)


def test_an_id_is_made_once_and_kept(tmp_path: Path) -> None:
    """A server that starts again on the same folder is the same server."""
    with held(tmp_path, 0, lambda: "first") as server_id:
        assert server_id == "first"
    with held(tmp_path, 0, lambda: "second") as server_id:
        assert server_id == "first"
    with held(tmp_path, 1, lambda: "second") as server_id:
        assert server_id == "second"
    assert sorted(path.name for path in (tmp_path / "worker-0").iterdir()) == ["lock", "server-id"]


def test_two_servers_never_share_an_id(tmp_path: Path) -> None:
    """The error of the second server names the option to change."""
    with (
        held(tmp_path, 0, lambda: "one"),
        pytest.raises(CommandError, match=r"worker-0 is in use by another server: .* --data"),
        held(tmp_path, 0, lambda: "two"),
    ):
        raise AssertionError("unreachable")


@pytest.mark.parametrize("content", [b"", b"not an id\n", b"\xff\xfe", b"a" * 65])
def test_a_damaged_id_is_not_used(tmp_path: Path, content: bytes) -> None:
    """A file that holds no id is named, not replaced in silence."""
    (tmp_path / "worker-0").mkdir()
    (tmp_path / "worker-0" / "server-id").write_bytes(content)
    with pytest.raises(CommandError, match="does not contain a server id"), held(tmp_path, 0, lambda: "new"):
        raise AssertionError("unreachable")


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A file in the place of the folder is one sentence."""
    (tmp_path / "data").write_text("")
    with pytest.raises(CommandError, match="cannot be used"), held(tmp_path / "data", 0, lambda: "new"):
        raise AssertionError("unreachable")


def test_what_was_closed_is_not_opened_by_mistake(tmp_path: Path) -> None:
    """A journal of a closed lorogo would bring its documents into an open NATS."""
    with held(tmp_path, 0, lambda: "one"):
        pass  # open, as it was
    for _ in range(2):
        with held(tmp_path, 0, lambda: "one", closed=True):
            pass
    with (
        pytest.raises(
            CommandError, match=r"documents of a closed lorogo.*--data, or remove .*closed"
        ) as said,
        held(tmp_path, 0, lambda: "one"),
    ):
        raise AssertionError("unreachable")
    mark = tmp_path / "worker-0" / "closed"
    assert str(mark) in str(said.value)
    mark.unlink()
    with held(tmp_path, 0, lambda: "one") as server_id:
        assert server_id == "one"


def test_others_cannot_look_into_a_folder(tmp_path: Path) -> None:
    """Its journals have the documents; a group may read them, for the pipeline."""
    with held(tmp_path, 0, lambda: "one"):
        assert (tmp_path / "worker-0").stat().st_mode & 0o007 == 0
