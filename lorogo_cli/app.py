"""The commands of `lorogo`. An error becomes one sentence on stderr and exit code 2."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from lorogo_cli.commands import config, health, recovery
from lorogo_cli.config.flags import handing, service, settings_of
from lorogo_cli.config.use import nats_of, start_logs
from lorogo_cli.connect.options import (
    ClientOptions,
    DocumentId,
    Json,
    Origins,
    VerboseOptions,
)
from lorogo_cli.connect.runtime import run as run_async
from lorogo_cli.connect.shared_options import connection, taking
from lorogo_cli.doc import doc
from lorogo_cli.errors import INTERRUPTED, one_line
from lorogo_cli.log import log
from lorogo_cli.pipeline import pipeline
from lorogo_cli.render.logs import ENVIRONMENT
from lorogo_cli.services import auth
from lorogo_cli.tokens import token
from lorogo_cli.trials import trials
from lorogo_protocol.errors import LorogoError
from lorogo_transport.secret_files import misplaced_secret, redacted

BAD_INPUT = 2
_LIST = frozenset({"list", "ls"})  # other names for `lorogo status`

app = typer.Typer(
    name="lorogo",
    help="Collaborative documents on NATS: run servers, read and change documents, see who owns what.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(auth.app, name="auth")
app.add_typer(config.app, name="config")
app.add_typer(doc.app, name="doc")
app.add_typer(health.app, name="health")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(token.app, name="token")


def _show_version(wanted: bool) -> None:
    if wanted:
        from lorogo_transport.release import release

        typer.echo(f"lorogo {release()}")
        raise typer.Exit


@app.callback()
def lorogo(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Collaborative documents on NATS: run servers, read and change documents, see who owns what."""


@app.command(cls=taking(VerboseOptions))
def dev(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port for NATS; 0 picks a free port.")
    ] = 4222,
    web_port: Annotated[
        int,
        typer.Option(
            "--web-port", min=0, max=65535, help="Port for HTTP and WebSocket; 0 picks a free port."
        ),
    ] = 8080,
    store: Annotated[
        Path, typer.Option("--store", metavar="DIR", help="Folder for all files of NATS and the server.")
    ] = Path(".lorogo"),
    closed: Annotated[
        bool, typer.Option("--closed", help="Require tokens; the keys are generated in the store.")
    ] = False,
    origin: Origins = None,
) -> None:
    """Run a nats-server, a document server and the gateway with its pages on this machine.

    Every process on this machine can read and write; other machines cannot connect. --closed requires tokens.
    """
    from lorogo_cli.commands.dev import dev as work

    run_async(work, port, web_port, store, origin or [], closed=closed)


@app.command(cls=service("gateway"))
def gateway(context: typer.Context) -> None:
    """Run an HTTP and WebSocket gateway, with the change feed, metrics and the pages."""
    settings = settings_of(context)
    start_logs(settings)
    from lorogo_cli.config.service_settings import gateway_settings
    from lorogo_cli.services.gateway import gateway as work
    from lorogo_cli.services.service_keys import ServiceKeys

    run_async(work, nats_of(settings), ServiceKeys.of(settings), gateway_settings(settings))


@app.command(cls=service("serve"))
def serve(
    context: typer.Context, worker: Annotated[int | None, typer.Option("--worker", hidden=True)] = None
) -> None:
    """Run document servers on an existing NATS."""
    settings = settings_of(context)
    start_logs(settings, quiet=worker is not None)
    from lorogo_cli.config.probe_address import ListenAddress
    from lorogo_cli.config.service_settings import server_settings
    from lorogo_cli.services import serve as work
    from lorogo_cli.services.service_keys import ServiceKeys

    guard = ServiceKeys.of(settings)
    secret = settings.secret("journal_secret_file", "the secret of journals")
    chosen = server_settings(settings, journal_secret=secret)
    listen = settings["health_listen"]
    health = None if listen is None else ListenAddress.parse(listen)
    serving = work.ServeOptions(nats_of(settings), settings["data"].absolute(), chosen, guard, health)
    if worker is not None:
        run_async(work.worker, serving, worker)
    elif settings["workers"] == 1:
        run_async(work.alone, serving)
    else:
        run_async(work.parent, serving, settings["workers"], sys.argv[1:], handing(settings.file))


@app.command(cls=taking(ClientOptions))
def status(
    context: typer.Context,
    document: Annotated[str | None, typer.Argument(metavar="ID", help="One document, in detail.")] = None,
    json: Json = False,
) -> None:
    """Show documents, their owners, leases and sizes. Starts no document."""
    from lorogo_cli.commands import status as work

    way = connection(context)
    if document is None:
        run_async(work.of_all, way, as_json=json)
    else:
        run_async(work.of_one, way, document, as_json=json)


