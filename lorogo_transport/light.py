"""Small forms of what asyncio has, for state that each of many documents keeps."""

import asyncio


class Event:
    """As asyncio.Event, in 48 bytes instead of 900: nobody waits for most of them, most of the time."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Whether it is set now."""
        return self._set

    def set(self) -> None:
        """Let all go on that wait, and nobody wait from now on."""
        self._set = True
        waiting, self._waiting = self._waiting, None
        for one in waiting or ():
            if not one.done():
                one.set_result(None)

    def clear(self) -> None:
        """Let those wait who come from now on; who was let go goes."""
        self._set = False

    async def wait(self) -> None:
        """Until it is set."""
        if self._set:
            return
        one = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = [one]
        else:
            self._waiting.append(one)
        try:
            await one
        finally:
            self._forget(one)

    def _forget(self, one: "asyncio.Future[None]") -> None:
        """It waits no more, perhaps because it gave up."""
        if self._waiting is not None and one in self._waiting:
            self._waiting.remove(one)
