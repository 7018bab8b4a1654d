"""`lorogo config show`: every setting with its value and its source."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lorogo_cli.config.choice import ResolvedSetting, ResolvedSettings, choose, shown_value
from lorogo_cli.config.entries import SECTIONS
from lorogo_cli.config.flags import find_file
from lorogo_cli.render.output import note, say_json, say_table


def say_all(config: Path | None, *, as_json: bool) -> None:
    """Show the settings of all services, without flags. Raises InvalidConfiguration."""
    file = find_file(config)
    say([choose(one, typed={}, environment=os.environ, file=file) for one in SECTIONS], as_json=as_json)


def say(several: Sequence[ResolvedSettings], *, as_json: bool) -> None:
    """Print a table, or JSON by section and key."""
    if as_json:
        facts = {one.section: {key: _facts(choice) for key, choice in one.choices.items()} for one in several}
        say_json(facts)
    else:
        rows = [
            (f"{one.section}.{key}", shown_value(choice), choice.place)
            for one in several
            for key, choice in one.choices.items()
        ]
        say_table(("SETTING", "VALUE", "FROM"), rows)
    for remark in several[0].remarks:
        note(f"a mistake in settings that this command does not use: {remark}")


def _facts(choice: ResolvedSetting) -> dict[str, Any]:
    value = choice.value if isinstance(choice.value, bool | int | float | tuple) and not choice.held else None
    return {
        "value": shown_value(choice) if value is None and choice.value is not None else value,
        "source": str(choice.source),
        "from": choice.place,
    }
