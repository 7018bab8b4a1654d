"""The numbers of the protocol, in one place, with how they relate.

These are defaults: every one is a setting of the server, the client or both. Units come last.
"""

KIB = 1024
MIB = 1024 * KIB

# Sizes
DOCUMENT_ID_CHARS_MAX = 128
LOG_ID_CHARS_MAX = 64
CHUNK_BYTES_MAX = 128 * KIB
CHUNK_HEADER_BYTES_RESERVED = 2 * KIB  # what NATS headers may take of max_payload
UPDATE_BYTES_MAX = 64 * MIB
DOCUMENT_BYTES_MAX = 256 * MIB  # of a document as it is stored, and what was accepted since
UPDATE_PEERS_MAX = 1000  # Loro's import takes time with peers times changes, and nothing interrupts it
UPDATE_PEER_CHANGES_MAX = 10_000 * UPDATE_PEERS_MAX  # an update's peers times its changes
UNFINISHED_BYTES_MAX = 4 * UPDATE_BYTES_MAX  # per document, before the oldest unfinished update goes
UNFINISHED_UPDATES_MAX = 1024
PENDING_BYTES_MAX = 16 * MIB  # updates that wait for their dependencies, per document
PENDING_UPDATES_MAX = 256
ACCEPTED_INLINE_BYTES_MAX = 8 * MIB  # larger accepted updates are announced, readers sync
AWARENESS_BYTES_MAX = 64 * KIB
PRESENT_BYTES_MAX = MIB  # the presence of a document, merged, before what was said first goes
PRESENT_ENTRIES_MAX = 10_000
KEPT_PRESENCE_BYTES_MAX = 128 * MIB  # of all documents together: JetStream sets it aside
MESSAGE_CHARS_MAX = 500  # the sentence in LORO_MESSAGE
WINDOW_BYTES = 4 * MIB  # of a chunked reply, before the receiver must say go on

# Times
RENEW_SECONDS = 3.0
LEASE_SECONDS = 4.0  # an owner trusts its lease this long after sending a renewal that came back
STALE_SECONDS = 5.0  # others may take over after seeing no renewal for this long
REPLY_SECONDS = 5.0
UNFINISHED_SECONDS = 60.0
CHUNK_GRACE_SECONDS = 1.0  # after the final chunk, for those that come late
PENDING_SECONDS = 60.0
REMEMBER_ACKED_SECONDS = 600.0
REMEMBER_ACKED_MAX = 100_000
PRESENCE_SECONDS = 30.0
REJECTED_KEEP_SECONDS = 7 * 24 * 3600.0
HISTORY_SECONDS = 30 * 24 * 3600.0

# Counts
RETRIES_MAX = 3

# Tokens. A CONNECT line of NATS has 4 KiB: the token, the documents that it is for, and the rest.
TOKEN_BYTES_MAX = 2_560
TOKEN_SUBJECT_CHARS_MAX = 128
TOKEN_DOCUMENTS_BYTES_MAX = 1_024  # the ids in `user`, with their commas
TOKEN_DOCUMENTS_MAX = 32  # of them: each is work for who lets the connection in
GRANTS_MAX = 256
CALLOUT_SUBSCRIPTIONS_MAX = 10_000  # of a connection with a token
REVOKED_BYTES_MAX = 64 * MIB  # of the list of what is revoked: JetStream sets it aside

assert RENEW_SECONDS < LEASE_SECONDS < STALE_SECONDS
assert CHUNK_BYTES_MAX <= UPDATE_BYTES_MAX <= UNFINISHED_BYTES_MAX
assert 4 * AWARENESS_BYTES_MAX <= PRESENT_BYTES_MAX  # one message never drives out the rest
assert UPDATE_BYTES_MAX <= DOCUMENT_BYTES_MAX
assert REMEMBER_ACKED_SECONDS > UNFINISHED_SECONDS
assert CHUNK_GRACE_SECONDS < REPLY_SECONDS  # a lost chunk is answered before the sender gives up
assert TOKEN_BYTES_MAX + TOKEN_DOCUMENTS_BYTES_MAX + 512 <= 4 * KIB
