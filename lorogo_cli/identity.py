"""Which server a worker of `lorogo serve --data DIR` is: the id in DIR/worker-K, ours alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lorogo_cli.errors import Problem
from lorogo_server import identity
from lorogo_server.identity import HomeInUse, HomeUnusable


def folder(data: Path, worker: int) -> Path:
    """Where that worker keeps what is its own."""
    return data / f"worker-{worker}"


def known(data: Path) -> frozenset[str]:
    """The ids of all workers that ever ran there, whether they run now or not."""
    found = (identity.read(home.parent) for home in data.glob("worker-*/server-id"))
    return frozenset(one for one in found if one is not None)


@contextmanager
def held(data: Path, worker: int, new_id: Callable[[], str], *, option: str = "--data") -> Iterator[str]:
    """The server id of that worker, ours alone inside the block. Raises Problem if it is in use."""
    try:
        with identity.held(folder(data, worker), new_id) as server_id:
            yield server_id
    except HomeInUse as error:
        raise Problem(f"{error}: give this one its own with {option}") from None
    except HomeUnusable as error:
        raise Problem(str(error)) from None
