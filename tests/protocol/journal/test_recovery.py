"""Requests between servers after a loss of NATS: every message reads back equal, or is refused."""

from dataclasses import asdict
from typing import Any

import msgpack
import pytest

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.journal.recovery import (
    RecoveryAnswer,
    RecoveryRequest,
    decode_answer,
    decode_ask,
    encode,
)

ASK = RecoveryRequest("server-1", ("ab12", "cd34"), "doubt-1", "minutes", 3)


@pytest.mark.parametrize(
    "ask", [ASK, RecoveryRequest("server-1", (), "doubt-1")], ids=["a document", "a roll call"]
)
def test_an_ask_comes_back(ask: RecoveryRequest) -> None:
    """A document, or none: a roll call."""
    assert decode_ask(encode(ask)) == ask


@pytest.mark.parametrize("flag", ["done", "whole", "changed", "settled"])
def test_an_answer_comes_back(flag: str) -> None:
    """Each flag by itself; a key that is not known is ignored."""
    answer = RecoveryAnswer(**(asdict(ASK) | {flag: True}))
    assert decode_answer(encode(answer)) == answer
    assert decode_answer(msgpack.packb(asdict(answer) | {"later": 1})) == answer


def test_only_true_is_true() -> None:
    """A flag of another type is not a promise."""
    assert decode_answer(msgpack.packb(asdict(ASK) | {"whole": 1, "done": "yes"})) == RecoveryAnswer(
        **asdict(ASK)
    )


@pytest.mark.parametrize(
    "change",
    [
        {"server": ""},
        {"server": "a.b"},
        {"doubt": "*"},
        {"document": "a b"},
        {"journals": None},
        {"journals": "ab"},
        {"journals": ["ab"] * 1025},
        {"journals": [""]},
        {"journals": ["a" * 65]},
        {"journals": [7]},
        {"round": "first"},
    ],
)
def test_a_malformed_message_is_refused(change: dict[str, Any]) -> None:
    """An id that is none, journals that are not log ids, a round that is not a number."""
    data = msgpack.packb(asdict(ASK) | change)
    for decode in (decode_ask, decode_answer):
        with pytest.raises(MalformedMessage):
            decode(data)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01", msgpack.packb([1])])
def test_bytes_that_are_no_map_are_refused(data: bytes) -> None:
    """Neither nothing, nor bytes that msgpack does not know, nor a list."""
    with pytest.raises(MalformedMessage):
        decode_ask(data)
