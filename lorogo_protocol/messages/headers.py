"""The names of the headers on the wire."""

LOG_ID = "LORO_LOG_ID"  # on chunks, replies and accepted updates: names one byte string and one split
CHUNK_INDEX = "LORO_CHUNK_INDEX"  # on every chunk, from 0
CHUNK_COUNT = "LORO_CHUNK_COUNT"  # on the last chunk; absent: its index + 1
FINAL = "LORO_FINAL"  # on the last chunk: true
DIGEST = "LORO_DIGEST"  # on the last chunk and on replies: xxh64 of the whole update, in decimal
RESPONSE_INBOX = "LORO_RESPONSE_INBOX"  # on the last chunk: subject for the reply
AGAIN = "LORO_AGAIN"  # on every chunk that a server publishes again: the update was accepted before

TOKEN = "LORO_TOKEN"  # on every chunk of a call to an owner with keys: the caller's token

REASON = "LORO_REASON"  # on a NACK and on the refusal of a call: a code for programs
MESSAGE = "LORO_MESSAGE"  # with a reason: a message for people
SEQUENCE = "LORO_SEQUENCE"  # on an ACK and on accepted updates: the sequence in the WAL
PREVIOUS = "LORO_PREVIOUS"  # on accepted updates: the sequence of the previous one
DURABILITY = "LORO_DURABILITY"  # on an ACK: where the update is stored
LEASE = "LORO_LEASE"  # the sending owner's fencing token
OMITTED = "LORO_OMITTED"  # on loro.accepted: the update is too large to push, sync instead

MEMBER = "LORO_MEMBER"  # on loro.awareness: id of the sender, so that it does not get its own message back

EXPECTED = "LORO_EXPECTED"  # on an init, if the server writes STARTING: revision that the client saw, or 0
EXISTING = "LORO_EXISTING"  # on an init: decline with not-found if the document does not exist
SERVER = "LORO_SERVER"  # on a status entry: the server that wrote it
HEAD = "LORO_HEAD"  # on a renewal: the owner's highest accepted sequence
TAKEN_FROM = "LORO_TAKEN_FROM"  # on a STARTING over another server's UP or STARTING: that server
JOURNAL_OF = "LORO_JOURNAL_OF"  # on a status entry: the server whose journal may hold more than NATS
FAILURES = "LORO_FAILURES"  # on STARTING and ERROR: number of failed loads
TRACE = "LORO_TRACE"  # on a STARTING after a failed load: trace id in the server's log
