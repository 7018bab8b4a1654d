"""The commands, and what becomes of their errors: a sentence on stderr and exit code 2."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from lorogo_cli.commands import config, health, pipeline
from lorogo_cli.config.choice import ResolvedSettings
from lorogo_cli.config.flags import handing, takes
from lorogo_cli.config.use import nats_of, start_logs
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.connect.nats_tls import with_nats_tls
from lorogo_cli.connect.options import (
    NATS_DEFAULT,
    DocumentId,
    Json,
    Nats,
    NatsSeed,
    Origins,
    TokenFile,
    Verbose,
)
from lorogo_cli.connect.runtime import run as run_async
from lorogo_cli.doc import doc
from lorogo_cli.errors import INTERRUPTED, one_line
from lorogo_cli.log import log
from lorogo_cli.render.logs import ENVIRONMENT, configure
from lorogo_cli.services import auth
from lorogo_cli.tokens import token
from lorogo_protocol.errors import LorogoError
from lorogo_transport.secret_files import misplaced_secret, redacted

BAD_INPUT = 2
_LIST = frozenset({"list", "ls"})  # words for what `lorogo status` does

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


@app.command()
def dev(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="For NATS; 0 takes a free one.")
    ] = 4222,
    web_port: Annotated[
        int, typer.Option("--web-port", min=0, max=65535, help="For browsers and curl; 0 takes a free one.")
    ] = 8080,
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="Where everything is kept.")] = Path(
        ".lorogo"
    ),
    closed: Annotated[
        bool, typer.Option("--closed", help="Ask everybody for tokens, with keys of its own in the store.")
    ] = False,
    origin: Origins = None,
    verbose: Verbose = False,
) -> None:
    """Run everything here: an embedded nats-server, a document server, and the gateway with its pages.

    It is open, to everybody on this machine and to nobody else, unless it is --closed.
    """
    configure(verbose=verbose)
    from lorogo_cli.commands.dev import dev as work

    run_async(work, port, web_port, store, origin or [], closed=closed)


@app.command()
@takes("gateway")
def gateway(settings: ResolvedSettings) -> None:
    """Run the door for browsers and curl: WebSocket, HTTP, the change feed, metrics and the pages."""
    start_logs(settings)
    from lorogo_cli.config.service_settings import gateway_settings
    from lorogo_cli.services.gateway import gateway as work
    from lorogo_cli.services.service_keys import ServiceKeys

    run_async(work, nats_of(settings), ServiceKeys.of(settings), gateway_settings(settings))


@app.command()
@takes("serve")
def serve(
    settings: ResolvedSettings, worker: Annotated[int | None, typer.Option("--worker", hidden=True)] = None
) -> None:
    """Run document servers on a NATS that is already there."""
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


@app.command()
def status(
    document: Annotated[str | None, typer.Argument(metavar="ID", help="One document, in detail.")] = None,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Show who owns what, since when, and how big it is; starts nothing."""
    configure(verbose=verbose)
    from lorogo_cli.commands import status as work

    way = ConnectionOptions.of(nats, token_file, nats_seed)
    if document is None:
        run_async(work.of_all, way, as_json=json)
    else:
        run_async(work.of_one, way, document, as_json=json)


