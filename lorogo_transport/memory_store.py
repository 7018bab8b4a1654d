"""One stream of the in-memory twin: sequences, limits, compare-and-swap, rollup. Pure; time comes in."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from lorogo_transport import api
from lorogo_transport.errors import StorageFull, WrongLastSequence
from lorogo_transport.headers import encode_headers, own_headers
from lorogo_transport.ports import Headers, Stored, StreamState
from lorogo_transport.subjects import matches

EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
ROLLUP = "Nats-Rollup"
_ROLLUP_DENIED = 10111
_RECORD_BYTES = 30  # what NATS adds to each message on disk


class StreamStore:
    """What a stream holds, and the rules by which it takes more."""

    def __init__(self, config: Mapping[str, Any], created_ns: int = 0) -> None:
        self.config: dict[str, Any] = dict(config)
        self._created_ns = created_ns
        self._messages: dict[int, Stored] = {}  # in order of sequence
        self._sizes: dict[int, int] = {}
        self._by_subject: dict[str, list[int]] = {}
        self._bytes = 0
        self._last = max(0, int(self.config.get("first_seq", 0)) - 1)

    @property
    def name(self) -> str:
        return str(self.config["name"])

    def covers(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self.config["subjects"])

    def store(self, subject: str, data: bytes, headers: Headers, now_ns: int) -> tuple[Stored, int]:
        """Store; returns the message and its subject's last sequence before it. Raises as `Stream.append`."""
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
        stored = Stored(subject, self._last, now_ns, data, own_headers(headers))
        self._messages[self._last] = stored
        self._sizes[self._last] = size
        self._by_subject.setdefault(subject, []).append(self._last)
        self._bytes += size
        if rollup == "sub":
            self.purge(subject, self._last)
        per_subject = self.config.get("max_msgs_per_subject", -1)
        if per_subject > 0:
            for sequence in self._by_subject[subject][:-per_subject]:
                self.remove(sequence)
        return stored, previous

    def last_sequence(self, subject: str) -> int:
        sequences = self._by_subject.get(subject)
        return sequences[-1] if sequences else 0

    def last(self, subject: str, now_ns: int) -> Stored | None:
        self._expire(now_ns)
        sequence = max((self.last_sequence(found) for found in self._matching(subject)), default=0)
        return self._messages.get(sequence)

    def get(self, sequence: int, now_ns: int) -> Stored | None:
        self._expire(now_ns)
        return self._messages.get(sequence)

    def batch(
        self, subject: str, first: int, now_ns: int, *, messages_max: int, bytes_max: int
    ) -> tuple[list[Stored], int]:
        """Messages from `first` on, and how many remain."""
        self._expire(now_ns)
        sequences: list[int] = []
        for found in self._matching(subject):
            own = self._by_subject[found]
            sequences += own[bisect_left(own, first) :]
        sequences.sort()
        batch: list[Stored] = []
        taken = 0
        for sequence in sequences[:messages_max]:
            batch.append(self._messages[sequence])
            taken += self._sizes[sequence]
            if taken >= bytes_max:
                break
        return batch, len(sequences) - len(batch)

    def newest(self, pattern: str, now_ns: int) -> list[Stored]:
        self._expire(now_ns)
        return [self._messages[self._by_subject[subject][-1]] for subject in self._matching(pattern)]

    def newest_of(self, subjects: Iterable[str], now_ns: int) -> list[Stored]:
        self._expire(now_ns)
        return [self._messages[own[-1]] for subject in subjects if (own := self._by_subject.get(subject))]

    def count(self, pattern: str, now_ns: int) -> int:
        return sum(self.subjects(pattern, now_ns).values())

    def subjects(self, pattern: str, now_ns: int) -> dict[str, int]:
        self._expire(now_ns)
        return {subject: len(self._by_subject[subject]) for subject in self._matching(pattern)}

    def purge(self, pattern: str, before: int | None) -> int:
        doomed = [
            sequence
            for subject in self._matching(pattern)
            for sequence in self._by_subject[subject]
            if before is None or sequence < before
        ]
        for sequence in doomed:
            self.remove(sequence)
        return len(doomed)

    def remove(self, sequence: int) -> bool:
        stored = self._messages.pop(sequence, None)
        if stored is None:
            return False
        self._bytes -= self._sizes.pop(sequence)
        sequences = self._by_subject[stored.subject]
        del sequences[bisect_left(sequences, sequence)]
        if not sequences:
            del self._by_subject[stored.subject]
        return True

    def rewind(self, last: int) -> None:
        """Lose every message after `last`, as a damaged store does: the next one gets `last` + 1."""
        for sequence in [sequence for sequence in self._messages if sequence > last]:
            self.remove(sequence)
        self._last = min(self._last, last)

    def state(self, now_ns: int) -> StreamState:
        self._expire(now_ns)
        first = next(iter(self._messages), self._last + 1 if self._last else 0)
        limit = self.config.get("max_bytes", -1)
        return StreamState(first, self._last, len(self._messages), self._bytes, 0, limit, self._created_ns)

    def _matching(self, pattern: str) -> list[str]:
        if "*" not in pattern and ">" not in pattern:
            return [pattern] if pattern in self._by_subject else []
        return [subject for subject in self._by_subject if matches(pattern, subject)]

    def _make_room(self, size: int) -> None:
        limit = self.config.get("max_bytes", -1)
        if limit <= 0 or self._bytes + size <= limit:
            return
        if self.config.get("discard") == "new" or size > limit:
            raise StorageFull(f"stream {self.name!r}: maximum bytes exceeded")
        while self._messages and self._bytes + size > limit:
            self.remove(next(iter(self._messages)))

    def _expire(self, now_ns: int) -> None:
        age = self.config.get("max_age", 0)
        while age > 0 and self._messages:
            sequence, oldest = next(iter(self._messages.items()))
            if oldest.time_ns > now_ns - age:
                return
            self.remove(sequence)
