"""Log levels of the command line."""

import pytest

from lorogo_cli.errors import CommandError
from lorogo_cli.render.logs import level_of
from lorogo_cli.services.serve import restart_seconds


@pytest.mark.parametrize(
    ("default", "verbose", "environment", "expected"),
    [
        ("warning", False, "", "warning"),
        ("info", False, "", "info"),
        ("warning", True, "error", "debug"),
        ("warning", False, " INFO ", "info"),
    ],
)
def test_the_level_is_asked_for_or_the_commands_own(
    default: str, verbose: bool, environment: str, expected: str
) -> None:
    """--verbose wins over LOROGO_LOG, which wins over what the command would do."""
    assert level_of(default, verbose=verbose, environment=environment) == expected


def test_a_level_that_is_none_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(
        CommandError, match="LOROGO_LOG must be one of debug, info, warning, error, not 'loud'"
    ):
        level_of("info", verbose=False, environment="loud")


def test_a_worker_that_keeps_crashing_is_started_ever_more_slowly() -> None:
    """Half a second first, half a minute at most."""
    pauses = [restart_seconds(failures) for failures in range(100)]
    assert pauses[0] == 0.5
    assert pauses == sorted(pauses)
    assert pauses[-1] == 30