@app.command()
def feed(
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHERE", help="now, 0 (everything), a sequence, a time, or an age (10m)."
        ),
    ] = None,
    document: Annotated[
        list[str] | None, typer.Option("--document", metavar="ID", help="Only this one; may be repeated.")
    ] = None,
    position: Annotated[
        Path | None,
        typer.Option("--position", metavar="FILE", help="Go on where it says; kept after each line."),
    ] = None,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Print every accepted update, once and in order, until Ctrl-C."""
    configure(verbose=verbose)
    from lorogo_cli.doc import feed as work

    run_async(
        work.follow,
        ConnectionOptions.of(nats, token_file, nats_seed),
        since,
        document or [],
        position,
        as_json=json,
    )


@app.command(context_settings={"ignore_unknown_options": True})  # one id in 64 begins with "-"
def trace(
    log_id: Annotated[str, typer.Argument(metavar="LOG_ID", help="As logs, receipts and tables have it.")],
    document: Annotated[
        str, typer.Option("--document", metavar="ID", help="Whose update it is; saves reading.")
    ] = "",
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Journals from a time (2026-11-16T10:30) or age (2h) on."
        ),
    ] = None,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Say what became of one update: in the WAL, in journals, in the snapshot, or refused and why.

    Starts no document. Exit code 1: nobody knows the update.
    """
    configure(verbose=verbose)
    from lorogo_cli.commands import trace as work

    known = run_async(
        work.trace, ConnectionOptions.of(nats, token_file, nats_seed), log_id, document, since, as_json=json
    )
    if not known:
        raise typer.Exit(1)


