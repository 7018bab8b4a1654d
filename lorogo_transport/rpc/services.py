"""The NATS services protocol (`$SRV.PING|INFO|STATS`) over any Bus, for operators' tools.

`nats micro ls` and every client's `micro` package read these answers. Each instance subscribes to the
three verbs alone, with its name, and with its name and id; without a queue group, so that all answer.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from lorogo_protocol.messages.subjects import INIT_ALL, INIT_QUEUE
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Bus, Message, ServiceInfo, Subscription
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

Stats = Callable[[], Mapping[str, object]]
_ENDPOINT = {"name": "documents", "subject": INIT_ALL, "queue_group": INIT_QUEUE}
_ANSWERS_MAX = 64  # concurrent; more are dropped


class ServiceAnnouncement:
    """An announced service; `close` withdraws it."""

    def __init__(
        self, bus: Bus, info: ServiceInfo, stats: Stats, *, service_id: str, started: datetime
    ) -> None:
        self._bus = bus
        self._info = info
        self._stats = stats
        self._id = service_id
        self._started = started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        self._subscriptions: list[Subscription] = []
        self._answers = Tasks(lambda error: log.error("service answer failed", exc_info=error))

    async def open(self) -> None:
        for verb in ("PING", "INFO", "STATS"):
            base = f"$SRV.{verb}"
            for subject in (base, f"{base}.{self._info.name}", f"{base}.{self._info.name}.{self._id}"):
                handler = partial(self._on_request, verb)
                self._subscriptions.append(await self._bus.subscribe(subject, handler))

    async def close(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.close()
        await self._answers.close()

    def _on_request(self, verb: str, message: Message) -> None:
        if message.reply and len(self._answers) < _ANSWERS_MAX:
            self._answers.spawn(self._answer(verb, message.reply))

    async def _answer(self, verb: str, reply: str) -> None:
        try:
            await self._bus.publish(reply, json.dumps(self._facts(verb), default=str).encode())
        except TransportError as error:
            log.debug("service answer not sent", verb=verb, reason=str(error))

    def _facts(self, verb: str) -> dict[str, object]:
        facts: dict[str, object] = {
            "type": f"io.nats.micro.v1.{verb.lower()}_response",
            "name": self._info.name,
            "id": self._id,
            "version": self._info.version,
            "metadata": dict(self._info.metadata),
        }
        match verb:
            case "INFO":
                facts["description"] = self._info.description
                facts["endpoints"] = [{**_ENDPOINT, "metadata": {}}]
            case "STATS":
                facts["started"] = self._started
                facts["endpoints"] = [self._endpoint_stats()]
        return facts

    def _endpoint_stats(self) -> dict[str, object]:
        """Return the protocol's own counters if `stats()` has them, and all of `stats()` as `data`."""
        data = dict(self._stats())
        counters = {
            name: data.get(name, 0)
            for name in ("num_requests", "num_errors", "processing_time", "average_processing_time")
        }
        return {**_ENDPOINT, **counters, "last_error": data.get("last_error", ""), "data": data}


async def announce(
    bus: Bus, info: ServiceInfo, stats: Stats, *, service_id: str, started: datetime
) -> ServiceAnnouncement:
    """Announce a service in the NATS services protocol."""
    announcement = ServiceAnnouncement(bus, info, stats, service_id=service_id, started=started)
    await announcement.open()
    return announcement
