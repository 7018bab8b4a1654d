"""The names of the headers on the wire."""

LOG_ID = "LORO_LOG_ID"  # on chunks, answers and accepted updates: names one byte string and one split
CHUNK_INDEX = "LORO_CHUNK_INDEX"  # on every chunk, from 0
CHUNK_COUNT = "LORO_CHUNK_COUNT"  # on the last chunk; absent: its index + 1
FINAL = "LORO_FINAL"  # on the last chunk: true
DIGEST = "LORO_DIGEST"  # on the last chunk and on answers: xxh64 of the whole update, in decimal
RESPONSE_INBOX = "LORO_RESPONSE_INBOX"  # on the last chunk: where the answer goes
AGAIN = "LORO_AGAIN"  # on every chunk of an update that a server publishes again: it was accepted once

TOKEN = "LORO_TOKEN"  # on every chunk of a call: who asks, for an owner that has keys

REASON = "LORO_REASON"  # on a NACK and on the refusal of a call: a code for programs
MESSAGE = "LORO_MESSAGE"  # beside a reason: a sentence for people
SEQUENCE = "LORO_SEQUENCE"  # on an ACK and on accepted updates: where the WAL holds it
PREVIOUS = "LORO_PREVIOUS"  # on accepted updates: the sequence of the one accepted before
DURABILITY = "LORO_DURABILITY"  # on an ACK: what holds the update now
LEASE = "LORO_LEASE"  # the fencing token of the owner that says it
OMITTED = "LORO_OMITTED"  # on loro.accepted: the update is too large to push, sync instead

MEMBER = "LORO_MEMBER"  # on loro.awareness: the one who says it, so that it need not be told

EXPECTED = "LORO_EXPECTED"  # on an init that leaves the move to the server: the revision the asker saw, or 0
EXISTING = "LORO_EXISTING"  # on an init: decline with not-found if the document does not exist
SERVER = "LORO_SERVER"  # on a status entry: the server that wrote it
HEAD = "LORO_HEAD"  # on a renewal: the owner's highest accepted sequence
TAIL = "LORO_TAIL"  # on a renewal: that of the update accepted last, if it had waited and is not the highest
TAKEN_FROM = "LORO_TAKEN_FROM"  # on a STARTING over another's UP or STARTING: the server that had it
FAILURES = "LORO_FAILURES"  # on STARTING and ERROR: loads of the document that ran and failed
TRACE = "LORO_TRACE"  # on a STARTING whose server failed: where its log lines are
