"""The gateway put together: one Starlette app of all its doors, and the tasks that belong to it."""

from types import TracebackType
from typing import Self

from starlette.applications import Starlette

from lorogo_client import Client
from lorogo_gateway.pages import Pages
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.sockets import Sockets


class Gateway:
    """All doors of one client. Enter it before serving `app`, leave it after."""

    def __init__(self, client: Client, settings: GatewaySettings, pages: Pages | None = None) -> None:
        self.client = client
        self.settings = settings
        self.sockets = Sockets(client, settings)
        self.app = Starlette(routes=[*self.sockets.routes(), *(pages or Pages()).routes()])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def let_go(self) -> None:
        """Say goodbye to those who are connected, after what is in flight was answered."""
        await self.sockets.close()

    async def close(self) -> None:
        """End what belongs to it."""
