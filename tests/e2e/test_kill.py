"""Servers and nats-server are killed at random moments under load: what was ACKed is there.

The senders speak the wire themselves and send nothing again on their own account, so no client's sync can
bring back what a server lost. Run with `-s` for the table; LOROGO_DRILL=full makes 50 rounds.
"""

import asyncio
import itertools
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import nanoid
from loro import LoroDoc

import lorogo_client
from lorogo_client import Client
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import chunks, subjects
from lorogo_transport.errors import TransportError
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.ports import Message
from tests.e2e.support import QUICK, ServerProcess, servers

ROUNDS = 50 if os.environ.get("LOROGO_DRILL") == "full" else 4
DOCUMENTS = 6
PATIENCE = 60.0


@dataclass
class Sender:
    """Puts numbered keys into the maps of documents, and keeps note of what was ACKed."""

    client: Client
    round: int
    sent: int = 0
    acked: dict[str, set[str]] = field(default_factory=dict)
    first_ack: asyncio.Event = field(default_factory=asyncio.Event)
    _inbox: str = ""
    _waiting: dict[str, tuple[str, str]] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def start(self) -> None:
        bus = self.client.transport.bus
        self._inbox = bus.new_inbox()
        await bus.subscribe(f"{self._inbox}.*", self._on_reply)
        await bus.barrier()

    async def run(self, document: str, until: asyncio.Event) -> None:
        """Each round is a replica of its own, so no update waits for one that was lost unACKed."""
        doc = LoroDoc()
        made: list[bytes] = []

        def keep(update: bytes) -> bool:
            made.append(bytes(update))
            return True

        kept = doc.subscribe_local_update(keep)
        while not until.is_set():
            key = f"{self.round}-{next(self._numbers)}"
            doc.get_map("m").insert(key, 1)
            doc.commit()
            await self._send(document, key, made.pop())
            await asyncio.sleep(0.002)
        del kept

    async def _send(self, document: str, key: str, payload: bytes) -> None:
        log_id = str(nanoid.generate())
        self._waiting[log_id] = (document, key)
        inbox = f"{self._inbox}.{log_id}"
        for chunk in chunks.split(payload, log_id, chunk_bytes_max=100_000, inbox=inbox):
            try:
                await self.client.transport.bus.publish(
                    subjects.wal(document), chunk.data, headers=chunk.headers()
                )
                self.sent += 1
            except TransportError:
                return  # nats-server is dead: this update reached no stream

    def _on_reply(self, message: Message) -> None:
        document, key = self._waiting.pop(message.subject.rpartition(".")[2], ("", ""))
        if document and message.data == b"ACK":
            self.acked.setdefault(document, set()).add(key)
            self.first_ack.set()


async def created(client: Client, document: str) -> None:
    """Return when a server serves the document, which is created if it does not exist."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.document(document).patch([], timeout=5)
            except LorogoError:
                await asyncio.sleep(0.1)
                continue
            return


async def value_of(client: Client, document: str) -> dict[str, int]:
    """The owner's value of the document, once a server owns it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                answer = await client.document(document).get(timeout=5)
            except LorogoError:
                await asyncio.sleep(0.1)
                continue
            value = answer["value"]
            assert isinstance(value, dict)
            return dict(value.get("m", {}))


async def test_acked_updates_survive_any_kill(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """Kill -9 of servers and of nats-server, one or all at once: ACKed but lost is 0 in every round."""
    rng = random.Random(7)
    names = [f"doc-{number}" for number in range(DOCUMENTS)]
    everything: dict[str, set[str]] = {name: set() for name in names}
    table: list[str] = []
    print("\nround  killed      sent  ACKed  ACKed but lost")
    async with servers(fresh_nats.url) as start:
        running: dict[str, ServerProcess] = {
            one: await start(data=tmp_path / one, **QUICK) for one in ("a", "b")
        }
        for number in range(ROUNDS):
            victims = rng.choice((("a",), ("b",), ("nats",), ("a", "b"), ("a", "nats"), ("a", "b", "nats")))
            async with lorogo_client.connect(fresh_nats.url) as client:
                sender = Sender(client, number)
                await sender.start()
                await asyncio.gather(*(created(client, name) for name in names))
                done = asyncio.Event()
                sending = [asyncio.create_task(sender.run(name, done)) for name in names]
                async with asyncio.timeout(PATIENCE):
                    await sender.first_ack.wait()
                await asyncio.sleep(rng.uniform(0.1, 0.8))
                for victim in victims:
                    await (fresh_nats.kill() if victim == "nats" else running[victim].kill())
                await asyncio.sleep(rng.uniform(0.0, 0.2))
                done.set()
                await asyncio.gather(*sending)
            if "nats" in victims:
                await fresh_nats.start()
            for victim in victims:
                if victim != "nats":
                    running[victim] = await start(data=tmp_path / victim, **QUICK)
            lost = 0
            async with lorogo_client.connect(fresh_nats.url) as client:
                values = await asyncio.gather(*(value_of(client, name) for name in names))
                for name, value in zip(names, values, strict=True):
                    everything[name] |= sender.acked.get(name, set())
                    lost += len(everything[name] - set(value))
            acked = sum(map(len, sender.acked.values()))
            table.append(f"{number + 1:>5}  {' '.join(victims):<9} {sender.sent:>6} {acked:>6} {lost:>14}")
            print(table[-1], flush=True)
            assert acked > 0
            assert lost == 0, table
    total = sum(map(len, everything.values()))
    print(f"{ROUNDS} rounds, {total} ACKed in all, 0 lost")
