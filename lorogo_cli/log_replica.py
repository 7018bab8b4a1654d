"""A replica (or a coordinator) of a log, asked for good copies of damaged segments."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from lorogo_cli.errors import Problem, brief, one_line
from lorogo_cli.log_found import Found
from lorogo_log import maintain
from lorogo_log.errors import CorruptionError, FormatError, LogError
from lorogo_log.segment import Segment
from lorogo_log.transfer import SegmentClient
from lorogo_log.wire import Entry

_SECONDS = 30.0
_PIECE_BYTES = 1 << 20


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT; an IPv6 host in brackets. Raises Problem."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise Problem(f"{brief(text)} is not an address: write HOST:PORT, as in 10.0.0.5:7400")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Source:
    """One connection to somebody who has the log too."""

    def __init__(self, address: str, here: Found) -> None:
        self._address = address
        where = parse_address(address)
        with self._asking():
            self._client = SegmentClient(where, timeout=_SECONDS, log_id=_log_id(here))
            try:
                entries = self._client.catalog()
            except (OSError, LogError, struct.error):
                self._client.close()
                raise
        self._entries = {entry.name: entry for entry in entries if entry.sealed and not entry.damaged}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def has(self, name: str) -> bool:
        """Whether it has a good copy of a segment."""
        return name in self._entries

    def install(self, here: Found, name: str) -> None:
        """Put its copy in place of ours, which is kept as `.broken`. Raises Problem; then ours stays."""
        entry = self._entries[name]
        _require_fit(here, entry)
        try:
            maintain.install(here.directory, name, self._pieces(entry))
        except (CorruptionError, FormatError) as error:
            raise Problem(f"the copy at {self._address} is no good either: {one_line(error)}") from None

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        at = 0
        while at < entry.size:
            with self._asking():
                piece = self._client.read(entry, at=at, size=min(_PIECE_BYTES, entry.size - at))
            if not piece:
                raise Problem(f"{self._address} broke off in the middle of {entry.name}")
            yield piece
            at += len(piece)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """For what goes over the network, and only that."""
        try:
            yield
        except OSError as error:
            why = error.strerror or one_line(error)
            raise Problem(f"no replica answers at {self._address}: {why}") from None
        except (LogError, struct.error) as error:
            raise Problem(f"the replica at {self._address} cannot help: {one_line(error)}") from None


def _log_id(here: Found) -> bytes:
    """Which log this is, as a good segment says; zeros if none does."""
    for entry in here.entries:
        try:
            segment = Segment.open(here.directory, entry.name)
        except (CorruptionError, FormatError, FileNotFoundError):
            continue
        segment.close()
        if segment.damage is None:
            return segment.header.log_id
    return bytes(16)


def _require_fit(here: Found, entry: Entry) -> None:
    """The copy must lead to the segment after it. Raises Problem."""
    after = next((one for one in here.entries if one.first_sequence > entry.first_sequence), None)
    if after is None:
        return
    try:
        segment = Segment.open(here.directory, after.name)
    except (CorruptionError, FormatError, FileNotFoundError):
        return  # nothing to compare with
    segment.close()
    header = segment.header
    follows = segment.damage is None and header.first_offset == entry.end_offset
    if entry.last_sequence >= after.first_sequence or (follows and header.chain != entry.chain):
        raise Problem(
            f"{entry.name} of the replica does not lead to {after.name}: its history is another one"
        )
