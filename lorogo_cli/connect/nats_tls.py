"""`--nats-ca`, `--nats-cert` and `--nats-key` for every command that has `--nats`.

Commands with flags from the table of settings (config/entries.py) already have them.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer


def _option(name: str, words: str) -> Any:
    variable = f"LOROGO_NATS_{name.upper()}"
    option = typer.Option(f"--nats-{name}", metavar="FILE", envvar=variable, help=words)
    return Annotated[Path | None, option]


_OPTIONS = {
    "nats_ca": _option("ca", "CA certificate for NATS, if it is not signed by a public CA: PEM."),
    "nats_cert": _option("cert", "Client certificate, if NATS requires one: PEM."),
    "nats_key": _option("key", "Key of the client certificate; readable by its owner only."),
}


def with_nats_tls(app: typer.Typer) -> None:
    """Add these options to all commands with `--nats`; their files become part of the address."""
    for command in app.registered_commands:
        if command.callback is None:
            continue
        names = inspect.signature(command.callback).parameters
        if "nats" in names and "nats_ca" not in names:
            command.callback = _with(command.callback)


def named_in(nats: str, *paths: Path | None) -> str:
    """Return the address with these files: CA, client certificate and its key."""
    if not any(paths):
        return nats
    from lorogo_transport.nats.tls import TlsFiles, name_files

    files = TlsFiles(*(None if path is None else str(path.absolute()) for path in paths))
    return name_files(nats, files)


def _with(work: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def command(*, nats: str | None, **options: Any) -> Any:
        named = [options.pop(name) for name in _OPTIONS]
        return work(nats=None if nats is None else named_in(nats, *named), **options)

    signature = inspect.signature(work, eval_str=True)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in signature.parameters.values()]
    whole = signature.replace(parameters=[*own, *more])
    command.__signature__ = whole  # type: ignore[attr-defined]  # what typer reads
    command.__annotations__ = {**inspect.get_annotations(work, eval_str=True), **_OPTIONS}
    return command
