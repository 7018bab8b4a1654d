"""`lorogo config check`: report every mistake in a settings file and the environment."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lorogo_cli.config import files, variables
from lorogo_cli.config.choice import ResolvedSettings, choose
from lorogo_cli.config.entries import SECTIONS
from lorogo_cli.config.files import ConfigFile
from lorogo_cli.config.mistakes import InvalidConfiguration, Mistake
from lorogo_cli.errors import one_line
from lorogo_cli.render.output import say as say_line
from lorogo_cli.render.output import say_json
from lorogo_cli.render.values import show_count
from lorogo_protocol.errors import LorogoError


def say(path: Path | None, *, open_files: bool, as_json: bool) -> bool:
    """Print the mistakes; return True if there are none. Raises CommandError if the file cannot be read."""
    file = None if path is None or not str(path).strip() else files.read(path)
    found = list(mistakes(file, os.environ, open_files=open_files))
    if as_json:
        facts = {"file": file and file.name, "good": not found, "mistakes": [one.facts() for one in found]}
        say_json(facts)
        return not found
    for one in found:
        say_line(str(one))
    count = sum(name in variables.known() and bool(value.strip()) for name, value in os.environ.items())
    what = f"{show_count(count, 'variable')} of the environment"
    if file is not None:
        what = f"{file.name}: {show_count(len(file.values), 'setting')}; {what}"
    say_line(f"{what}: {show_count(len(found), 'mistake') if found else 'all good'}")
    return not found


def mistakes(
    file: ConfigFile | None, environment: Mapping[str, str], *, open_files: bool
) -> Iterator[Mistake]:
    """Yield each mistake once: in the file, in variables, between settings, in the files they refer to."""
    reported: set[str] = set()

    def unreported(several: Iterator[Mistake]) -> Iterator[Mistake]:
        for one in several:
            if str(one) not in reported:
                reported.add(str(one))
                yield one

    yield from unreported(iter(() if file is None else file.mistakes))
    yield from unreported(iter(variables.unknown(environment)))
    for section in SECTIONS:
        yield from unreported(_of_section(section, file, environment, open_files=open_files))


def _of_section(
    section: str, file: ConfigFile | None, environment: Mapping[str, str], *, open_files: bool
) -> Iterator[Mistake]:
    try:
        chosen = choose(section, typed={}, environment=environment, file=file)
    except InvalidConfiguration as error:
        yield from error.mistakes
        return
    for check in (*_together(section), *(_FILES if open_files else ())):
        try:
            check(chosen)
        except (LorogoError, ValueError) as error:
            yield Mistake(problem=one_line(error), name=f"[{section}]", section=section)
        except ModuleNotFoundError as error:
            problem = f"a file cannot be checked here without {error.name}: pip install 'lorogo[run]'"
            yield Mistake(problem=problem, name=f"[{section}]", section=section)


# --- combinations of settings, and the files they refer to --------------------------------------------------


def _together(section: str) -> list[Callable[[ResolvedSettings], Any]]:
    from lorogo_cli.config.service_settings import gateway_settings, server_settings

    made: dict[str, list[Callable[[ResolvedSettings], Any]]] = {
        "serve": [server_settings, _not_open_with_keys],
        "gateway": [gateway_settings, _not_open_with_keys],
    }
    return made.get(section, [])


def _not_open_with_keys(chosen: ResolvedSettings) -> None:
    if chosen["open"] and chosen["keys_file"] is not None:
        raise ValueError(f"{chosen.called('open')} contradicts {chosen.called('keys_file')}")


def _keys(chosen: ResolvedSettings) -> None:
    from lorogo_cli.services.service_keys import keys_in

    keys_in(chosen)


def _seed(chosen: ResolvedSettings) -> None:
    if "nats_seed_file" not in chosen.choices:
        return
    seed = chosen.secret("nats_seed_file", "the nkey seed")
    if seed is not None:
        from lorogo_transport.auth import seeds

        seeds.public_of(seed, seeds.USER, chosen.called("nats_seed_file"))


def _seeds(chosen: ResolvedSettings) -> None:
    if chosen.choices.get("seeds") and chosen["seeds"] is not None:
        from lorogo_cli.services.auth_service import seeds_of

        seeds_of(chosen["seeds"])


def _journal_secret(chosen: ResolvedSettings) -> None:
    if "journal_secret_file" in chosen.choices:
        chosen.secret("journal_secret_file", "the secret of journals")


def _nats_tls(chosen: ResolvedSettings) -> None:
    from lorogo_cli.config.use import nats_of
    from lorogo_transport.nats import tls

    tls.context_of(tls.split(nats_of(chosen))[1])


def _gateway_tls(chosen: ResolvedSettings) -> None:
    if "tls_cert" not in chosen.choices or chosen["tls_cert"] is None or chosen["tls_key"] is None:
        return
    from lorogo_gateway.server.tls import Certificate

    Certificate(chosen["tls_cert"], chosen["tls_key"])


def _archive(chosen: ResolvedSettings) -> None:
    if chosen.choices.get("archive") and chosen["archive"]:
        from lorogo_server.journal.archive import check_driver

        check_driver(chosen["archive"])


_FILES: tuple[Callable[[ResolvedSettings], None], ...] = (
    _keys,
    _seed,
    _seeds,
    _journal_secret,
    _nats_tls,
    _gateway_tls,
    _archive,
)
