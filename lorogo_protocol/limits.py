"""Limits and times of the protocol, and the relations between them.

These are defaults: each is a setting of the server, the client or both. The unit is the end of the name.
"""

KIB = 1024
MIB = 1024 * KIB

# Sizes
DOCUMENT_ID_CHARS_MAX = 128  # an id is a subject token, a KV key and an object name
LOG_ID_CHARS_MAX = 64  # of log ids, operation ids, server ids and trace ids
CHUNK_BYTES_MAX = 128 * KIB  # of an update or a long call, in one message
CHUNK_HEADER_BYTES_RESERVED = 2 * KIB  # part of max_payload for NATS headers
UPDATE_BYTES_MAX = 64 * MIB  # an update is held in memory completely
DOCUMENT_BYTES_MAX = 256 * MIB  # of a stored snapshot and the updates accepted since
UPDATE_PEERS_MAX = 1000  # Loro's import takes time with peers times changes, and nothing interrupts it
UPDATE_PEER_CHANGES_MAX = 10_000 * UPDATE_PEERS_MAX  # an update's peers times its changes
PATCH_OPERATIONS_MAX = 10_000  # of a JSON Patch
PATCH_WORK_MAX = 16 * MIB  # units of a JSON Patch (lorogo_server/sandbox/work_meter.py): about 2 s
LOOP_WORK_MAX = 128 * KIB  # units of one call on the event loop: about 15 ms
# A document above one of these is read, exported, reverted and patched by a child process: a call on the
# event loop takes up to 0.2 s at these limits (a tree), longer above (lorogo_server/sandbox/child_process.py)
LOOP_OPERATIONS_MAX = 15_000  # of a document, including trimmed ones; above, a child makes the first call
LOOP_DOCUMENT_BYTES_MAX = 2 * MIB  # of a document; above it a child process makes the first call
LOOP_CALL_SECONDS_MAX = 0.05  # of a measured call; below it the loop makes the next call of that kind
# Limits of a new update whose state Loro computes at once instead of in steps: each takes less than 250 ms
UNSTEPPED_OPERATIONS_MAX = 20_000  # that change trees or movable lists
TREE_BESIDE_OPERATIONS_MAX = 2_000  # that change trees, concurrent with other operations
EDITS_MAX = 200_000  # of any kind; a paste is one
EDITS_BESIDE_MAX = 50_000  # concurrent with other operations; a paste is one
MERGED_OPERATIONS_MAX = 200_000  # of several peers; or of one, with as many concurrent operations
RUN_BESIDE_OPERATIONS_MAX = 2_000_000  # of one peer, concurrent with other operations
TREE_REPLAY_STEPS_MAX = 2_000_000  # sum over concurrent tree operations of their node's depth: about 0.12 s
SNAPSHOT_MERGED_OPERATIONS_MAX = 2_000  # of a snapshot imported into a document with content
UNFINISHED_BYTES_MAX = 4 * UPDATE_BYTES_MAX  # per document; above, the oldest unfinished update is dropped
UNFINISHED_UPDATES_MAX = 1024  # per document
PENDING_BYTES_MAX = 16 * MIB  # of a load: updates with missing dependencies, per document
PENDING_UPDATES_MAX = 256  # updates with missing dependencies that stay in the WAL, per document
ACCEPTED_INLINE_BYTES_MAX = 8 * MIB  # larger accepted updates are announced without content
AWARENESS_BYTES_MAX = 64 * KIB  # of presence in one message
PRESENT_BYTES_MAX = MIB  # merged presence of a document; above, the oldest entries are dropped
PRESENT_ENTRIES_MAX = 10_000  # of presence, per document
WAL_FITTED_BYTES_MIN = 64 * MIB  # of a limit that is fitted to JetStream's storage
WAL_FITTED_BYTES_MAX = 8 * 1024 * MIB  # of the same
KEPT_PRESENCE_BYTES_MAX = 128 * MIB  # stored presence of all documents; JetStream reserves it
MESSAGE_CHARS_MAX = 500  # of the text in LORO_MESSAGE
WINDOW_BYTES = 4 * MIB  # of a chunked reply that may be unacknowledged by the receiver
INGEST_BYTES_MAX = 4 * MIB  # that wait for one stream in nats-server: its `max_buffered_size`

# Times
RENEW_SECONDS = 3.0  # how often an owner renews its lease
LEASE_SECONDS = 4.0  # validity of a lease after a confirmed renewal was sent
STALE_SECONDS = 5.0  # without a renewal; then another server may take over
REPLY_SECONDS = 5.0  # an update without a reply is sent again after this time
UNFINISHED_SECONDS = 60.0  # for the chunks of an update without a final one
CHUNK_GRACE_SECONDS = 1.0  # after the final chunk, for late chunks
RESTART_SECONDS = 1.0  # wait before a load whose retry count restarts; doubled each time
RESTART_SECONDS_MAX = 60.0  # the longest such wait
PENDING_SECONDS = 60.0  # that an update with missing dependencies stays in the WAL
REMEMBER_ACKED_SECONDS = 600.0  # a repeated final chunk is ACKed again
REMEMBER_ACKED_MAX = 100_000  # ACKed log ids, per document
PRESENCE_SECONDS = 30.0  # expiry of a presence entry without renewal
REJECTED_KEEP_SECONDS = 7 * 24 * 3600.0  # for quarantined updates
HISTORY_SECONDS = 30 * 24 * 3600.0  # of history that a compaction keeps

# Counts
RETRIES_MAX = 3  # failures of a document before ERROR

# Tokens. A CONNECT line of NATS has 4 KiB, for the token, the requested documents, and other fields.
TOKEN_BYTES_MAX = 2_560  # of the text
TOKEN_SUBJECT_CHARS_MAX = 128  # of `sub`
TOKEN_DOCUMENTS_BYTES_MAX = 1_024  # the ids in `user` of a connection, with their commas
TOKEN_DOCUMENTS_MAX = 32  # ids in `user`: each costs the callout service time
GRANTS_MAX = 256  # ids and patterns in a token
CALLOUT_SUBSCRIPTIONS_MAX = 10_000  # of a NATS connection with a token
REVOKED_BYTES_MAX = 64 * MIB  # of the list of revocations; JetStream reserves it

assert RENEW_SECONDS < LEASE_SECONDS < STALE_SECONDS
assert CHUNK_BYTES_MAX <= UPDATE_BYTES_MAX <= UNFINISHED_BYTES_MAX
assert 4 * AWARENESS_BYTES_MAX <= PRESENT_BYTES_MAX  # one message never displaces all other entries
assert UPDATE_BYTES_MAX <= DOCUMENT_BYTES_MAX
assert LOOP_WORK_MAX < PATCH_WORK_MAX
assert REMEMBER_ACKED_SECONDS > UNFINISHED_SECONDS
assert CHUNK_GRACE_SECONDS < REPLY_SECONDS  # a lost chunk is answered before the sender gives up
assert TOKEN_BYTES_MAX + TOKEN_DOCUMENTS_BYTES_MAX + 512 <= 4 * KIB
