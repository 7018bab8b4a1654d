"""Options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

NATS_DEFAULT = "nats://127.0.0.1:4222"
NATS_ENVIRONMENT = "LOROGO_NATS"

Nats = Annotated[
    str,
    typer.Option(
        "--nats", metavar="URL", envvar=NATS_ENVIRONMENT, help="Where NATS is; several with commas."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON, for scripts.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="All logs, and tracebacks (or LOROGO_LOG=debug).")]
DocumentId = Annotated[str, typer.Argument(metavar="ID", help="The document.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="WHEN", help="A version (v...), a time (2026-11-16T10:30), or an age (10m)."
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="ORIGIN",
        help="Pages from there may use the gateway, too, as in http://localhost:5173; may be repeated.",
    ),
]
HostNames = Annotated[
    list[str] | None,
    typer.Option(
        "--host-name",
        metavar="NAME",
        help="A name that it is reached by, as in docs.example.org; may be repeated. On loopback needed for"
        " names other than localhost; elsewhere any will do if none is given.",
    ),
]
TrustedProxies = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="CIDR",
        help="A proxy whose X-Forwarded-For or Forwarded is believed, as in 10.0.0.0/8; may be repeated.",
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="Serve https with this certificate (PEM, with its chain); read again when it changes.",
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Its key; readable by its owner only."),
]
HstsDays = Annotated[
    float,
    typer.Option(
        "--hsts-days", min=0, max=3650, help="Tell browsers to use https only, for so long; 0: say nothing."
    ),
]
