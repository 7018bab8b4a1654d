"""The rule for reply subjects.

A server has more permissions than its callers. If it answered to any reply subject, a ping with the
reply `$JS.API.STREAM.PURGE.loro-wal` would make it empty the WAL. So handlers never see such a reply.
A server with keys answers only to inboxes that belong to one user (docs/decisions/0016), and the auth
service, which answers nats-server itself, only to the inboxes of nats-servers.
"""

from typing import Final

from lorogo_protocol.ids import is_inbox, is_user_inbox

NATS_INBOX: Final = "$SYS._INBOX."  # of nats-servers


class ReplyRule:
    """The rule of one connection, and the number of requests with a forbidden reply subject."""

    __slots__ = ("nats_only", "refused", "users_only")

    def __init__(self, *, users_only: bool = False, nats_only: bool = False) -> None:
        self.users_only = users_only
        self.nats_only = nats_only
        self.refused = 0

    def to(self, reply: str) -> str:
        """Return the reply subject if it is allowed, else "": then no answer is sent."""
        if not reply:
            return ""
        if self.nats_only:
            may = reply.startswith(NATS_INBOX)
        else:
            may = is_user_inbox(reply) if self.users_only else is_inbox(reply)
        if may:
            return reply
        self.refused += 1
        return ""
