"""Large JSON leaves the loop alone: written and checked on a thread, with the same result."""

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_gateway.documents import schemas
from lorogo_gateway.http import json_encoder, schema_check
from lorogo_gateway.http.bodies import parse_json
from lorogo_gateway.problems import HttpProblem

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=60,
)


@given(VALUES, st.integers(1, 12), st.integers(1, 5))
async def test_parts_make_the_same_json(value: Any, weight: int, batch: int) -> None:
    """However small the parts are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_encoder, "_WEIGHT_MAX", weight)
        patch.setattr(json_encoder, "_BATCH", batch)
        written = await json_encoder.rendered_in_thread(value)
    assert written == json_encoder.rendered(value)
    assert json.loads(written) == value


@pytest.mark.parametrize(
    "value", [["x"] * 20_000, {"a": {str(n): n for n in range(20_000)}}, ["x" * 400_000]]
)
async def test_a_large_value_is_written_on_a_thread(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    encode = json_encoder._encode

    def noted(part: Any) -> str:
        threads.add(threading.get_ident())
        return encode(part)

    monkeypatch.setattr(json_encoder, "_encode", noted)
    assert json.loads(await json_encoder.rendered_in_thread(value)) == value
    assert threading.get_ident() not in threads
    assert await json_encoder.rendered_in_thread([1]) == b"[1]"
    assert threading.get_ident() in threads, "and a small one is not worth it"


async def test_a_large_body_is_checked_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    wrong = schema_check.wrong

    def noted(*what: Any) -> str | None:
        threads.add(threading.get_ident())
        return wrong(*what)

    monkeypatch.setattr(schema_check, "wrong", noted)
    body = json.dumps({"a": ["x" * 100] * 5_000}).encode()
    assert await parse_json(body, schemas.CONTENT) == json.loads(body)
    assert threads
    assert threading.get_ident() not in threads


async def test_a_document_has_so_many_roots() -> None:
    """A million of them would take seconds to check, and no document needs them."""
    most = {f"k{n}": "x" for n in range(10_000)}
    assert await parse_json(json.dumps(most).encode(), schemas.CONTENT) == most
    with pytest.raises(HttpProblem, match="at most 10000 members"):
        await parse_json(json.dumps(most | {"one": "more"}).encode(), schemas.CONTENT)
