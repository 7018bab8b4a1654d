"""examples/bot: the parsing of sums, and the bot at work beside a typing user."""

import asyncio
import signal
from pathlib import Path

import pytest
from loro import LoroDoc

import lorogo_client
from tests.examples.running import SECONDS, module, program, said, serving, until

BOT = module("bot/bot.py")


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("12 * 7 =", "84"),
        ("that makes 3 + 4=", "7"),
        ("(1 + 2) * -3 =  ", "-9"),
        ("10 / 4 =", "2.5"),
        ("0.1 + 0.2 =", "0.3"),
        ("12 * 7 = 84", None),
        ("1 / 0 =", None),
        ("2 ** 999999999 =", None),
        ("1 +", None),
        ("=", None),
        ("x =", None),
        ("() =", None),
        ("(" * 90 + "=", None),
        ("9" * 99 + " =", "1e+99"),
        ("1+" * 60 + "1 =", None),
        (" " * 200_000 + "=", None),
    ],
)
def test_a_sum_is_answered_and_nothing_else(line: str, result: str | None) -> None:
    """People may type what they like: whatever is no sum of a line's length is left alone."""
    assert BOT.answer(line) == result


def test_answers_stand_behind_their_sums_and_only_once() -> None:
    """Also where letters take more than one byte, and with several lines at once."""
    doc = LoroDoc()
    body = doc.get_text("body")
    body.insert(0, "für zwölf 🙂: 3 * 4 =\nnothing\n1 + 1 =  \n")
    assert BOT.complete(body) == 2
    assert body.to_string() == "für zwölf 🙂: 3 * 4 = 12\nnothing\n1 + 1 = 2  \n"
    assert BOT.complete(body) == 0


@pytest.mark.nats
@pytest.mark.slow
async def test_it_writes_with_people(tmp_path: Path) -> None:
    """The bot answers present and new sums, appears in presence by its name, and saves its answers."""
    async with serving(tmp_path) as url, lorogo_client.connect(url) as client:
        async with client.open("minutes") as session:
            body = session.doc.get_text("body")
            body.insert(0, "before: 20 + 1 =\n")
            await session.flush(SECONDS)
            changes = session.changes()
            async with program("bot/bot.py", "minutes", folder=tmp_path, LOROGO_NATS=url) as bot:
                await said(bot, "answered 1")
                await until(lambda: "20 + 1 = 21" in body.to_string(), lambda: anext(changes))
                body.insert(0, "now: 6 * 7 =\n")
                session.commit()
                await until(lambda: "6 * 7 = 42\n" in body.to_string(), lambda: anext(changes))
                names = [entry["name"] for entry in session.presence.all().values()]  # type: ignore[index]
                assert names == ["the calculating bot"]
                bot.send_signal(signal.SIGINT)
                async with asyncio.timeout(SECONDS):
                    await bot.wait()
                assert bot.returncode == 0
        answer = await client.document("minutes").get(["$.body"])
        assert answer["matches"] == [["now: 6 * 7 = 42\nbefore: 20 + 1 = 21\n"]]


async def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    """One sentence, exit code 1, no traceback."""
    async with program("bot/bot.py", "minutes", folder=tmp_path, LOROGO_NATS="nats://127.0.0.1:1") as bot:
        async with asyncio.timeout(SECONDS):
            _, err = await bot.communicate()
        assert bot.returncode == 1
        assert err.decode().startswith("bot: nothing answers at nats://127.0.0.1:1")
        assert "Traceback" not in err.decode()
