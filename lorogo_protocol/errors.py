"""The errors of lorogo, one tree.

    LorogoError                     carries a code for programs and a sentence for people
    ├── InvalidDocumentId           yours: the name cannot be a document id
    ├── MalformedMessage            the peer's: bytes or headers that the protocol does not allow
    ├── CrdtError                   loro refused something (see lorogo_protocol.crdt)
    │   ├── InvalidUpdate           the bytes do not decode as a Loro update
    │   ├── TooManyPeers            importing it would hold up everybody
    │   ├── TooLong                 importing it would take the server too long
    │   ├── OperationIdsReused      the document has other content under its operation ids
    │   └── HistoryTrimmed          it needs history from before the shallow start
    ├── InvalidKey                  yours: not a key that mints or verifies tokens (lorogo_protocol.tokens)
    ├── InvalidGrants               yours: a token cannot grant that (lorogo_protocol.grants)
    ├── LaterWire                   made by a later version of lorogo (lorogo_protocol.wire)
    ├── TokenRefused                the token is not good: malformed, expired, early, revoked, unchecked
    └── Refused                     the server answered no, with a reason (see lorogo_protocol.reasons)

`lorogo_transport.errors` and `lorogo_client.errors` hang their own branches on LorogoError.
`retriable` is a fact of the class: the same call may succeed later without a change.
"""

from typing import ClassVar


class LorogoError(Exception):
    """Anything that lorogo raises on purpose."""

    code: str = "error"
    retriable: ClassVar[bool] = False


class InvalidDocumentId(LorogoError):
    """The text cannot name a document; nothing was sent."""

    code = "invalid-document-id"

    def __init__(self, value: str, problem: str) -> None:
        super().__init__(f"{value!r} is not a document id: {problem}")
        self.value = value
        self.problem = problem


class MalformedMessage(LorogoError):
    """A message that the protocol does not allow; its sender is at fault."""

    code = "malformed-message"


class CrdtError(LorogoError):
    """Loro refused an operation."""

    code = "crdt"


class InvalidUpdate(CrdtError):
    """The bytes are not a Loro update that this version can read."""

    code = "invalid-update"


class OperationIdsReused(CrdtError):
    """The document has other content under operation ids of the update: two replicas share a peer id."""

    code = "peer-reused"


class TooManyPeers(CrdtError):
    """The update holds changes of so many peers that importing it would hold up everybody."""

    code = "too-large"


class TooLong(CrdtError):
    """Importing the update would keep the server from every other document for too long."""

    code = "too-large"


class HistoryTrimmed(CrdtError):
    """The operation needs history that a shallow snapshot no longer has."""

    code = "history-trimmed"
