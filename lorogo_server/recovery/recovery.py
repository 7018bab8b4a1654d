"""Recovers documents before they are served (docs/decisions/0021-recover-before-serving.md).

Invariant: while NATS may have lost data, no document is loaded before the journals of this server, and of
every other server that answers, were compared with the stream, and what it lacked was published again.

A *doubt* begins when the streams are not what this server knew (`Reconciler.check_streams`), and ends when
every known journal was compared since. Without a doubt `recover()` returns at once and asks no other server.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from lorogo_log import Directory, LogError, read_file, replace_file
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.ids import is_token
from lorogo_protocol.journal import recovery
from lorogo_protocol.journal.recovery import RecoveryAnswer, RecoveryRequest
from lorogo_protocol.messages import subjects
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.recovery.reconcile import ReconcileOutcome, Reconciler
from lorogo_transport.errors import TransportError
from lorogo_transport.headers import STATUS
from lorogo_transport.ports import Message, SubjectSubscription, Subscription
from lorogo_transport.tasks import Work
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_FILE = "journals"
_NO_RESPONDERS = "503"
_ASK_SECONDS = 1.0  # until the same request is sent again: a message may be lost
_ALIVE_SECONDS = 5.0  # since the last message of a server that compares the document
_UNKNOWN_SECONDS = 1.0  # since a doubt began, for the first message of an unknown server
_SILENT_SECONDS = 2.0  # patience with silent servers if NATS was only restarted
_KEPT_NS = 30 * 24 * 3600 * 1_000_000_000  # a journal away for longer cannot bring back trimmed history
_KNOWN_MAX = 1024
_ANSWERING_MAX = 4096


@dataclass(frozen=True, slots=True)
class KnownJournal:
    """A journal that some server reads."""

    server: str  # id at its last message
    seen_ns: int
    settled: str = ""  # doubt of this server for which the other has compared every document


@dataclass(slots=True)
class _Wait:
    """One document that waits here."""

    unmet: str  # its last owner, if no journal of that server is known here; "": none
    round: int = 0
    done: dict[str, RecoveryAnswer] = field(default_factory=dict)  # by journal, of this round
    working: dict[str, float] = field(default_factory=dict)  # by journal: time of the last message
    news: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class DocumentRecovery:
    """Requests to other servers before a document is loaded, and answers to theirs."""

    def __init__(
        self,
        context: ServerContext,
        reconciler: Reconciler,
        directory: Callable[[], Directory],
        hosts: Mapping[str, Host],
        spawn: Callable[[Work], None],
    ) -> None:
        self._context = context
        self._reconciler = reconciler
        self._directory = directory
        self._hosts = hosts
        self._spawn = spawn
        self._doubt = ""  # "": none
        self._why = ""
        self._lost = False  # NATS lost data; else it was only restarted
        self._since = 0.0
        self._ends_later = ""  # the doubt that ends when unknown servers had time to answer
        self._own_settled = True
        self._siblings: tuple[str, ...] = ()  # journals of workers beside this one, which it reads
        self._known: dict[str, KnownJournal] = {}  # of other servers
        self._met: set[str] = set()  # servers that have named their journals since this one started
        self._alive: set[str] = set()  # journals whose server answered last time
        self._alone = False  # no other server was connected when this one started, and none came since
        self._waits: dict[str, _Wait] = {}
        self._answering: set[tuple[str, str, str, int]] = set()
        self._connections = 1
        self._checked = 0  # the last connection for which the streams were checked
        self._checking = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._inbox: SubjectSubscription | None = None
        self._subscriptions: list[Subscription] = []
        self._log = log.bind(server=context.server_id)
        reconciler.watch(self._begin, self._settled)

    # --- start and end ----------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the known journals, and the doubt that was open at the last stop."""
        kept = await asyncio.to_thread(_read, self._directory())
        young = self._context.clock.wall_ns() - _KEPT_NS
        self._known = {name: one for name, one in kept.journals.items() if one.seen_ns > young}
        self._doubt, self._lost, self._own_settled = kept.doubt, kept.lost, not kept.doubt
        self._since = self._context.clock.now()

    async def start(self) -> None:
        """Subscribe, check the streams, and request the journals of other servers. Raises TransportError."""
        self._siblings = await asyncio.to_thread(self._reconciler.journals.sibling_journals)
        bus = self._context.transport.bus
        self._inbox = await bus.subscribe(bus.new_inbox(), self._on_answer)
        self._subscriptions = [self._inbox]
        await self._ask()  # before this server subscribes: NATS reports if no other server is connected
        self._subscriptions.append(await bus.subscribe(subjects.SERVER_RECOVER, self._on_ask))
        await self.check()

    async def stop(self) -> None:
        """Stop answering other servers."""
        for subscription in self._subscriptions:
            with suppress(TransportError):
                await subscription.close()

    @property
    def _own(self) -> tuple[str, ...]:
        """Journals that this server reads, empty ones too: servers wait only for known journals."""
        return (*self._reconciler.journals.own_journals(), *self._siblings)

    def lost_connection(self) -> None:
        """Check the streams again after the reconnect."""
        self._connections += 1
        self._alive.clear()
        self._alone = False

    async def check(self) -> None:
        """Check the streams, once per connection. Raises TransportError."""
        async with self._checking:
            connections = self._connections
            if self._checked != connections:
                await self._context.epochs.check()
                await self._reconciler.check_streams()
                await self._ask()  # servers that started meanwhile are unknown here
                self._checked = connections

    def stats(self) -> Mapping[str, object]:
        """Figures for operators."""
        absent = {self._server_of(name) for host in self._hosts.values() for name in host.incomplete}
        return {
            "recovering": self._context.counters.recovering,
            "recovery_doubt": self._why if self._doubt else "",
            "documents_incomplete": sum(bool(host.incomplete) for host in self._hosts.values()),
            "servers_absent": sorted(absent),
        }

    def _server_of(self, journal: str) -> str:
        if journal in self._own:
            return self._context.server_id
        known = self._known.get(journal)
        return journal if known is None else known.server  # of an unmet server its id

    # --- doubts -----------------------------------------------------------------------------------

    async def count_doubts(self) -> int:
        """Return the number of changes of the streams so far. Raises TransportError."""
        if self._checked != self._connections:
            await self.check()
        return self._reconciler.changes

    def _begin(self, why: str, lost: bool) -> None:
        self._lost = lost or (self._lost and bool(self._doubt))
        self._doubt, self._why, self._own_settled = self._context.new_id(), why, False
        self._since = self._context.clock.now()
        self._spawn(self._save())

    def _settled(self) -> None:
        """Note that a pass has compared every document since the doubt began."""
        self._own_settled = True
        self._spawn(self._ask())  # also without a doubt: other servers learn this server's journals
        self._end_doubt()

    def _end_doubt(self) -> None:
        if not (self._doubt and self._own_settled) or self._unsettled():
            return
        waited_for = [wait.unmet for wait in self._waits.values()]
        marked = [name for host in self._hosts.values() for name in host.incomplete]
        journals = {*self._known, *self._own}
        if any(self._is_unmet(name) for name in {*waited_for, *marked} - journals):
            return  # its journals are compared once it names them
        if self._awaits_unknown():
            if self._ends_later != self._doubt:
                self._ends_later = self._doubt
                self._spawn(self._end_later(self._doubt))
            return
        self._doubt, self._why = "", ""
        self._spawn(self._save())

    async def _end_soon(self) -> None:
        self._end_doubt()

    async def _end_later(self, doubt: str) -> None:
        await asyncio.sleep(self._since + _UNKNOWN_SECONDS - self._context.clock.now())
        if doubt == self._doubt:
            self._end_doubt()

    def _awaits_unknown(self) -> bool:
        """Return True while an unknown server may still send its first message."""
        known_alone = self._alone and not self._lost
        return not known_alone and self._context.clock.now() < self._since + _UNKNOWN_SECONDS

    def _unsettled(self) -> list[str]:
        """Return known journals of other servers that were not compared since the doubt began."""
        own = self._own
        return [name for name, one in self._known.items() if one.settled != self._doubt and name not in own]

    def _note(self, message: RecoveryRequest | RecoveryAnswer) -> None:
        """Remember the journals that a message names."""
        self._alone = False
        if len(self._met) < _KNOWN_MAX:
            self._met.add(message.server)  # also a worker beside this one
        now_ns, new = self._context.clock.wall_ns(), False
        settled = isinstance(message, RecoveryAnswer) and message.settled and message.doubt == self._doubt
        own = self._own
        for name in message.journals:
            if name in own:
                continue
            self._alive.add(name)
            before = self._known.get(name)
            if before is None and len(self._known) >= _KNOWN_MAX:
                continue
            new |= before is None or before.server != message.server
            kept = "" if before is None else before.settled
            self._known[name] = KnownJournal(message.server, now_ns, self._doubt if settled else kept)
        if new:
            self._spawn(self._save())
        if settled:
            self._end_doubt()

    def _is_unmet(self, server: str) -> bool:
        """Return True for a server without a known journal."""
        met = {self._context.server_id, *self._met, *(one.server for one in self._known.values())}
        return is_token(server) and server not in met

    # --- a document of this server ----------------------------------------------------------------

    async def recover(self, document_id: str, journal_of: str = "") -> tuple[str, ...]:
        """Return when the document may be loaded: names the journals that it may lack.

        `journal_of`: the server whose journal may hold its newest updates. Raises TransportError.
        """
        if self._checked != self._connections:
            await self.check()
        while (other := self._waits.get(document_id)) is not None:
            await other.over.wait()  # a part of it may be back: not enough for a load
        unmet = journal_of if self._is_unmet(journal_of) else ""
        if unmet and not self._doubt:  # it was not connected when the last doubt ended
            self._reconciler.doubt("a server that was never met had a document", lost=False)
            self._reconciler.want("doubt")
        if not self._doubt:
            return ()
        wait = self._waits[document_id] = _Wait(unmet)
        try:
            return await self._merge(document_id, wait)
        finally:
            del self._waits[document_id]
            wait.over.set()
            self._spawn(self._end_soon())  # after the caller has marked the document

    async def after_restore(self, document_id: str) -> None:
        """Bring back a restored document: NATS may have lost its content together with the tombstone.

        Other servers are asked once; their journals add what they have within seconds. Raises LorogoError.
        """
        await self._ask(document_id)
        await self._reconciler.journals.read()
        await self._reconciler.bring_back(document_id)

    async def _merge(self, document_id: str, wait: _Wait) -> tuple[str, ...]:
        clock = self._context.clock
        deadline = clock.now() + self._context.settings.recover_seconds_max
        while True:
            own = await self._bring_back_own(document_id, wait, deadline)
            await self._await_others(document_id, wait, deadline)
            answers = wait.done.values()
            whole = own is not None and own.whole and all(answer.whole for answer in answers)
            changed = (own is not None and own.changed) or any(answer.changed for answer in answers)
            if whole or not changed or clock.now() >= deadline:
                break  # else updates of another journal may depend on what was published
            wait.round += 1
            wait.done.clear()
        absent = [name for name in self._unsettled() if name not in wait.done]
        absent += [wait.unmet] if self._is_unmet(wait.unmet) else []  # its id stands for its journals
        return tuple(absent if own is not None else [*absent, *self._own])

    async def _bring_back_own(
        self, document_id: str, wait: _Wait, deadline: float
    ) -> ReconcileOutcome | None:
        """Bring it back from the journals of this server; None: they were not read in time."""
        await self._ask(document_id, wait.round)
        try:
            async with asyncio.timeout(max(0.0, deadline - self._context.clock.now())):
                while not (brought := await self._brought(self._doubt, document_id)).compared:  # noqa: ASYNC110  # no event of NATS ends the wait
                    await asyncio.sleep(_ASK_SECONDS)
                return brought
        except (TimeoutError, OSError) as error:
            self._log.warning("own journals not merged", document=document_id, problem=repr(error))
            return None

    async def _await_others(self, document_id: str, wait: _Wait, deadline: float) -> None:
        """Wait for the answers of other servers."""
        clock = self._context.clock
        asked_first = asked = clock.now()
        while self._must_wait(wait, asked_first) and (now := clock.now()) < deadline:
            if now >= asked + _ASK_SECONDS:
                asked = now
                await self._ask(document_id, wait.round)
            wait.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(asked + _ASK_SECONDS, deadline) - now)):
                    await wait.news.wait()
        self._alive.difference_update(name for name in self._unsettled() if name not in wait.done)

    def _must_wait(self, wait: _Wait, asked_first: float) -> bool:
        now = self._context.clock.now()
        if self._awaits_unknown():
            return True
        patience = self._context.settings.recover_seconds_max if self._lost else _SILENT_SECONDS
        patient = now < self._since + patience  # counts from the doubt, not for each document
        early = now < asked_first + _SILENT_SECONDS
        if (patient or early) and self._is_unmet(wait.unmet):
            return True
        return any(
            patient or (early and name in self._alive) or wait.working.get(name, 0.0) > now - _ALIVE_SECONDS
            for name in self._unsettled()
            if name not in wait.done
        )

    async def _ask(self, document_id: str = "", number: int = 0) -> None:
        """Request that all servers bring it back, or only name their journals. Raises TransportError."""
        context = self._context
        doubt = self._doubt or context.new_id()
        ask = RecoveryRequest(context.server_id, self._own, doubt, document_id, number)
        reply = "" if self._inbox is None else self._inbox.subject
        await context.transport.bus.publish(subjects.SERVER_RECOVER, recovery.encode(ask), reply=reply)

    def _on_answer(self, message: Message) -> None:
        if message.headers.get(STATUS) == _NO_RESPONDERS:
            self._alone = not self._alive
            self._wake_waits()
            return
        try:
            answer = recovery.decode_answer(message.data)
        except MalformedMessage as error:
            self._log.debug("malformed answer", problem=str(error))
            return
        self._note(answer)
        wait = self._waits.get(answer.document)
        if wait is not None and (answer.doubt, answer.round) == (self._doubt, wait.round):
            for name in answer.journals:
                if answer.done:
                    wait.done[name] = answer
                else:
                    wait.working[name] = self._context.clock.now()
        self._wake_waits()  # an answer about another document may settle this one
        self._complete_marked(answer)

    def _wake_waits(self) -> None:
        for wait in self._waits.values():
            wait.news.set()

    def _complete_marked(self, message: RecoveryRequest | RecoveryAnswer) -> None:
        """Merge the journals of a server that was absent, then remove the mark."""
        for host in self._hosts.values():
            there = not {message.server, *message.journals}.isdisjoint(host.incomplete)
            if there and host.state.is_up and host.document_id not in self._waits:
                self._spawn(self._complete(host))

    async def _complete(self, host: Host) -> None:
        host.incomplete = await self.recover(host.document_id, host.lease.journal_of)

    # --- documents of other servers ---------------------------------------------------------------

    def _on_ask(self, message: Message) -> None:
        try:
            ask = recovery.decode_ask(message.data)
        except MalformedMessage as error:
            self._log.debug("malformed request", problem=str(error))
            return
        if ask.server == self._context.server_id:
            return
        self._note(ask)
        self._complete_marked(ask)
        if message.reply and len(self._answering) < _ANSWERING_MAX:
            self._spawn(self._answer(ask, message.reply))

    async def _answer(self, ask: RecoveryRequest, reply: str) -> None:
        answer = RecoveryAnswer(self._context.server_id, self._own, ask.doubt, ask.document, ask.round)
        key = (ask.server, ask.doubt, ask.document, ask.round)
        await self._send(answer, reply)  # at once: the other server waits longer
        if key in self._answering:
            return
        self._answering.add(key)
        try:
            brought = await self._brought(ask.doubt, ask.document)
        except (LorogoError, LogError, OSError) as error:
            self._log.info("could not bring a document back", document=ask.document, problem=str(error))
            return  # the other server repeats its request
        finally:
            self._answering.discard(key)
        if not brought.compared:
            return  # the other server repeats its request
        settled = self._checked == self._connections and (not self._doubt or self._own_settled)
        done = replace(answer, done=True, whole=brought.whole, changed=brought.changed, settled=settled)
        await self._send(done, reply)

    async def _brought(self, doubt: str, document_id: str) -> ReconcileOutcome:
        await self.check()
        await self._reconciler.journals.read_for(doubt)
        return await self._reconciler.bring_back(document_id)

    async def _send(self, answer: RecoveryAnswer, reply: str) -> None:
        with suppress(TransportError):  # the other server repeats its request
            await self._context.transport.bus.publish(reply, recovery.encode(answer))

    # --- kept -------------------------------------------------------------------------------------

    async def _save(self) -> None:
        async with self._saving:
            data = _encode(_Kept(self._doubt, self._lost, dict(self._known)))
            try:
                await asyncio.to_thread(replace_file, self._directory(), _FILE, data)
            except OSError as error:
                self._log.warning("cannot write the known journals", problem=str(error))


@dataclass(frozen=True, slots=True)
class _Kept:
    doubt: str = ""
    lost: bool = False
    journals: Mapping[str, KnownJournal] = field(default_factory=dict)


def _encode(kept: _Kept) -> bytes:
    journals = {name: [one.server, one.seen_ns, one.settled] for name, one in kept.journals.items()}
    return json.dumps({"doubt": kept.doubt, "lost": kept.lost, "journals": journals}).encode()


def _read(directory: Directory) -> _Kept:
    try:
        body: dict[str, Any] = json.loads(read_file(directory, _FILE))
        journals = {
            str(name): KnownJournal(str(server), int(seen), str(settled))
            for name, (server, seen, settled) in body["journals"].items()
        }
        return _Kept(str(body["doubt"]), bool(body["lost"]), journals)
    except (OSError, LogError, ValueError, KeyError, TypeError, AttributeError):
        return _Kept()
