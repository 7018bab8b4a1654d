"""The server id of each worker of `lorogo serve --data DIR`, locked in DIR/worker-K."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_server import identity
from lorogo_server.identity import HomeInUse, HomeUnusable

_CLOSED = "closed"  # a marker file: the journals belong to a lorogo with tokens


def folder(data: Path, worker: int) -> Path:
    """Return the folder of that worker's files."""
    return data / f"worker-{worker}"


def known(data: Path) -> frozenset[str]:
    """Return the ids of all workers that ever ran in this data folder."""
    found = (identity.read(home.parent) for home in data.glob("worker-*/server-id"))
    return frozenset(one for one in found if one is not None)


@contextmanager
def held(
    data: Path, worker: int, new_id: Callable[[], str], *, closed: bool, option: str = "--data"
) -> Iterator[str]:
    """Yield the server id of that worker, locked until the end of the block.

    Raises CommandError if it is in use, or if it has documents of a closed lorogo and this one is open.
    """
    home = folder(data, worker)
    try:
        with identity.held(home, new_id) as server_id:
            _check_open(home / _CLOSED, closed=closed, option=option)
            yield server_id
    except HomeInUse as error:
        raise CommandError(f"{error}: choose another folder with {option}") from None
    except HomeUnusable as error:
        raise CommandError(str(error)) from None


def _check_open(mark: Path, *, closed: bool, option: str) -> None:
    """Refuse an open NATS for journals of a closed one: recovery would publish their documents there."""
    try:
        if closed:
            mark.touch(0o640)
        elif mark.exists():
            raise CommandError(
                f"{mark.parent} has documents of a closed lorogo, and this one needs no tokens:"
                f" choose another folder with {option}, or remove {mark} to make the documents public"
            )
    except OSError as error:
        raise HomeUnusable(f"cannot use the folder {mark.parent}: {error.strerror}") from None
