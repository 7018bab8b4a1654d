"""Creates the JetStream streams that the server needs, and updates their settings."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lorogo_protocol import limits
from lorogo_protocol.messages import subjects
from lorogo_server.settings import ServerSettings
from lorogo_transport.clock import Clock
from lorogo_transport.errors import StorageFull
from lorogo_transport.ports import StreamSpec, Transport
from lorogo_transport.stores import topology
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

FITTED = 0  # value of `wal_bytes_max`: choose a limit that fits JetStream's storage

# If NATS's clock went back, other servers may know higher revisions, which must not be issued again.
_GAP = 60_000_000


async def ensure(
    transport: Transport,
    settings: ServerSettings,
    clock: Clock,
    *,
    guarded: bool | None,
    above: int = 0,
    known: Callable[[], Awaitable[int]] | None = None,
) -> list[tuple[str, str]]:
    """Create or update all streams; return the changes as (stream, change). Raises TransportError.

    Fencing tokens are revisions of the status bucket. A new bucket starts at NATS's clock in microseconds.
    No bucket issues revisions faster than the clock runs, so a later bucket starts above all earlier tokens,
    even if its creator knows none of them (docs/decisions/0001). `above` is the highest known token. If NATS
    is empty, and may have lost all data, `known` returns the highest token in the journals.
    """
    changes: list[tuple[str, str]] = []
    wal_spec: StreamSpec | None = None
    for spec in topology.specs(
        replicas=settings.replicas,
        wal_bytes_max=settings.wal_bytes_max,
        kept_presence_bytes_max=settings.kept_presence_bytes_max,
        status_first_sequence=1,  # see below
        guarded=guarded,
    ):
        if spec.first_sequence:
            wal = transport.stream(subjects.WAL_STREAM)  # exists: the WAL is created first
            state = await wal.state()
            if known is not None and not state.last_sequence:
                above = max(above, await known())
                state = await wal.state()  # as late as possible, so that it is above tokens issued meanwhile
            first = first_token(state.now_ns or clock.wall_ns(), above)
            spec = replace(spec, first_sequence=first)  # noqa: PLW2901
        elif spec.name == subjects.WAL_STREAM:
            wal_spec = spec
        changes += [(spec.name, change) for change in await transport.ensure(spec)]
    if settings.wal_bytes_max == FITTED:
        assert wal_spec is not None
        changes += [(wal_spec.name, change) for change in await _fit(transport, wal_spec)]
    return changes


async def _fit(transport: Transport, spec: StreamSpec) -> list[str]:
    """Set a limit on a WAL without one: half of the storage that JetStream can reserve. Return the change.

    NATS does not report the size of its disk, but refuses a limit that its storage cannot hold, so this tries
    descending limits. The other half is for snapshots. The limit is at least twice the stored bytes: the new
    limit causes no refusal and removes no message.
    """
    state = await transport.stream(spec.name).state()
    if state.bytes_max > 0:
        return []
    size = 2 * limits.WAL_FITTED_BYTES_MAX
    while size >= 2 * max(limits.WAL_FITTED_BYTES_MIN, 2 * state.bytes):
        try:
            await transport.ensure(replace(spec, bytes_max=size))
        except StorageFull:
            size //= 2
            continue
        await transport.ensure(replace(spec, bytes_max=size // 2))
        return [f"max_bytes: -1 -> {size // 2}"]
    log.warning("the WAL has no limit: JetStream can reserve too little", bytes=state.bytes, tried=2 * size)
    return []


def first_token(now_ns: int, above: int) -> int:
    """Return the first revision of a new status bucket; the highest known token is `above`.

    It depends on neither the local clock nor a margin: the creator of a later bucket may not know them.
    """
    now = now_ns // 1_000
    return now if now > above else above + _GAP + now % _GAP
