"""Which calls on a document the loop makes itself: short ones, as the last of their kind took."""

import pytest

from lorogo_protocol.limits import LOOP_CALL_SECONDS_MAX, LOOP_DOCUMENT_BYTES_MAX, LOOP_OPERATIONS_MAX
from lorogo_server.sandbox.call_costs import Call, CallCosts, Size

_SMALL = Size(LOOP_OPERATIONS_MAX, LOOP_DOCUMENT_BYTES_MAX)
_LARGE = Size(2_000_000, 20_000_000)


@pytest.mark.parametrize("call", [None, *Call])
def test_a_small_document_needs_no_measurement(call: Call | None) -> None:
    """The limits hold for every call that was not measured."""
    costs = CallCosts()
    assert costs.is_short(call, _SMALL)
    assert not costs.is_short(call, _SMALL._replace(operations=_SMALL.operations + 1))
    assert not costs.is_short(call, _SMALL._replace(bytes=_SMALL.bytes + 1))


def test_a_call_that_was_short_is_short_until_the_document_has_grown() -> None:
    """By as many operations or bytes as a small document may have."""
    costs = CallCosts()
    costs.took(Call.VALUE, _LARGE, LOOP_CALL_SECONDS_MAX)
    grown = Size(_LARGE.operations + _SMALL.operations, _LARGE.bytes + _SMALL.bytes)
    assert costs.is_short(Call.VALUE, grown)
    assert not costs.is_short(Call.VALUE, grown._replace(operations=grown.operations + 1))
    assert not costs.is_short(Call.VALUE, grown._replace(bytes=grown.bytes + 1))


def test_a_short_call_says_nothing_about_others() -> None:
    """Nor about the same call on an old version."""
    costs = CallCosts()
    costs.took(Call.VALUE, _LARGE, 0.0)
    assert [call for call in (None, *Call) if costs.is_short(call, _LARGE)] == [Call.VALUE]


def test_a_call_that_took_long_is_not_short_any_more() -> None:
    """Whatever was measured before."""
    costs = CallCosts()
    costs.took(Call.VALUE, _LARGE, 0.0)
    costs.took(Call.VALUE, _LARGE, LOOP_CALL_SECONDS_MAX + 0.001)
    assert not costs.is_short(Call.VALUE, _LARGE)
