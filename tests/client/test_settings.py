"""Settings are checked when they are made."""

from typing import Any

import pytest

from lorogo_client import ClientSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"reply_seconds": 0},
        {"unsent_bytes_max": -1},
        {"start": "nobody"},
        {"retry_seconds_min": 9.0},
        {"doubt_seconds": 9.0},
        {"update_bytes_max": 1 << 40},
    ],
)
def test_a_setting_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    """With a sentence that names it."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ClientSettings(**wrong)
