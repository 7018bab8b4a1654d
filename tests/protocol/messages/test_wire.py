"""The version of the wire."""

import pytest

from lorogo_protocol.messages.wire import WIRE, later


@pytest.mark.parametrize("theirs", [None, 1, WIRE])
def test_a_known_version_is_fine(theirs: object) -> None:
    """The first version did not name itself."""
    assert later(theirs, "the server", advice="upgrade") == ""


@pytest.mark.parametrize("theirs", [WIRE + 1, 0, True, "1", "9" * 100])
def test_an_unknown_version_is_named(theirs: object) -> None:
    """The sentence names both versions and what to do, however long theirs is."""
    words = later(theirs, "the server", advice="upgrade this client")
    assert words.startswith(f"the server speaks version {str(theirs)[:20]} of the wire")
    assert words.endswith(f"this is version {WIRE}: upgrade this client")
    assert "9" * 21 not in words
