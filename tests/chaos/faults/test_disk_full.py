"""A filled disk, and the detection of its effect."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from lorogo_chaos.faults import faults


@pytest.mark.parametrize("ready", [True, False])
async def test_a_full_disk_says_whether_it_had_an_effect(
    ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal with room prepared goes on: that is no survived fault."""

    async def stats() -> dict[str, object]:
        return {"server-1": SimpleNamespace(stats={"ready": ready})}

    monkeypatch.setattr(faults, "_EFFECT_SECONDS", 0.05)
    stack: Any = SimpleNamespace(
        disk=SimpleNamespace(fill=lambda: 7),
        disk_problem="",
        servers=[SimpleNamespace(name="server-1")],
        stats=stats,
    )
    injected = await faults.registry()["disk-full"].inject(stack, random.Random(0))
    effect = "had no effect: the journal still had room prepared" if ready else "its journal stopped"
    assert injected.words == f"7 bytes fill the disk of server-1: {effect}"
    assert injected.effective is not ready
