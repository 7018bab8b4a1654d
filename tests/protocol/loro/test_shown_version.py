"""Versions as text."""

import pytest

from lorogo_protocol.loro.shown_version import show_version, unknown_version


@pytest.mark.parametrize(
    ("frontiers", "text"), [(b"\x00", "vAA"), (b"\x01\x02\x03", "vAQID"), (b"\xfb\xff", "v-_8")]
)
def test_a_version_is_text_that_a_shell_leaves_alone(frontiers: bytes, text: str) -> None:
    """It has a `v`, then base64url without padding."""
    assert show_version(frontiers) == text


def test_the_sentence_names_the_version() -> None:
    """A long text is shortened, with an ellipsis."""
    assert unknown_version("vAA") == "'vAA' is not a version of this document; its history lists them"
    assert unknown_version("v" * 61).startswith(f"'{'v' * 60}...' is not")
    assert unknown_version("v" * 60).startswith(f"'{'v' * 60}' is not")
