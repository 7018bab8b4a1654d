"""`lorogo chaos` and `lorogo bench`: faults and workloads on this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.options import VerboseOptions
from lorogo_cli.connect.runtime import run

_Json = Annotated[
    str, typer.Option("--json", metavar="FILE|-", help="Write the result as JSON; - for stdout.")
]
_Traces = Annotated[
    Path | None,
    typer.Option("--traces", metavar="DIR", envvar="LOROGO_TRACES", help="Editing traces to replay."),
]


@dataclass(frozen=True, kw_only=True)
class ChaosOptions(VerboseOptions):
    """Options of `lorogo chaos`."""

    kind: Annotated[
        str, typer.Option("--nats", metavar="one|three", help="One nats-server, or a cluster of three.")
    ] = "one"
    servers: Annotated[int, typer.Option("--servers", min=1, max=8, help="Number of document servers.")] = 2
    documents: Annotated[int, typer.Option("--documents", min=1, max=1000)] = 8
    writers: Annotated[
        int,
        typer.Option("--writers", min=1, max=16, help="Number of editing processes; each document has two."),
    ] = 4
    faults: Annotated[
        int | None, typer.Option("--faults", min=1, help="Number of faults; 20 unless --minutes is given.")
    ] = None
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.1, max=1440, help="Inject faults for this long.")
    ] = None
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0, help="Least time between two faults.")
    ] = 5.0
    edits_per_second: Annotated[
        float, typer.Option("--edits-per-second", min=0.1, max=500, help="Edits of all writers together.")
    ] = 30.0
    edits_each: Annotated[
        int,
        typer.Option(
            "--edits-each",
            min=0,
            max=100_000,
            help="After this many edits a writer changes to a new document. 0: it stays.",
        ),
    ] = 0
    only: Annotated[str, typer.Option("--only", metavar="NAME,...", help="Only these faults.")] = ""
    without: Annotated[str, typer.Option("--without", metavar="NAME,...", help="Not these faults.")] = ""
    show_list: Annotated[
        bool, typer.Option("--list", help="List the faults and which are possible here; run nothing.")
    ] = False
    seed: Annotated[int, typer.Option("--seed", min=0, help="Determines the faults and their times.")] = 1
    traces: _Traces = None
    json: _Json = ""
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep all files and logs in this empty folder."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BenchOptions(VerboseOptions):
    """Options of `lorogo bench`."""

    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes, to check that it works; the figures mean little.")
    ] = False
    durability: Annotated[
        str | None,
        typer.Option(
            "--durability", metavar="stream|journal", help="Measure this durability only, in every workload."
        ),
    ] = None
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random choices.")] = 1
    traces: _Traces = None
    json: _Json = ""
    plot: Annotated[str, typer.Option("--plot", metavar="FILE", help="Draw the curves as SVG.")] = ""


def chaos(context: typer.Context) -> int:
    """Inject real faults into a cluster on this machine, and count the ACKed edits that are lost.

    It starts its own nats-servers, servers and writers. Faults: kills, pauses, network cuts, full disks, bit
    flips.

    Exit code 1: an ACKed edit is lost, a document is in the state ERROR, or the result could not be verified.
    docs/FAULTS.md explains every line.
    """
    from lorogo_cli.trials import chaos as work

    options: ChaosOptions = context.obj
    if options.show_list:
        run(work.show_list, options.kind)
        return 0
    return run(work.chaos, options)


def bench(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Workloads, or all. Without names: list them."),
    ] = None,
) -> int:
    """Measure lorogo on this machine, and compare it with NATS alone in the same run.

    Starts its own nats-server, servers and clients on loopback, and stops them at the end. Exit code 1: a
    result is wrong. A missed goal is reported, but is not an error.
    """
    from lorogo_cli.trials import bench as work

    if not names:
        work.show_list()
        return 0
    return run(work.bench, names, context.obj)
