"""The memory budget of payloads in outgoing queues: a payload shared by many clients counts once. Pure."""


class SharedPayloadBudget:
    """A budget of bytes of distinct payloads."""

    __slots__ = ("_bytes_max", "_users", "bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._users: dict[int, int] = {}  # by the identity of a payload, which its users keep alive

    def take(self, payload: bytes) -> bool:
        """Count a use of the payload if it fits; one larger than the budget fits if it is alone."""
        users = self._users.get(id(payload), 0)
        if not users:
            if self.bytes and self.bytes + len(payload) > self._bytes_max:
                return False
            self.bytes += len(payload)
        self._users[id(payload)] = users + 1
        return True

    def give_back(self, payload: bytes) -> None:
        """Release a use of the payload."""
        users = self._users.pop(id(payload)) - 1
        if users:
            self._users[id(payload)] = users
        else:
            self.bytes -= len(payload)