@app.command(cls=taking(ClientOptions))
def feed(
    context: typer.Context,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHERE",
            help="Start: now, 0 (everything), a sequence, a time, or an age (10m).",
        ),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option("--document", metavar="ID", help="Only this document; may be repeated."),
    ] = None,
    position: Annotated[
        Path | None,
        typer.Option(
            "--position",
            metavar="FILE",
            help="Continue from the position in this file; it is updated after each line.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print every accepted update, once and in order, until Ctrl-C."""
    from lorogo_cli.doc import feed as work

    run_async(work.follow, connection(context), since, document or [], position, as_json=json)


@app.command(
    context_settings={"ignore_unknown_options": True}, cls=taking(ClientOptions)
)  # one id in 64 begins with "-"
def trace(
    context: typer.Context,
    log_id: Annotated[str, typer.Argument(metavar="LOG_ID", help="From logs, receipts or tables.")],
    document: Annotated[
        str, typer.Option("--document", metavar="ID", help="The update's document; makes the search faster.")
    ] = "",
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Read journals from this time (2026-11-16T10:30) or age (2h) on."
        ),
    ] = None,
    json: Json = False,
) -> bool:
    """Find one update in the WAL, journals, snapshot and rejected updates, and report its state.

    Starts no document. Exit code 1: the update was not found.
    """
    from lorogo_cli.commands import trace as work

    return run_async(work.trace, connection(context), log_id, document, since, as_json=json)


@app.command(cls=taking(ClientOptions))
def reset(context: typer.Context, document: DocumentId, json: Json = False) -> None:
    """Clear a document's ERROR state after its cause is removed."""
    from lorogo_cli.doc import writes

    run_async(writes.reset, connection(context), document, as_json=json)


@app.command(cls=taking(ClientOptions))
def compact(context: typer.Context, document: DocumentId, json: Json = False) -> None:
    """Write a document's snapshot now, and purge the updates that it covers from the WAL."""
    from lorogo_cli.doc import writes

    run_async(writes.compact, connection(context), document, as_json=json)


app.command(cls=taking(recovery.RestoreOptions))(recovery.restore)
app.command(cls=taking(trials.ChaosOptions))(trials.chaos)
app.command(cls=taking(trials.BenchOptions))(trials.bench)


# --- errors -------------------------------------------------------------------------------------------


@cache
def _command() -> Callable[..., object]:
    """Return all commands, built once per process: building them takes long."""
    return get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 1 if the command returns False."""
    try:
        result = _command()(args=list(arguments), prog_name="lorogo", standalone_mode=False)
        sys.stdout.flush()
    except typer.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return 1
    except typer.TyperException as error:
        return _usage(error, arguments)
    except LorogoError as error:
        _complain(one_line(error))
        return BAD_INPUT
    except ExceptionGroup as group:
        _complain(one_line(group.exceptions[0]))
        return _surprise(group, arguments)
    except Exception as error:  # noqa: BLE001  # a user gets a sentence for every error
        _complain(f"unexpected error: {type(error).__name__}: {one_line(error)}; --verbose shows a traceback")
        return _surprise(error, arguments)
    if isinstance(result, bool):
        return int(not result)
    return result if isinstance(result, int) else 0


def _usage(error: typer.TyperException, arguments: Sequence[str]) -> int:
    """Report a command line that cannot be parsed."""
    context = getattr(error, "ctx", None)
    words = getattr(error, "format_message", error.__str__)()
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(words.rstrip() + "\n")
        return BAD_INPUT
    where = "lorogo" if context is None else context.command_path
    if redacted(words) != words:  # the message quotes a secret or a part of it
        words = next((instead for one in arguments if (instead := misplaced_secret(one))), redacted(words))
    lists = where.endswith(" doc") and not _LIST.isdisjoint(arguments)
    hint = "`lorogo status` lists documents; " if lists else ""
    _complain(f"{words.rstrip('.')}; {hint}see `{where} --help`")
    return BAD_INPUT


def _surprise(error: Exception, arguments: Sequence[str]) -> int:
    if "--verbose" in arguments or os.environ.get(ENVIRONMENT, "") == "debug":
        import traceback

        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    return 1


def _complain(sentence: str) -> None:
    with suppress(BrokenPipeError):
        sys.stderr.write(f"lorogo: {redacted(' '.join(sentence.split()))}\n")


def _drop_stdout() -> None:
    """Discard further output: the reader closed the pipe, and the flush at exit would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
