"""Grants: access to documents by pattern, and the access that each verb needs (docs/decisions/0016).

Pure. A token has `Grants`; `subjects_of()` returns the NATS permissions that follow from them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.limits import DOCUMENT_ID_CHARS_MAX, GRANTS_MAX
from lorogo_protocol.messages import subjects

_PATTERN = re.compile(r"(?!-|_kv)[A-Za-z0-9_=*-]{1,128}")


class InvalidGrants(LorogoError):
    """The value is not a valid table of grants; the message has the wrong entry."""

    code = "invalid-grants"


class Access(IntEnum):
    """Access level of a grant; each level includes the lower ones."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The level's name in tokens."""
        return self.name.lower()


_WORDS: Final = {access.word: access for access in (Access.READ, Access.WRITE, Access.ADMIN)}

#: every verb, and the access that a call needs on its document; `fork` also needs WRITE on the target,
#: `delete` with purge ADMIN
VERBS: Final[Mapping[str, Access]] = {
    "sync": Access.READ,
    "version": Access.READ,
    "status": Access.READ,
    "get": Access.READ,
    "patch": Access.WRITE,
    "history": Access.READ,
    "revert": Access.WRITE,
    "fork": Access.READ,
    "export": Access.READ,
    "import": Access.WRITE,
    "delete": Access.WRITE,
    "restore": Access.WRITE,
    "compact": Access.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Grants:
    """Access by pattern; the highest access of all matching patterns applies."""

    table: tuple[tuple[str, Access], ...] = ()

    def access(self, document_id: str) -> Access:
        """Return the access to a document."""
        return max(
            (access for pattern, access in self.table if matches(pattern, document_id)), default=Access.NONE
        )

    @property
    def everywhere(self) -> Access:
        """Access to every existing and future document."""
        return max((access for pattern, access in self.table if not pattern.strip("*")), default=Access.NONE)

    @property
    def named(self) -> tuple[str, ...]:
        """Documents that are granted by their full id."""
        return tuple(pattern for pattern, _ in self.table if "*" not in pattern)

    def words(self) -> dict[str, str]:
        """Return the grants as a token's `documents` claim."""
        return {pattern: access.word for pattern, access in self.table}


#: grants of every client if the server has no keys
EVERYTHING: Final = Grants((("*", Access.ADMIN),))


def parse(claim: object) -> Grants:
    """Parse a token's `documents` claim. Raises InvalidGrants."""
    if not isinstance(claim, Mapping):
        raise InvalidGrants("`documents` must be a map from document ids or patterns to read, write or admin")
    if len(claim) > GRANTS_MAX:
        raise InvalidGrants(f"`documents` has {len(claim)} entries, at most {GRANTS_MAX} are allowed")
    table = []
    for pattern, word in claim.items():
        if not isinstance(pattern, str) or _PATTERN.fullmatch(pattern) is None:
            raise InvalidGrants(
                f"{str(pattern)[: DOCUMENT_ID_CHARS_MAX + 1]!r} is neither a document id nor a pattern,"
                " such as minutes-*"
            )
        access = _WORDS.get(word) if isinstance(word, str) else None
        if access is None:
            raise InvalidGrants(f"{pattern!r} must be given read, write or admin, not {str(word)[:20]!r}")
        table.append((pattern, access))
    return Grants(tuple(table))


def matches(pattern: str, document_id: str) -> bool:
    """Return True if the id matches the pattern; `*` matches any number of characters."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == document_id
    *middle, last = rest
    if (
        len(document_id) < len(first) + len(last)
        or not document_id.startswith(first)
        or not document_id.endswith(last)
    ):
        return False
    at, end = len(first), len(document_id) - len(last)
    for part in middle:
        found = document_id.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


@dataclass(frozen=True, slots=True)
class Subjects:
    """Subjects that a NATS user may publish and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def subjects_of(user: str, documents: Iterable[tuple[str, Access]]) -> Subjects:
    """Return the subjects for a user with access to these documents only (`*`: all of them)."""
    publish, subscribe = [subjects.TAKEN_ALL], [subjects.user_inboxes(user)]
    for document_id, access in documents:
        if access < Access.READ:
            continue
        publish += [subjects.ping(document_id), subjects.init(document_id), subjects.awareness(document_id)]
        publish += [subjects.call(verb, document_id) for verb, needed in VERBS.items() if needed <= access]
        if access >= Access.WRITE:
            publish.append(subjects.wal(document_id))
        if access >= Access.ADMIN:
            publish.append(subjects.reset(document_id))
        subscribe += [
            subjects.accepted(document_id),
            subjects.status(document_id),
            subjects.awareness(document_id),
        ]
    return Subjects(tuple(publish), tuple(subscribe))
