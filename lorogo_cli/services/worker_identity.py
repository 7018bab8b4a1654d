"""Which server a worker of `lorogo serve --data DIR` is: the id in DIR/worker-K, ours alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_server import identity
from lorogo_server.identity import HomeInUse, HomeUnusable

_CLOSED = "closed"  # a file that says so: its journals are for those who have tokens


def folder(data: Path, worker: int) -> Path:
    """Where that worker keeps what is its own."""
    return data / f"worker-{worker}"


def known(data: Path) -> frozenset[str]:
    """The ids of all workers that ever ran there, whether they run now or not."""
    found = (identity.read(home.parent) for home in data.glob("worker-*/server-id"))
    return frozenset(one for one in found if one is not None)


@contextmanager
def held(
    data: Path, worker: int, new_id: Callable[[], str], *, closed: bool, option: str = "--data"
) -> Iterator[str]:
    """The server id of that worker, ours alone inside the block.

    Raises Problem if it is in use, or has documents of a closed lorogo and this one is open.
    """
    home = folder(data, worker)
    try:
        with identity.held(home, new_id) as server_id:
            _check_open(home / _CLOSED, closed=closed, option=option)
            yield server_id
    except HomeInUse as error:
        raise CommandError(f"{error}: give this one its own with {option}") from None
    except HomeUnusable as error:
        raise CommandError(str(error)) from None


def _check_open(mark: Path, *, closed: bool, option: str) -> None:
    """What a journal has comes back into any NATS that lacks it: from a closed one never into an open one."""
    try:
        if closed:
            mark.touch(0o640)
        elif mark.exists():
            raise CommandError(
                f"{mark.parent} has documents of a closed lorogo, which everybody could read here:"
                f" choose another folder with {option}, or remove {mark} if they may be open"
            )
    except OSError as error:
        raise HomeUnusable(f"the folder {mark.parent} cannot be used: {error.strerror}") from None
