"""Where an answer may go.

A server has more rights than those who ask it. If it answered to any reply subject, a ping with the
reply `$JS.API.STREAM.PURGE.loro-wal` would make it empty the WAL. So handlers never see such a reply.
"""

from lorogo_protocol.ids import is_inbox


def answerable(reply: str) -> str:
    """The reply subject if it may be answered, else nothing: then nobody is answered."""
    return reply if reply and is_inbox(reply) else ""
