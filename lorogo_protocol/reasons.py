"""Why a server says no: the codes of LORO_REASON, for updates and for calls."""

from enum import StrEnum

#: the sentences beside DELETED: whether the document can be had back
DELETED = "the document is deleted; restore it first"
ERASED = "the document was erased for good"


class Reason(StrEnum):
    """A code that programs branch on; the sentence beside it is for people."""

    # updates
    DIGEST_MISMATCH = "digest-mismatch"
    CHUNK_MISSING = "chunk-missing"
    TOO_LARGE = "too-large"
    INVALID_UPDATE = "invalid-update"
    MISSING_DEPENDENCIES = "missing-dependencies"
    HISTORY_TRIMMED = "history-trimmed"
    DELETED = "deleted"
    NOT_OWNER = "not-owner"
    STORAGE_FULL = "storage-full"
    DOCUMENT_FULL = "document-full"
    # before the WAL: client, gateway, NATS permissions
    RATE_LIMITED = "rate-limited"
    READ_ONLY = "read-only"
    # calls
    PERMISSION_DENIED = "permission-denied"
    INVALID_REQUEST = "invalid-request"
    INVALID_DOCUMENT_ID = "invalid-document-id"
    UNKNOWN_VERB = "unknown-verb"
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"
    PATCH_FAILED = "patch-failed"
    UNKNOWN_VERSION = "unknown-version"
    BUSY = "busy"
    FAILED = "failed"

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
