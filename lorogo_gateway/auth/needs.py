"""What an operation needs of whoever asks, declared beside it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from lorogo_gateway.auth.principal import AccessDenied, Principal
from lorogo_protocol.grants import Access


@dataclass(frozen=True, slots=True)
class NoToken:
    """Everybody may, with a token or without: it tells nothing of documents."""


@dataclass(frozen=True, slots=True)
class AnyToken:
    """Whoever has a token, whatever it allows."""


@dataclass(frozen=True, slots=True)
class SomeDocument:
    """Who may read any document at all; the answer has only what they may read."""


@dataclass(frozen=True, slots=True)
class OnDocument:
    """So much on the document in the path (`id`)."""

    access: Access
    flags: Mapping[str, Access] = field(default_factory=dict)  # so much, if this parameter is true
    others: Mapping[str, Access] = field(default_factory=dict)  # so much on the document in the body


@dataclass(frozen=True, slots=True)
class Operator:
    """Who may do everything."""


Need = NoToken | AnyToken | SomeDocument | OnDocument | Operator


def check(need: Need, principal: Principal, values: Mapping[str, Any]) -> None:
    """Raise NotAllowed unless the principal may do this, by the parameters alone."""
    match need:
        case NoToken() | AnyToken():
            return
        case SomeDocument():
            if not any(access >= Access.READ for _, access in principal.grants.table):
                raise AccessDenied("this needs read on some document; the token allows none")
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
    """Raise NotAllowed unless the principal may do this to the documents that the body names."""
    if isinstance(need, OnDocument) and isinstance(body, Mapping):
        for name, access in need.others.items():
            if isinstance(other := body.get(name), str):
                principal.need(other, access)


def words(need: Need) -> str:
    """For people: what a token must allow; empty: nothing."""
    match need:
        case NoToken():
            return ""
        case AnyToken():
            return "a token"
        case SomeDocument():
            return "`read` on some document; only what the token may read is told"
        case OnDocument():
            more = [f"`{access.word}` with `{flag}`" for flag, access in need.flags.items()]
            more += [f"`{access.word}` on `{name}`" for name, access in need.others.items()]
            return ", ".join([f"`{need.access.word}` on the document", *more])
        case Operator():
            return 'an operator\'s token: `{"*": "admin"}`'
        case _:
            assert_never(need)
