"""The names of the headers on the wire."""

LOG_ID = "LORO_LOG_ID"
CHUNK_INDEX = "LORO_CHUNK_INDEX"
CHUNK_COUNT = "LORO_CHUNK_COUNT"
FINAL = "LORO_FINAL"
DIGEST = "LORO_DIGEST"
RESPONSE_INBOX = "LORO_RESPONSE_INBOX"
AGAIN = "LORO_AGAIN"  # on every chunk of an update that a server publishes again: it was accepted once

TOKEN = "LORO_TOKEN"  # on every chunk of a call: who asks, for an owner that has keys

REASON = "LORO_REASON"
MESSAGE = "LORO_MESSAGE"
SEQUENCE = "LORO_SEQUENCE"
PREVIOUS = "LORO_PREVIOUS"
DURABILITY = "LORO_DURABILITY"
LEASE = "LORO_LEASE"
OMITTED = "LORO_OMITTED"  # on loro.accepted: the update is too large to push, sync instead

MEMBER = "LORO_MEMBER"  # on loro.awareness: the one who says it, so that it need not be told

EXPECTED = (
    "LORO_EXPECTED"  # on an init: the revision that the asker saw (0: none), left to the server to move
)
SERVER = "LORO_SERVER"  # on a status entry: the server that wrote it
HEAD = "LORO_HEAD"  # on a renewal: the owner's highest accepted sequence
TAIL = "LORO_TAIL"  # on a renewal: that of the update accepted last, if it had waited and is not the highest
TAKEN_FROM = "LORO_TAKEN_FROM"  # on a STARTING over another's UP or STARTING: the server that had it
TRACE = "LORO_TRACE"  # on a STARTING whose server failed: where its log lines are
