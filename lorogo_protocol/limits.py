"""The numbers of the protocol, in one place, with how they relate.

These are defaults: every one is a setting of the server, the client or both. Units come last.
"""

KIB = 1024
MIB = 1024 * KIB

# Sizes
DOCUMENT_ID_CHARS_MAX = 128  # it is a subject token, a KV key and an object name
LOG_ID_CHARS_MAX = 64  # of log ids, operation ids, server ids and trace ids
CHUNK_BYTES_MAX = 128 * KIB  # of an update or a long call, in one message
CHUNK_HEADER_BYTES_RESERVED = 2 * KIB  # what NATS headers may take of max_payload
UPDATE_BYTES_MAX = 64 * MIB  # it is held in memory whole
DOCUMENT_BYTES_MAX = 256 * MIB  # of a document as it is stored, and what was accepted since
UPDATE_PEERS_MAX = 1000  # Loro's import takes time with peers times changes, and nothing interrupts it
UPDATE_PEER_CHANGES_MAX = 10_000 * UPDATE_PEERS_MAX  # an update's peers times its changes
PATCH_OPERATIONS_MAX = 10_000  # of a JSON Patch
PATCH_WORK_MAX = (
    16 * MIB
)  # units of a JSON Patch (lorogo_server/sandbox/call_executor.py): about 2 s in a thread
LOOP_WORK_MAX = 128 * KIB  # units of one call on the event loop: about 15 ms
# A document above one of these is read, exported, reverted and patched by a child process: on the event loop
# that takes up to 0.2 s at these (a tree), and more above them (lorogo_server/sandbox/child_process.py)
LOOP_OPERATIONS_MAX = 15_000  # of a document, ever; above it a child process makes the first call
LOOP_DOCUMENT_BYTES_MAX = 2 * MIB  # of a document; above it a child process makes the first call
LOOP_CALL_SECONDS_MAX = 0.05  # of a call on a whole document; the loop makes the next one like it
# Of a new update, where Loro works it out at once and not in steps: each takes less than 250 ms
UNSTEPPED_OPERATIONS_MAX = 20_000  # that change trees or movable lists
TREE_BESIDE_OPERATIONS_MAX = 2_000  # that change trees, beside anything that their writer had not seen
EDITS_MAX = 200_000  # of any kind; a paste is one
EDITS_BESIDE_MAX = 50_000  # beside anything that their writer had not seen; a paste is one
MERGED_OPERATIONS_MAX = 200_000  # of several peers; or of one, beside as many that it had not seen
RUN_BESIDE_OPERATIONS_MAX = 2_000_000  # of one peer, beside anything that it had not seen
TREE_REPLAY_STEPS_MAX = 2_000_000  # tree operations beside it, each times the depth of its node: about 0.12 s
SNAPSHOT_MERGED_OPERATIONS_MAX = 2_000  # of a snapshot that comes into a document with content
MARKS_MAX = 10_000  # imported in steps: a mark costs as much as there are ends of others in its range
UNSTEPPED_MARKS_MAX = 500  # where steps are not possible
UNFINISHED_BYTES_MAX = 4 * UPDATE_BYTES_MAX  # per document, before the oldest unfinished update goes
UNFINISHED_UPDATES_MAX = 1024  # per document
PENDING_BYTES_MAX = 16 * MIB  # updates that wait for their dependencies, per document
PENDING_UPDATES_MAX = 256  # per document
ACCEPTED_INLINE_BYTES_MAX = 8 * MIB  # larger accepted updates are announced, readers sync
AWARENESS_BYTES_MAX = 64 * KIB  # of presence in one message
PRESENT_BYTES_MAX = MIB  # the presence of a document, merged, before what was said first goes
PRESENT_ENTRIES_MAX = 10_000  # of a document
WAL_FITTED_BYTES_MIN = 64 * MIB  # of a limit that is fitted to JetStream's storage
WAL_FITTED_BYTES_MAX = 8 * 1024 * MIB  # of the same
KEPT_PRESENCE_BYTES_MAX = 128 * MIB  # of all documents together: JetStream sets it aside
MESSAGE_CHARS_MAX = 500  # the sentence in LORO_MESSAGE
WINDOW_BYTES = 4 * MIB  # of a chunked reply, before the receiver must say go on

# Times
RENEW_SECONDS = 3.0  # how often an owner renews its lease
LEASE_SECONDS = 4.0  # an owner trusts its lease this long after sending a renewal that came back
STALE_SECONDS = 5.0  # others may take over after seeing no renewal for this long
REPLY_SECONDS = 5.0  # without an answer an update is sent again
UNFINISHED_SECONDS = 60.0  # for the chunks of an update without a final one
CHUNK_GRACE_SECONDS = 1.0  # after the final chunk, for those that come late
RESTART_SECONDS = 1.0  # wait before a load whose retry count restarts; doubled each time,
RESTART_SECONDS_MAX = 60.0  # up to this
PENDING_SECONDS = 60.0  # for what an update builds on to come
REMEMBER_ACKED_SECONDS = 600.0  # a final chunk that comes again is ACKed again
REMEMBER_ACKED_MAX = 100_000  # of log ids, before the oldest goes
PRESENCE_SECONDS = 30.0  # until an entry that is not renewed goes
REJECTED_KEEP_SECONDS = 7 * 24 * 3600.0  # for quarantined updates
HISTORY_SECONDS = 30 * 24 * 3600.0  # what a compacted document keeps of its past

# Counts
RETRIES_MAX = 3  # failures of a document, before it is in ERROR

# Tokens. A CONNECT line of NATS has 4 KiB: the token, the documents that it is for, and the rest.
TOKEN_BYTES_MAX = 2_560  # of the text
TOKEN_SUBJECT_CHARS_MAX = 128  # of `sub`
TOKEN_DOCUMENTS_BYTES_MAX = 1_024  # the ids in `user`, with their commas
TOKEN_DOCUMENTS_MAX = 32  # of them: each is work for who lets the connection in
GRANTS_MAX = 256  # ids and patterns in a token
CALLOUT_SUBSCRIPTIONS_MAX = 10_000  # of a connection with a token
REVOKED_BYTES_MAX = 64 * MIB  # of the list of what is revoked: JetStream sets it aside

assert RENEW_SECONDS < LEASE_SECONDS < STALE_SECONDS
assert CHUNK_BYTES_MAX <= UPDATE_BYTES_MAX <= UNFINISHED_BYTES_MAX
assert 4 * AWARENESS_BYTES_MAX <= PRESENT_BYTES_MAX  # one message never drives out the rest
assert UPDATE_BYTES_MAX <= DOCUMENT_BYTES_MAX
assert LOOP_WORK_MAX < PATCH_WORK_MAX
assert REMEMBER_ACKED_SECONDS > UNFINISHED_SECONDS
assert CHUNK_GRACE_SECONDS < REPLY_SECONDS  # a lost chunk is answered before the sender gives up
assert TOKEN_BYTES_MAX + TOKEN_DOCUMENTS_BYTES_MAX + 512 <= 4 * KIB
