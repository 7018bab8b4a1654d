"""Notifications of one room to its readers: states, changes, and progress."""

import asyncio

from lorogo_client.session import notifications
from lorogo_client.session.notifications import Item, NotificationQueue, State
from lorogo_protocol.errors import LorogoError


class Notifier:
    """The readers of one room."""

    def __init__(self, changes_max: int) -> None:
        self.state = State.CONNECTING
        self._changes_max = changes_max
        self._failure: LorogoError | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._states: list[NotificationQueue[State]] = []
        self._changes: list[NotificationQueue[Item]] = []

    def notify(self, state: State) -> None:
        """Wake waiters, and push the state if it changed."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
        if state is not self.state:
            self.state = state
            for feed in self._states:
                feed.push(state)

    def changed(self, item: Item) -> None:
        for feed in self._changes:
            feed.push(item)

    def failed(self, error: LorogoError) -> None:
        """End changes and states with a permanent error."""
        self._failure = error
        for feed in self._changes:
            feed.close(error)
        for state_feed in self._states:
            state_feed.close(error)

    async def progress(self) -> None:
        """Wait for the next notification; the caller sets the deadline."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def states(self) -> NotificationQueue[State]:
        """Return a feed of states, starting with the current one."""
        feed = notifications.latest(self.state)
        self._states.append(feed)
        if self._failure is not None:
            feed.close(self._failure)
        return feed

    def changes(self) -> NotificationQueue[Item]:
        """Return a feed of remote changes."""
        feed = notifications.changes(self._changes_max)
        self._changes.append(feed)
        if self._failure is not None:
            feed.close(self._failure)
        return feed

    def forget(self, states: list[NotificationQueue[State]], changes: list[NotificationQueue[Item]]) -> None:
        """End the readers of a closed session."""
        for state_feed in states:
            state_feed.close()
        for change_feed in changes:
            change_feed.close()
        self._states = [feed for feed in self._states if feed not in states]
        self._changes = [feed for feed in self._changes if feed not in changes]

    def close(self, error: LorogoError | None) -> None:
        """End all readers."""
        for feed in self._changes:
            feed.close(error)
        for state_feed in self._states:
            state_feed.close()
