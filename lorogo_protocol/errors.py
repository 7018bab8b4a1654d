"""The error tree of lorogo.

    LorogoError                     has a code for programs and a message for people
    ├── InvalidDocumentId           caller's fault: not a valid document id
    ├── MalformedMessage            peer's fault: bytes or headers violate the protocol
    ├── CrdtError                   Loro's fault or refusal: see lorogo_protocol.loro.crdt
    │   ├── InvalidUpdate           not decodable: the bytes are not a Loro update
    │   ├── TooManyPeers            too wide: importing the update would block the server
    │   ├── TooLong                 too slow: importing the update would block the server
    │   ├── TooFarBehind            too slow: the document changed much since the version of the update
    │   ├── OperationIdsReused      a conflict: the document has other content under the update's ids
    │   └── HistoryTrimmed          too old: the operation needs trimmed history
    ├── InvalidKey                  caller's fault: not a valid key for tokens (access.tokens)
    ├── InvalidGrants               caller's fault: not valid grants of a token (access.grants)
    ├── LaterWire                   unknown version: data of a later lorogo (messages.wire)
    ├── TokenRefused                not accepted: the token is malformed, expired, early, revoked or unchecked
    └── Refused                     refused call: the server's reason (see lorogo_protocol.messages.reasons)

`lorogo_transport.errors` and `lorogo_client.errors` add their own branches to LorogoError.
`retriable` is an attribute of the class: the same call may succeed later without a change.
"""

from typing import ClassVar


class LorogoError(Exception):
    """Base class of all errors of lorogo."""

    code: str = "error"
    retriable: ClassVar[bool] = False


class InvalidDocumentId(LorogoError):
    """The text is not a valid document id; nothing was sent."""

    code = "invalid-document-id"

    def __init__(self, value: str, problem: str) -> None:
        super().__init__(f"{value!r} is not a document id: {problem}")
        self.value = value
        self.problem = problem


class MalformedMessage(LorogoError):
    """A message violates the protocol; its sender is at fault."""

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
    """The update has changes of so many peers that importing it would block all documents of the server."""

    code = "too-large"


class TooLong(CrdtError):
    """Importing the update would block the other documents of the server for too long."""

    code = "too-large"


class TooFarBehind(CrdtError):
    """Merging the update takes too long, because the document changed much since the update's version."""

    code = "outdated"


class HistoryTrimmed(CrdtError):
    """The operation needs history that a shallow snapshot no longer has."""

    code = "history-trimmed"
