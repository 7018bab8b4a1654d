"""The owner refuses a browser's update of too many peers, and other clients are unaffected."""

from loro import ExportMode, LoroDoc, VersionVector

from lorogo_gateway.frames import Status
from lorogo_protocol.limits import UPDATE_PEERS_MAX
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from tests.gateway.support import gate, type_in


async def test_an_update_of_too_many_peers_is_too_large(world: MemoryNats, server: Server) -> None:
    """Whatever its bytes; the next update is taken, and reaches the others alone."""
    wide = LoroDoc()
    for peer in range(UPDATE_PEERS_MAX + 1):
        wide.peer_id = peer + 1
        wide.get_map("m").insert("by", peer)
        wide.commit()
    async with gate(world) as served, served.peer() as one, served.peer() as other:
        await one.join()
        await other.join()
        update = wide.export(ExportMode.Updates(VersionVector()))
        assert await one.save(update) is Status.PAYLOAD_TOO_LARGE
        small = type_in(LoroDoc(), "x")
        assert await one.save(small) is Status.OK
        assert await other.received() == (small,)
