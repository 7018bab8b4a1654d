"""The rights that an operation needs, declared beside it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from lorogo_gateway.auth.principal import AccessDenied, Principal
from lorogo_protocol.access.grants import Access


@dataclass(frozen=True, slots=True)
class NoToken:
    """No token is needed: the response reveals nothing about documents."""


@dataclass(frozen=True, slots=True)
class AnyToken:
    """A valid token is needed, whatever it grants."""


@dataclass(frozen=True, slots=True)
class SomeDocument:
    """`read` on at least one document is needed; the response covers readable documents only."""


@dataclass(frozen=True, slots=True)
class OnDocument:
    """`access` on the document in the path (`id`) is needed."""

    access: Access
    flags: Mapping[str, Access] = field(default_factory=dict)  # needed if this parameter is true
    others: Mapping[str, Access] = field(default_factory=dict)  # needed on the document in this body field


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator's token is needed: admin on every document."""


Need = NoToken | AnyToken | SomeDocument | OnDocument | Operator


def check(need: Need, principal: Principal, values: Mapping[str, Any]) -> None:
    """Check the need against the principal's grants, by the parameters alone. Raises NotAllowed."""
    match need:
        case NoToken() | AnyToken():
            return
        case SomeDocument():
            if not any(access >= Access.READ for _, access in principal.grants.table):
                raise AccessDenied("this needs read on some document; the token grants none")
            for document_id in values.get("document") or ():
                principal.need(document_id, Access.READ)
        case OnDocument():
            wanted = max([need.access, *(access for flag, access in need.flags.items() if values.get(flag))])
            principal.need(values["id"], wanted)
        case Operator():
            if not principal.operator:
                raise AccessDenied('this is for operators, whose token has {"*": "admin"}')
        case _:
            assert_never(need)


def check_body(need: Need, principal: Principal, body: object) -> None:
    """Check the need for the documents that the body names. Raises NotAllowed."""
    if isinstance(need, OnDocument) and isinstance(body, Mapping):
        for name, access in need.others.items():
            if isinstance(other := body.get(name), str):
                principal.need(other, access)


def words(need: Need) -> str:
    """Describe the rights that a token must grant, for people; empty if none."""
    match need:
        case NoToken():
            return ""
        case AnyToken():
            return "a token"
        case SomeDocument():
            return "`read` on some document; the response covers readable documents only"
        case OnDocument():
            more = [f"`{access.word}` with `{flag}`" for flag, access in need.flags.items()]
            more += [f"`{access.word}` on `{name}`" for name, access in need.others.items()]
            return ", ".join([f"`{need.access.word}` on the document", *more])
        case Operator():
            return 'an operator\'s token: `{"*": "admin"}`'
        case _:
            assert_never(need)
