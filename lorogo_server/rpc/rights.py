"""Authorises RPC calls: compares the grants of a call's token with the access that its verb needs.

A server without an authority is open and checks no tokens. With one every call needs a valid token, except
reads of services that reply to a service inbox. A client cannot misuse this: only services may subscribe to
those inboxes, so another caller that names one gets no reply (docs/decisions/0016).
"""

from collections.abc import Awaitable, Mapping
from typing import Final, Protocol, TypeVar

from lorogo_protocol.access.grants import VERBS, Access
from lorogo_protocol.access.tokens import Token, TokenRefused
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.rpc.calls import CallRequest
from lorogo_transport.telemetry import audit

T = TypeVar("T")

RESET: Final = "reset"
SERVICE_VERBS: Final = frozenset({"sync", "version", "status"})
_SERVICES: Final = tuple(
    f"{inbox}." for inbox in (subjects.SERVER_INBOX, subjects.GATEWAY_INBOX, subjects.OPERATOR_INBOX)
)
_NEEDED: Final[Mapping[str, Access]] = {**VERBS, RESET: Access.ADMIN}
_AUDITED: Final = {RESET: "reset", "compact": "compact"}


class RequestVerifier(Protocol):
    """Verifies tokens, as `lorogo_transport.auth.authority.Authority` does."""

    def verify(self, text: str) -> Token: ...


class CallRights:
    """Authorises calls with an authority; allows every call without one."""

    def __init__(self, authority: RequestVerifier | None = None) -> None:
        self._authority = authority

    @property
    def closed(self) -> bool:
        return self._authority is not None

    def admit(self, verb: str, document_id: str, asked: CallRequest) -> Token | None:
        """Return the verified token of a call; None if the call needs no token. Raises Refused.

        Called for each chunk before its body is kept. An unknown verb needs read access, so that an
        authorised caller gets the error `unknown-verb`.
        """
        if self._authority is None:
            return None
        needed = _NEEDED.get(verb, Access.READ)
        if not asked.token:
            if verb in SERVICE_VERBS and asked.reply.startswith(_SERVICES):
                return None
            raise self._denied(
                verb,
                document_id,
                None,
                f"a token that grants {needed.word} on {document_id!r} is missing",
            )
        try:
            token = self._authority.verify(asked.token)
        except TokenRefused as error:
            if error.code == "token-unchecked":
                raise Refused(Reason.BUSY, str(error)) from None
            raise self._denied(verb, document_id, None, str(error)) from None
        self._need(token, needed, verb, document_id, document_id)
        return token

    def allow(
        self, verb: str, document_id: str, arguments: Mapping[str, object], token: Token | None
    ) -> None:
        """Check the arguments that need more access: a fork's target, a purging deletion. Raises Refused."""
        if self._authority is None:
            return
        if verb == "fork" and isinstance(target := arguments.get("to"), str):
            self._need(token, Access.WRITE, verb, document_id, target)
        if verb == "delete" and arguments.get("purge"):
            self._need(token, Access.ADMIN, "erase", document_id, document_id)

    def _need(self, token: Token | None, needed: Access, verb: str, document_id: str, target: str) -> None:
        has = Access.NONE if token is None else token.grants.access(target)
        if has < needed:
            granted = f"grants {has.word} on {target[:128]!r}" if has else f"does not grant {target[:128]!r}"
            raise self._denied(
                verb, document_id, token, f"the token {granted}, and {verb} needs {needed.word} on it"
            )

    def _denied(self, verb: str, document_id: str, token: Token | None, why: str) -> Refused:
        action = "erase" if verb == "erase" else _AUDITED.get(verb, "")
        if action:
            audit.record(action, document=document_id, token=token, outcome="denied", reason=why)
        return Refused(Reason.PERMISSION_DENIED, why)


def audited(verb: str, arguments: Mapping[str, object]) -> str:
    """Return the action of a call in the audit log; empty if the call is not audited."""
    return "erase" if verb == "delete" and arguments.get("purge") else _AUDITED.get(verb, "")


async def recorded(action: str, document_id: str, token: Token | None, work: Awaitable[T]) -> T:
    """Await the work and write its outcome to the audit log; without an action only await it."""
    if not action:
        return await work
    try:
        done = await work
    except Exception as error:
        code = error.code if isinstance(error, LorogoError) else type(error).__name__
        audit.record(action, document=document_id, token=token, outcome="failed", reason=code)
        raise
    audit.record(action, document=document_id, token=token, outcome="done")
    return done
