"""Reasons of NACKs and refused calls: the codes of LORO_REASON."""

from enum import StrEnum

#: messages with DELETED: for a document that can be restored, and one that cannot
DELETED = "the document is deleted; restore it first"
ERASED = "the document was erased for good"


class Reason(StrEnum):
    """A code for programs; the message beside it is for people."""

    # updates
    DIGEST_MISMATCH = "digest-mismatch"  # the bytes have another digest
    CHUNK_MISSING = "chunk-missing"  # chunks are missing, or the count is wrong
    TOO_LARGE = "too-large"  # above a limit of an update, or of a call
    INVALID_UPDATE = "invalid-update"  # not an update of Loro
    MISSING_DEPENDENCIES = "missing-dependencies"  # it depends on changes that the owner does not have
    HISTORY_TRIMMED = "history-trimmed"  # it depends on history that the document no longer has
    OUTDATED = "outdated"  # merging it takes too long: the document changed much since its version
    PEER_REUSED = "peer-reused"  # the document has other content under its operation ids
    DELETED = "deleted"  # the document is deleted
    NOT_OWNER = "not-owner"  # the replying server has lost the lease, or cannot confirm it
    STORAGE_FULL = "storage-full"  # the WAL is full
    DOCUMENT_FULL = "document-full"  # the document would exceed its size limit
    # before the WAL: client, gateway, NATS permissions
    RATE_LIMITED = "rate-limited"  # above a rate limit
    READ_ONLY = "read-only"  # the sender has read access only
    # calls
    PERMISSION_DENIED = "permission-denied"  # the token does not allow it
    INVALID_REQUEST = "invalid-request"  # an argument is missing or of another type
    INVALID_DOCUMENT_ID = "invalid-document-id"  # the text cannot name a document
    UNKNOWN_VERB = "unknown-verb"  # the call does not exist
    NOT_FOUND = "not-found"  # the requested thing does not exist
    CONFLICT = "conflict"  # the state of the document does not allow the call
    PATCH_FAILED = "patch-failed"  # the patch does not apply; the document is unchanged
    UNKNOWN_VERSION = "unknown-version"  # the document has no such version, or no longer
    BUSY = "busy"  # retry: the server cannot execute the call now, or does not know its outcome
    FAILED = "failed"  # an error; the message and the server's log have the cause

    @property
    def retriable(self) -> bool:
        """True if the same update or call may succeed when it is sent again."""
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
