"""Commands with options that other commands have too.

A dataclass declares the options, as its fields; `taking(X)` makes the command class that adds them to the
command's own, and `context.obj` is the X:

    @app.command(cls=taking(ConnectOptions))
    def compact(context: typer.Context, document: DocumentId) -> None:
        way = connection(context)
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.connect.options import VerboseOptions
from lorogo_cli.render.logs import configure


class SharedOptions:
    """A part of a command's class: `shared` are more options, `take` makes the context's `obj` of them."""

    shared: Sequence[Any]
    take: Callable[[typer.Context, Mapping[str, Any]], object]

    def __init__(self, *, params: Sequence[Any], **more: Any) -> None:
        super().__init__(params=[*params, *self.shared], **more)  # type: ignore[call-arg]  # as below

    def invoke(self, context: Any) -> Any:
        """Run the command with its own options only."""
        context.obj = self.take(context, {one.name: context.params.pop(one.name) for one in self.shared})
        return super().invoke(context)  # type: ignore[misc]  # of the command's class


def declared(work: Callable[..., object]) -> list[Any]:
    """Return the options that the parameters of a function, or the fields of a dataclass, declare."""
    app = typer.Typer(add_completion=False)
    app.command()(work)
    return get_command(app).params


@cache
def taking(options: type[VerboseOptions], log: str = "warning") -> type[TyperCommand]:
    """Return the class of commands with these options; `log` is their least level of shown logs."""

    class Taking(SharedOptions, TyperCommand):
        shared = sorted(declared(options), key=lambda one: one.name == "verbose")

        def take(self, context: typer.Context, values: Mapping[str, Any]) -> VerboseOptions:
            configure(log, verbose=values["verbose"])
            return options(**values)

    return Taking


def connection(context: typer.Context) -> ConnectionOptions:
    """Return the address and the credentials that the command's shared options give."""
    way: ConnectionOptions = context.obj.connection
    return way
