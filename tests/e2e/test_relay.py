"""Relays over real processes: a killed server shows soon, another one goes on, nothing ACKed is lost.

Run with `-s` to see the figures.
"""

import asyncio
import time
from contextlib import suppress

import pytest

import lorogo_client
from lorogo_gateway.relay.errors import GivenUp
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import eventually, servers
from tests.gateway.relay_pages import Page, relayed

pytestmark = [pytest.mark.nats, pytest.mark.slow]


class TimedPage(Page):
    """A page that records its requests to join again, with the time of the last."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.rejoin_requests: list[str] = []
        self.rejoined_at = 0.0

    def rejoin(self, why: str) -> None:
        super().rejoin(why)
        self.rejoin_requests.append(why)
        self.rejoined_at = time.monotonic()


@pytest.mark.parametrize("typing", [False, True], ids=["idle", "typing"])
async def test_a_killed_server_is_noticed_and_another_continues(
    fresh_nats: EmbeddedNats, typing: bool
) -> None:
    """The relay requests a rejoin of all pages; with the next server every edit is there, and offline edits
    follow.
    """
    url = fresh_nats.url
    pages = [TimedPage("a"), TimedPage("b")]
    async with (
        servers(url) as start,
        lorogo_client.connect(url) as one,
        lorogo_client.connect(url) as two,
        relayed(one, "minutes", pages[0]) as pages[0].member,
        relayed(two, "minutes", pages[1]) as pages[1].member,
    ):
        first = await start()
        for page in pages:
            await page.join(timeout=20)
        acked = []
        for number in range(20):
            await pages[0].type(f"[{number}]")
            acked.append(f"[{number}]")
        await eventually(lambda: pages[1].text == pages[0].text)
        await first.kill()
        killed_at = time.monotonic()
        unknown = pages[0].type("[unknown]") if typing else None
        await eventually(lambda: all(page.rejoin_requests for page in pages))
        delay = max(page.rejoined_at for page in pages) - killed_at
        print(f"\nkilled, {'typing' if typing else 'idle'}: rejoin after {delay:.2f} s (goal 3 s)")
        if unknown is not None:
            with pytest.raises(GivenUp):
                await unknown
        with pytest.raises(GivenUp):
            await pages[0].type("[offline]")
        joins = [asyncio.ensure_future(page.join(timeout=30)) for page in pages]
        await start()
        await asyncio.gather(*joins)
        await eventually(lambda: pages[0].text == pages[1].text and "[offline]" in pages[1].text)
        acked += ["[unknown]"] if typing else []
        assert [word for word in acked if pages[1].text.count(word) != 1] == []
        assert [len(page.rejoin_requests) for page in pages] == [1, 1]


@pytest.mark.parametrize("ending", ["kill", "stop"])
async def test_a_takeover_disturbs_no_page(fresh_nats: EmbeddedNats, ending: str) -> None:
    """A second server is there: pages go on typing through the change of owners, and all ends equal."""
    url = fresh_nats.url
    pages = [TimedPage("a"), TimedPage("b")]
    async with (
        servers(url) as start,
        lorogo_client.connect(url) as client,
        relayed(client, "minutes", pages[0]) as pages[0].member,
        relayed(client, "minutes", pages[1]) as pages[1].member,
    ):
        first = await start()
        for page in pages:
            await page.join(timeout=20)
        await start()
        acked: list[str] = []
        done = asyncio.Event()

        async def work(page: TimedPage) -> None:
            number = 0
            while not done.is_set():
                word = f"[{page.name}{number}]"
                number += 1
                with suppress(GivenUp):
                    await page.type(word)
                    acked.append(word)
                if page.member.unacked == 0 and page.rejoin_requests:
                    page.rejoin_requests.clear()
                    await page.join(timeout=20)

        async with asyncio.TaskGroup() as group:
            for page in pages:
                group.create_task(work(page))
            await eventually(lambda: len(acked) > 50)
            began = time.monotonic()
            await (first.kill() if ending == "kill" else first.stop())
            before = len(acked)
            await eventually(lambda: len(acked) > before + 50)
            print(f"\n{ending}: 50 more ACKs after {time.monotonic() - began:.2f} s")
            done.set()
        await eventually(lambda: pages[0].text == pages[1].text)
        assert [word for word in acked if pages[0].text.count(word) != 1] == []
        assert [page.rejoin_requests for page in pages] == [[], []]
