"""One stream of the in-memory twin: sequences, limits, compare-and-swap, rollup.

Pure; time is an argument.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from lorogo_testing.change_log import ReplicaLag, StreamChangeLog
from lorogo_transport.errors import StorageFull, WrongLastSequence
from lorogo_transport.headers import EXPECTED_LAST, encode_headers, own_headers
from lorogo_transport.nats import api
from lorogo_transport.ports import Headers, StoredMessage, StreamState
from lorogo_transport.rpc.subject_patterns import matches

ROLLUP = "Nats-Rollup"
_ROLLUP_DENIED = 10111
_COVERED_MAX = 1000  # cached answers
_RECORD_BYTES = 30  # added by NATS to each message on disk


class StreamStore:
    """The messages of a stream, and its rules for appends."""

    def __init__(
        self, config: Mapping[str, Any], created_ns: int = 0, change_log: StreamChangeLog | None = None
    ) -> None:
        self.config = config
        self.change_log = change_log
        self._created_ns = created_ns
        self._messages: dict[int, StoredMessage] = {}  # in order of sequence
        self._sizes: dict[int, int] = {}
        self._by_subject: dict[str, list[int]] = {}
        self._bytes = 0
        self._last = max(0, int(self.config.get("first_seq", 0)) - 1)

    @property
    def config(self) -> dict[str, Any]:
        return self._config

    @config.setter
    def config(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._covered: dict[str, bool] = {}

    @property
    def name(self) -> str:
        return str(self.config["name"])

    def covers(self, subject: str) -> bool:
        covered = self._covered.get(subject)
        if covered is None:
            if len(self._covered) >= _COVERED_MAX:
                self._covered.clear()
            covered = any(matches(pattern, subject) for pattern in self._config["subjects"])
            self._covered[subject] = covered
        return covered

    def store(self, subject: str, data: bytes, headers: Headers, now_ns: int) -> tuple[StoredMessage, int]:
        """Store a message; return it and its subject's previous sequence. Raises as `Stream.append`."""
        self._expire(now_ns)
        previous = self.last_sequence(subject)
        if EXPECTED_LAST in headers and headers[EXPECTED_LAST] != str(previous):
            raise WrongLastSequence(f"stream {self.name!r}: wrong last sequence: {previous}")
        rollup = headers.get(ROLLUP)
        if rollup is not None and not self.config.get("allow_rollup_hdrs"):
            raise api.ApiError(self.name, _ROLLUP_DENIED, "rollup not permitted")
        size = _RECORD_BYTES + len(subject) + len(data) + (len(encode_headers(headers)) if headers else 0)
        self._make_room(size)
        self._last += 1
        stored = StoredMessage(subject, self._last, now_ns, data, own_headers(headers))
        self._messages[self._last] = stored
        self._sizes[self._last] = size
        self._by_subject.setdefault(subject, []).append(self._last)
        self._bytes += size
        if self.change_log is not None:
            self.change_log.stored(stored, previous)
        if rollup == "sub":
            self.purge(subject, self._last, how="rollup")
        per_subject = self.config.get("max_msgs_per_subject", -1)
        if per_subject > 0:
            self._remove(self._by_subject[subject][:-per_subject], "limit")
        return stored, previous

    def last_sequence(self, subject: str) -> int:
        sequences = self._by_subject.get(subject)
        return sequences[-1] if sequences else 0

    def last(self, subject: str, now_ns: int) -> StoredMessage | None:
        self._expire(now_ns)
        sequence = max((self.last_sequence(found) for found in self._matching(subject)), default=0)
        return self._messages.get(sequence)

    def get(self, sequence: int, now_ns: int) -> StoredMessage | None:
        self._expire(now_ns)
        return self._messages.get(sequence)

    def batch(
        self, subject: str, first: int, now_ns: int, *, messages_max: int, bytes_max: int, lag: int = 0
    ) -> tuple[list[StoredMessage], int]:
        """Return messages from `first` on, and how many remain; from a replica that lags by `lag` changes."""
        self._expire(now_ns)
        behind = self._behind(lag)
        messages: list[StoredMessage] = []
        for found in self._matching(subject, behind):
            messages += self._from(found, first, behind)
        messages.sort(key=_sequence)
        taken = 0
        for index, stored in enumerate(messages[:messages_max], 1):
            taken += self._sizes.get(stored.sequence, len(stored.data))
            if taken >= bytes_max:
                return messages[:index], len(messages) - index
        return messages[:messages_max], max(0, len(messages) - messages_max)

    def newest_of(self, subjects: Iterable[str], now_ns: int, lag: int = 0) -> list[StoredMessage]:
        self._expire(now_ns)
        behind = self._behind(lag)
        if behind is None:
            return [self._messages[own[-1]] for subject in subjects if (own := self._by_subject.get(subject))]
        return [found[-1] for subject in subjects if (found := self._from(subject, 0, behind))]

    def count(self, pattern: str, now_ns: int) -> int:
        return sum(self.subjects(pattern, now_ns).values())

    def subjects(self, pattern: str, now_ns: int) -> dict[str, int]:
        self._expire(now_ns)
        return {subject: len(self._by_subject[subject]) for subject in self._matching(pattern)}

    def purge(self, pattern: str, before: int | None, how: str = "purge") -> int:
        expired = [
            sequence
            for subject in self._matching(pattern)
            for sequence in self._by_subject[subject]
            if before is None or sequence < before
        ]
        return self._remove(expired, how)

    def remove(self, sequence: int) -> bool:
        return self._remove((sequence,), "delete") > 0

    def lose(self, sequences: Iterable[int]) -> int:
        """Lose these messages, as a damaged store does; return their number."""
        return self._remove(sequences, "loss")

    def last_until(self, time_ns: int) -> int:
        """Return the last sequence stored by then, else one below the first current message."""
        older = [sequence for sequence, one in self._messages.items() if one.time_ns <= time_ns]
        return max(older, default=min(self._messages, default=self._last + 1) - 1)

    def rewind(self, last: int) -> None:
        """Lose every message after `last`, as a damaged store does: the next one gets `last` + 1."""
        self.lose([sequence for sequence in self._messages if sequence > last])
        self._last = min(self._last, last)
        if self.change_log is not None:
            self.change_log.forget()  # also removals before: no replica has those messages

    def state(self, now_ns: int) -> StreamState:
        self._expire(now_ns)
        first = next(iter(self._messages), self._last + 1 if self._last else 0)
        limit = self.config.get("max_bytes", -1)
        counts = (first, self._last, len(self._messages), self._bytes)
        return StreamState(*counts, 0, limit, self._created_ns, now_ns)

    def _matching(self, pattern: str, behind: ReplicaLag | None = None) -> list[str]:
        held = self._by_subject if behind is None else {**self._by_subject, **behind.kept}
        if "*" not in pattern and ">" not in pattern:
            return [pattern] if pattern in held else []
        return [subject for subject in held if matches(pattern, subject)]

    def _behind(self, lag: int) -> ReplicaLag | None:
        return self.change_log.behind(lag) if lag > 0 and self.change_log is not None else None

    def _from(self, subject: str, first: int, behind: ReplicaLag | None) -> list[StoredMessage]:
        """Return the subject's messages from `first` on, in order."""
        own = self._by_subject.get(subject, [])
        found = [self._messages[sequence] for sequence in own[bisect_left(own, first) :]]
        if behind is not None:
            found = [stored for stored in found if stored.sequence not in behind.hidden]
            kept = behind.kept.get(subject, {}).values()
            found += [stored for stored in kept if stored.sequence >= first]
            found.sort(key=_sequence)
        return found

    def _remove(self, sequences: Iterable[int], how: str) -> int:
        gone: list[StoredMessage] = []
        for sequence in sequences:
            stored = self._messages.pop(sequence, None)
            if stored is None:
                continue
            gone.append(stored)
            self._bytes -= self._sizes.pop(sequence)
            own = self._by_subject[stored.subject]
            del own[bisect_left(own, sequence)]
            if not own:
                del self._by_subject[stored.subject]
        if gone and self.change_log is not None:
            self.change_log.removed(gone, how)
        return len(gone)

    def _make_room(self, size: int) -> None:
        limit = self.config.get("max_bytes", -1)
        if limit <= 0 or self._bytes + size <= limit:
            return
        if self.config.get("discard") == "new" or size > limit:
            raise StorageFull(f"stream {self.name!r}: maximum bytes exceeded")
        while self._messages and self._bytes + size > limit:
            self._remove((next(iter(self._messages)),), "limit")

    def _expire(self, now_ns: int) -> None:
        age = self.config.get("max_age", 0)
        while age > 0 and self._messages:
            sequence, oldest = next(iter(self._messages.items()))
            if oldest.time_ns > now_ns - age:
                return
            self._remove((sequence,), "age")


def _sequence(stored: StoredMessage) -> int:
    return stored.sequence
