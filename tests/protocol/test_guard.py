"""`crdt.guard()`: Loro's errors become ours, and nothing else does."""

import asyncio

import pytest
from loro import LoroDoc

from lorogo_protocol.errors import CrdtError, HistoryTrimmed, InvalidUpdate
from lorogo_protocol.loro.crdt import CrdtPanic, guard, reading


class PanicException(BaseException):
    """The exception of pyo3 for a panic in Rust: it is created at run time, so it cannot be imported."""


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (BaseException("Decode error: (Invalid import data)"), InvalidUpdate),
        (BaseException("could not decode the frontiers"), InvalidUpdate),
        (BaseException("dependencies are not included in the shallow history of the doc"), HistoryTrimmed),
        (BaseException("a version before the shallow history's start version"), HistoryTrimmed),
        (BaseException("something else"), CrdtError),
        (PanicException("called `Option::unwrap()` on a `None` value"), CrdtPanic),
    ],
)
def test_loros_errors_become_ours(error: BaseException, ours: type[CrdtError]) -> None:
    """Each has its class, keeps its words, and hides where it came from."""
    with pytest.raises(CrdtError) as caught, guard():
        raise error
    assert type(caught.value) is ours
    assert str(caught.value) == str(error)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(3),
        asyncio.CancelledError(),
        GeneratorExit(),
        ValueError("Decode error"),
        TypeError("decode"),
        InvalidUpdate("ours already"),
        BaseExceptionGroup("several", [KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_everything_else_passes(error: BaseException) -> None:
    """Cancellation, interrupts, our own mistakes and our own errors go through untouched."""
    with pytest.raises(type(error)) as caught, guard():
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (BaseException("something else"), InvalidUpdate),
        (BaseException("a version before the shallow history's start version"), HistoryTrimmed),
        (PanicException("called `Option::unwrap()` on a `None` value"), CrdtPanic),
    ],
)
def test_an_unspecific_error_over_foreign_bytes_is_an_invalid_update(
    error: BaseException, ours: type[CrdtError]
) -> None:
    """`reading()` keeps the class of every other error."""
    with pytest.raises(CrdtError) as caught, reading():
        raise error
    assert (type(caught.value), str(caught.value)) == (ours, str(error))


def test_nothing_happens_when_nothing_is_raised() -> None:
    with guard():
        value = 1
    assert value == 1


async def test_a_task_can_be_cancelled_inside() -> None:
    """A task that is cancelled under the guard is cancelled."""
    entered = asyncio.Event()

    async def work() -> None:
        with guard():
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.wait_for(entered.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert task.cancelled()


def test_a_real_error_of_loro() -> None:
    """Not a made-up one: Loro raises a bare BaseException here."""
    doc = LoroDoc()
    with pytest.raises(InvalidUpdate), guard():
        doc.import_(b"no update")


def test_a_real_panic_of_loro(capfd: pytest.CaptureFixture[str]) -> None:
    """A callback that raises makes Loro panic; its class is known by name only."""
    doc = LoroDoc()

    def fail(_event: object) -> None:
        raise ValueError

    subscription = doc.subscribe_root(fail)
    doc.get_text("t").insert(0, "x")
    with pytest.raises(CrdtPanic), guard():
        doc.commit()
    subscription.unsubscribe()
    assert "panicked" in capfd.readouterr().err