@app.command()
def reset(
    document: DocumentId,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Clear a document's ERROR, when its cause is gone."""
    configure(verbose=verbose)
    from lorogo_cli.doc import writes

    run_async(writes.reset, ConnectionOptions.of(nats, token_file, nats_seed), document, as_json=json)


@app.command()
def compact(
    document: DocumentId,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Write a document's snapshot now, and purge what it covers from the WAL."""
    configure(verbose=verbose)
    from lorogo_cli.doc import writes

    run_async(writes.compact, ConnectionOptions.of(nats, token_file, nats_seed), document, as_json=json)


@app.command()
def restore(
    journal: Annotated[
        list[str],
        typer.Option(
            "--journal", metavar="DIR", help="A data folder, a journal, or an archive's URL; may be repeated."
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="As of a time (2026-11-16T10:30) or an age (5m)."),
    ] = None,
    document: Annotated[str, typer.Option("--document", metavar="ID", help="Only this document.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="ID", help="Write it as this new document.")] = "",
    merge: Annotated[
        bool, typer.Option("--merge", help="NATS has documents already: add those that it lacks.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and rebuild everything, write nothing.")
    ] = False,
    scratch: Annotated[
        Path | None,
        typer.Option("--scratch", metavar="DIR", help="For temporary files, as large as the journals."),
    ] = None,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Rebuild documents from journals and archives onto a NATS that lost them, and prove it.

    Nothing that lives is written over. To undo the deletion of a document: `lorogo doc restore`. Exit
    code 1: something is missing, the rest was restored.
    """
    configure(verbose=verbose)
    from lorogo_cli.commands import restore as work

    whole = run_async(
        work.restore,
        ConnectionOptions.of(nats, None, nats_seed),
        journal,
        at=at,
        document=document,
        to=to,
        merge=merge,
        dry_run=dry_run,
        scratch=scratch,
        as_json=json,
    )
    if not whole:
        raise typer.Exit(1)


@app.command()
def chaos(
    kind: Annotated[
        str, typer.Option("--nats", metavar="one|three", help="One nats-server, or a cluster of three.")
    ] = "one",
    servers: Annotated[int, typer.Option("--servers", min=1, max=8, help="Document servers.")] = 2,
    documents: Annotated[int, typer.Option("--documents", min=1, max=1000)] = 8,
    writers: Annotated[
        int,
        typer.Option("--writers", min=1, max=16, help="Processes that edit; each document has two."),
    ] = 4,
    faults: Annotated[
        int | None, typer.Option("--faults", min=1, help="How many; 20 unless --minutes is given.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.1, max=1440, help="Strike for so long.")
    ] = None,
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0, help="From one strike to the next, at least."),
    ] = 5.0,
    edits_per_second: Annotated[
        float, typer.Option("--edits-per-second", min=0.1, max=500, help="Of all writers together.")
    ] = 30.0,
    edits_each: Annotated[
        int,
        typer.Option(
            "--edits-each",
            min=0,
            max=100_000,
            help="Of a writer in a document; then it begins a new one. 0: it stays.",
        ),
    ] = 0,
    only: Annotated[str, typer.Option("--only", metavar="NAME,...", help="Only these faults.")] = "",
    without: Annotated[str, typer.Option("--without", metavar="NAME,...", help="Not these faults.")] = "",
    show_list: Annotated[
        bool, typer.Option("--list", help="Show the faults, and which can be had here; run nothing.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides which faults, and when.")] = 1,
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="DIR", help="Editing traces to replay (or LOROGO_TRACES)."),
    ] = None,
    json: Annotated[
        str, typer.Option("--json", metavar="FILE|-", help="Everything as JSON; - for stdout.")
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep all files and logs there; it must be empty."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Drill with real faults on this machine, and count the ACKed edits that are lost.

    Kills, pauses, cut networks, full disks, flipped bits, on nats-servers, servers and writers of its own.

    Exit code 1: something that was promised is lost, a document is in the state
    ERROR, or it could not be verified. docs/FAULTS.md explains every line.
    """
    configure(verbose=verbose)
    from lorogo_cli.commands import chaos as work

    if show_list:
        run_async(work.show_list, kind)
        return
    wishes = work.ChaosArguments(kind, only, without, traces, json)
    settings = work.settings_of(
        wishes,
        servers=servers,
        documents=documents,
        writers=writers,
        faults=faults,
        minutes=minutes,
        every=every,
        rate=edits_per_second,
        edits_each=edits_each,
        seed=seed,
        keep=keep,
    )
    if code := run_async(work.chaos, settings, wishes):
        raise typer.Exit(code)


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Workloads, or all. None: list them.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: to see that it works, figures mean little.")
    ] = False,
    durability: Annotated[
        str | None,
        typer.Option("--durability", metavar="stream|journal", help="Only this one, whatever is usual."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides what is random in a workload.")] = 1,
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="DIR", help="Editing traces to replay (or LOROGO_TRACES)."),
    ] = None,
    json: Annotated[
        str, typer.Option("--json", metavar="FILE|-", help="Everything as JSON; - for stdout.")
    ] = "",
    plot: Annotated[str, typer.Option("--plot", metavar="FILE", help="The curves, drawn as SVG.")] = "",
    verbose: Verbose = False,
) -> None:
    """Measure lorogo on this machine, against what NATS alone can do in the same run.

    It starts a nats-server, servers and clients of its own on loopback, and ends them. Exit code 1: a result
    is wrong. A missed goal is told, and no error.
    """
    configure(verbose=verbose)
    from lorogo_cli.commands import bench as work

    if not names:
        work.show_list()
        return
    settings = work.settings_of(quick=quick, durability=durability, seed=seed)
    if code := run_async(work.bench, names, settings, work.BenchArguments(traces, json, plot)):
        raise typer.Exit(code)


# --- errors -------------------------------------------------------------------------------------------


for commands in (app, auth.app, doc.app, health.app, log.app, pipeline.app, token.app):
    with_nats_tls(commands)


@cache
def _command() -> Callable[..., object]:
    """All commands, made ready once: whoever runs many in one process would wait for that each time."""
    return get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
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
    except Exception as error:  # noqa: BLE001  # whatever it was, a user gets a sentence
        _complain(f"this should not have happened: {type(error).__name__}: {one_line(error)}")
        return _surprise(error, arguments)
    return result if isinstance(result, int) else 0


def _usage(error: typer.TyperException, arguments: Sequence[str]) -> int:
    """A command line that cannot be read."""
    context = getattr(error, "ctx", None)
    words = getattr(error, "format_message", error.__str__)()
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(words.rstrip() + "\n")
        return BAD_INPUT
    where = "lorogo" if context is None else context.command_path
    if redacted(words) != words:  # it quotes a secret, whole or in part
        words = next((told for one in arguments if (told := misplaced_secret(one))), redacted(words))
    lists = where.endswith(" doc") and not _LIST.isdisjoint(arguments)
    instead = "`lorogo status` lists documents; " if lists else ""
    _complain(f"{words.rstrip('.')}; {instead}see `{where} --help`")
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
    """The reader has gone: nothing more can be said, and Python must not try when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
