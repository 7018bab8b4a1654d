"""Large content is reproducible, and has the announced size."""

import pytest

from lorogo_bench.content import bulk


@pytest.mark.parametrize("chars", [0, 1, 4, 5, 1000])
def test_a_text_has_its_length_and_is_the_same_for_the_same_seed(chars: int) -> None:
    """All of one byte each."""
    body = bulk.text(3, chars)
    assert len(body) == len(body.encode()) == chars
    assert body == bulk.text(3, chars)


def test_nothing_compresses_it() -> None:
    """An update is as long as its text, and a snapshot has it twice."""
    body = bulk.text(1, 100_000)
    assert body != bulk.text(2, 100_000)
    payload = bulk.update(body)
    assert 100_000 <= len(payload) < 102_000
    doc = bulk.plainly_imported(payload)
    assert bulk.digest(bulk.text_in(doc)) == bulk.digest(body)
    whole = bulk.snapshot(doc)
    assert 195_000 <= len(whole) < 205_000
    assert bulk.text_in(bulk.plainly_imported(whole)) == body
