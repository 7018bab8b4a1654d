"""What this server needs in NATS: streams that are made, or brought to its settings."""

from dataclasses import replace

from lorogo_protocol import subjects
from lorogo_server.settings import ServerSettings
from lorogo_transport import topology
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Transport

# Others may have seen revisions beyond ours, and none may be given out again: a gap, which differs each time.
_GAP = 60_000_000


async def ensure(
    transport: Transport, settings: ServerSettings, clock: Clock, *, guarded: bool | None, above: int = 0
) -> list[tuple[str, str]]:
    """See to all of them; which stream was changed, and how. Raises TransportError.

    Fencing tokens are revisions of the status bucket. One that is made anew goes on where the later of
    two clocks is, ours and NATS's, and `above` the tokens that we know: who makes it may be behind, and its
    tokens would be below those of owners before, whose journals then seem to be newer. In microseconds:
    renewals of very many documents do not overtake that.
    """
    changes: list[tuple[str, str]] = []
    for spec in topology.specs(
        replicas=settings.replicas,
        wal_bytes_max=settings.wal_bytes_max,
        kept_presence_bytes_max=settings.kept_presence_bytes_max,
        status_first_sequence=clock.wall_ns() // 1_000,
        guarded=guarded,
    ):
        if spec.first_sequence:  # the WAL is there by now: it comes first
            theirs = (await transport.stream(subjects.WAL_STREAM).state()).now_ns // 1_000
            first = max(spec.first_sequence, theirs, above + _GAP + theirs % _GAP)
            spec = replace(spec, first_sequence=first)  # noqa: PLW2901
        changes += [(spec.name, change) for change in await transport.ensure(spec)]
    return changes
