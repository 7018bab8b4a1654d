"""What this server needs in NATS: streams that are made, or brought to its settings."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lorogo_protocol import limits, subjects
from lorogo_server.settings import ServerSettings
from lorogo_transport.clock import Clock
from lorogo_transport.errors import StorageFull
from lorogo_transport.ports import StreamSpec, Transport
from lorogo_transport.stores import topology
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

FITTED = 0  # of `wal_bytes_max`: a limit that fits JetStream's storage

# Where NATS's clock went back: others may have seen revisions beyond ours, and none may be given out again.
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
    """See to all of them; which stream was changed, and how. Raises TransportError.

    Fencing tokens are revisions of the status bucket. One that is made anew goes on where NATS's clock is, in
    microseconds: no bucket gives out so many that it overtakes that, so whoever makes the next one begins
    above all of them, also if it has heard of none (docs/decisions/0001). `above` are the tokens that we
    know; if NATS is empty, and may have lost everything, `known` looks for more.
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
            wal = transport.stream(subjects.WAL_STREAM)  # it is there: it comes first
            state = await wal.state()
            if known is not None and not state.last_sequence:
                above = max(above, await known())
                state = await wal.state()  # as late as can be: what was made and lost since is below it
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
    """Limit a WAL that has no limit to half of what JetStream can set aside; returns what was changed.

    NATS does not say how large its disk is. It refuses a limit that its storage cannot hold, so we try. The
    other half is for snapshots. A limit never lies below twice what is stored: nothing is refused or removed
    because there is a limit now.
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
    log.warning("the WAL has no limit: JetStream can set aside too little", bytes=state.bytes, tried=2 * size)
    return []


def first_token(now_ns: int, above: int) -> int:
    """Where a bucket begins that is made now, by somebody who has seen tokens up to `above`.

    Our own clock has no say, nor has a margin: who makes the bucket after that may know of neither.
    """
    now = now_ns // 1_000
    return now if now > above else above + _GAP + now % _GAP
