"""The background of a writer, alone: what is prepared, what is sealed, and who is told."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lorogo_log import LogFailedError, MemoryStorage
from lorogo_log.storage.disk import Directory
from lorogo_log.write.engine import LogHead, OpenSegment, SegmentAppender
from lorogo_log.write.sealer import Sealer


class Owner:
    """Who a sealer tells of an error, and asks for it: as a writer does."""

    def __init__(self) -> None:
        self.directory: Directory = MemoryStorage().directory("log", create=True)
        self.engine = SegmentAppender(
            self.directory, LogHead(), log_id=bytes(16), segment_bytes=4096, ahead_bytes=0
        )
        self.error: LogFailedError | None = None
        self.sealed: list[str] = []
        self.sealer = Sealer(
            self.engine, failed=lambda: self.error, fail=self.fail, after_seal=self.sealed.append
        )

    def fail(self, error: Exception) -> None:
        self.error = LogFailedError(str(error))
        self.sealer.stop(self.error)

    def finished(self) -> OpenSegment:
        """A segment with one record, that gets no more."""
        self.engine.commit([b"k"], [b"\x01"], [0])
        self.engine.standby = self.sealer.take_standby()
        return self.engine.swap(synced=True)

    @contextmanager
    def background(self) -> Iterator[None]:
        thread = threading.Thread(target=self.sealer.run, daemon=True)
        thread.start()
        yield
        thread.join(10)
        assert not thread.is_alive()


def test_the_next_segment_is_there_before_the_old_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waits for a file comes first: a seal can be late."""
    owner = Owner()
    owner.sealer.run_pending()
    first = owner.finished()
    owner.sealer.hand_over(first)
    order: list[str] = []
    prepare, seal = owner.engine.prepare, owner.engine.seal

    def preparing() -> OpenSegment:
        order.append("prepare")
        return prepare()

    def sealing(segment: OpenSegment) -> None:
        order.append("seal")
        seal(segment)

    monkeypatch.setattr(owner.engine, "prepare", preparing)
    monkeypatch.setattr(owner.engine, "seal", sealing)
    owner.sealer.run_pending()
    assert order == ["prepare", "seal"]
    assert owner.sealed == [first.name]


def test_last_is_done_when_everything_before_it_is_sealed() -> None:
    """Seals come in the order of the segments, so the last one speaks for all."""
    owner = Owner()
    with owner.background():
        for _ in range(3):
            owner.sealer.hand_over(owner.finished())
        if (last := owner.sealer.pending_seals()) is not None:
            last.result(10)
        assert owner.sealer.pending_seals() is None
        owner.sealer.retire()
    assert len(owner.sealed) == 3


def test_a_prepared_file_disappears_when_the_writer_retires() -> None:
    """What was handed over is sealed before that."""
    owner = Owner()
    owner.sealer.run_pending()
    last = owner.finished()
    owner.sealer.hand_over(last)
    owner.sealer.prepare()
    owner.sealer.retire()
    owner.sealer.run_pending()
    assert owner.sealer.standby is None
    assert owner.sealed == [last.name]
    assert set(owner.directory.list()) == {last.name, owner.engine.active.name}


def test_an_error_is_told_to_who_waits_for_a_seal_and_to_who_waits_for_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is tried again, and nobody waits for a background that has ended."""
    owner = Owner()
    owner.sealer.run_pending()
    owner.sealer.hand_over(owner.finished())
    last = owner.sealer.pending_seals()
    assert last is not None

    def broken(_: OpenSegment) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(owner.engine, "seal", broken)
    with owner.background(), pytest.raises(LogFailedError, match="disk on fire"):
        last.result(10)
    owner.sealer.standby = None
    with pytest.raises(LogFailedError, match="disk on fire"):
        owner.sealer.take_standby()
    assert owner.sealed == []
