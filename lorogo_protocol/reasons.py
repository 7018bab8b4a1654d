"""Why a server says no: the codes of LORO_REASON, for updates and for calls."""

from enum import StrEnum

#: the sentences beside DELETED: whether the document can be had back
DELETED = "the document is deleted; restore it first"
ERASED = "the document was erased for good"


class Reason(StrEnum):
    """A code that programs branch on; the sentence beside it is for people."""

    # updates
    DIGEST_MISMATCH = "digest-mismatch"  # the bytes are not those that were digested
    CHUNK_MISSING = "chunk-missing"  # chunks did not come, or the count is wrong
    TOO_LARGE = "too-large"  # above a limit of an update, or of a call
    INVALID_UPDATE = "invalid-update"  # not an update of Loro
    MISSING_DEPENDENCIES = "missing-dependencies"  # it builds on changes that the owner has not
    HISTORY_TRIMMED = "history-trimmed"  # it builds on history older than the document keeps
    PEER_REUSED = "peer-reused"  # the document has other content under its operation ids
    DELETED = "deleted"  # the document is deleted
    NOT_OWNER = "not-owner"  # the answering server is losing the document
    STORAGE_FULL = "storage-full"  # the WAL takes no more
    DOCUMENT_FULL = "document-full"  # the document would be larger than it may be
    # before the WAL: client, gateway, NATS permissions
    RATE_LIMITED = "rate-limited"  # too much in too short a time
    READ_ONLY = "read-only"  # whoever sent it may only read
    # calls
    PERMISSION_DENIED = "permission-denied"  # the token does not allow it
    INVALID_REQUEST = "invalid-request"  # an argument is missing or of another type
    INVALID_DOCUMENT_ID = "invalid-document-id"  # the text cannot name a document
    UNKNOWN_VERB = "unknown-verb"  # there is no such call
    NOT_FOUND = "not-found"  # what was asked for is not there
    CONFLICT = "conflict"  # it is not in a state in which this can be done
    PATCH_FAILED = "patch-failed"  # the patch does not apply; nothing of it was done
    UNKNOWN_VERSION = "unknown-version"  # the document has no such version, or no longer
    BUSY = "busy"  # ask again: not now, or it is not known whether it was done
    FAILED = "failed"  # it went wrong; the sentence and the log of the server say how

    @property
    def retriable(self) -> bool:
        """Whether the same bytes, sent again, may be accepted."""
        return self in _RETRIABLE


_RETRIABLE = frozenset(
    {
        Reason.DIGEST_MISMATCH,
        Reason.CHUNK_MISSING,
        Reason.MISSING_DEPENDENCIES,  # after a version-vector sync
        Reason.NOT_OWNER,
        Reason.RATE_LIMITED,
        Reason.BUSY,
    }
)
