"""What this server needs in NATS: streams that are made, or brought to its settings."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lorogo_protocol import subjects
from lorogo_server.settings import ServerSettings
from lorogo_transport import topology
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Transport

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
        changes += [(spec.name, change) for change in await transport.ensure(spec)]
    return changes


def first_token(now_ns: int, above: int) -> int:
    """Where a bucket begins that is made now, by somebody who has seen tokens up to `above`.

    Our own clock has no say, nor has a margin: who makes the bucket after that may know of neither.
    """
    now = now_ns // 1_000
    return now if now > above else above + _GAP + now % _GAP
