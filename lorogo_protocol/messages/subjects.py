"""Names of all subjects, streams and buckets of lorogo."""

WAL_STREAM = "loro-wal"
STATUS_BUCKET = "loro-document-status"
STATUS_STREAM = f"KV_{STATUS_BUCKET}"
SNAPSHOT_BUCKET = "loro-document-snapshots"
SNAPSHOT_STREAM = f"OBJ_{SNAPSHOT_BUCKET}"
REJECTED_STREAM = "loro-rejected"
PRESENCE_BUCKET = "loro-presence"
PRESENCE_STREAM = f"KV_{PRESENCE_BUCKET}"
REVOKED_BUCKET = "loro-revoked"
REVOKED_STREAM = f"KV_{REVOKED_BUCKET}"

SERVICE = "lorogo"  # service name in the NATS services protocol
SERVER_STARTED = "loro.server.started"  # a server has started or reconnected; a hint for feeds
VOUCHED_ALL = "loro.server.vouched.*"
SERVER_RECOVER = "loro.server.recover"  # a server requests that others restore a document before it loads it
INIT_QUEUE = "loro-servers"  # queue group of the servers, for init and reset
INIT_ALL = "loro.init.*"
ERASED_ALL = "loro.erased.*"
REVOKED_ALL = "loro.revoked.*"
RESET_ALL = "loro.reset.*"
TAKEN = "_TAKEN"  # prefix: clients of closed servers confirm chunks of a reply here
TAKEN_ALL = f"{TAKEN}.>"
USER_INBOX = "_INBOX_"
SERVER_INBOX = f"{USER_INBOX}srv"  # inboxes of servers: other users cannot subscribe
GATEWAY_INBOX = f"{USER_INBOX}gateway"  # the same for gateways
OPERATOR_INBOX = f"{USER_INBOX}operator"  # the same for operators
STATUS_KEYS_ALL = f"$KV.{STATUS_BUCKET}.*"
EPOCH_KEY = f"$KV.{STATUS_BUCKET}._kv_epoch"  # key of the epoch; document ids cannot begin with _kv


def wal(document_id: str) -> str:
    """Clients publish the chunks of their updates here; JetStream stores them."""
    return f"loro.wal.{document_id}"


def committed(document_id: str) -> str:
    """JetStream republishes every stored chunk here; the owner follows it."""
    return f"loro.committed.{document_id}"


def accepted(document_id: str) -> str:
    """The owner publishes each accepted update here, once; clients subscribe."""
    return f"loro.accepted.{document_id}"


def status_key(document_id: str) -> str:
    """The document's key in the status bucket."""
    return f"$KV.{STATUS_BUCKET}.{document_id}"


def status(document_id: str) -> str:
    """JetStream republishes every change of the status here."""
    return f"loro.status.{document_id}"


def vouched(document_id: str) -> str:
    """Servers announce here the updates that they publish again."""
    return f"loro.server.vouched.{document_id}"


def ping(document_id: str) -> str:
    """The owner replies to requests here with an empty message."""
    return f"loro.ping.{document_id}"


def init(document_id: str) -> str:
    """One server of the queue group acquires the document; the body is the operation id."""
    return f"loro.init.{document_id}"


def call(verb: str, document_id: str) -> str:
    """Calls with this verb to the owner."""
    return f"loro.doc.{verb}.{document_id}"


def calls(document_id: str) -> str:
    """All calls to the owner of one document."""
    return f"loro.doc.*.{document_id}"


def awareness(document_id: str) -> str:
    """Clients and the owner publish presence here."""
    return f"loro.awareness.{document_id}"


def presence_key(document_id: str) -> str:
    """The document's key in the bucket of stored presence."""
    return f"$KV.{PRESENCE_BUCKET}.{document_id}"


def rejected(document_id: str) -> str:
    """Quarantined updates of one document, in the stream loro-rejected."""
    return f"loro.rejected.{document_id}"


def server_feed(server_id: str) -> str:
    """Calls to one server: pages of its journals."""
    return f"loro.server.feed.{server_id}"


def erased(document_id: str) -> str:
    """The owner announces here that the document is erased; every server removes its data."""
    return f"loro.erased.{document_id}"


def reset(document_id: str) -> str:
    """One server of the queue group clears the document's ERROR."""
    return f"loro.reset.{document_id}"


def revoked_key(name: str) -> str:
    """A key in the bucket of revoked tokens."""
    return f"$KV.{REVOKED_BUCKET}.{name}"


def revoked(name: str) -> str:
    """JetStream republishes every revocation here."""
    return f"loro.revoked.{name}"


def user_inbox(user: str) -> str:
    """Prefix of this user's inboxes."""
    return f"{USER_INBOX}{user}"


def user_inboxes(user: str) -> str:
    """All inboxes of this user."""
    return f"{USER_INBOX}{user}.>"


def document_of(subject: str) -> str:
    """Return the document id, which is the last token of the subjects above."""
    return subject.rpartition(".")[2]
