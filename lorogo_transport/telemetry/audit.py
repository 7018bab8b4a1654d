"""The audit log `lorogo.audit`: operations on documents that users cannot undo, and their subjects."""

from typing import Any

from lorogo_protocol.access.tokens import Token
from lorogo_transport.telemetry.logs import get_logger

log = get_logger("lorogo.audit", always=True)


def record(action: str, *, document: str = "", token: Token | None, outcome: str, **facts: Any) -> None:
    """Write one line: action, subject, and `outcome`: done, denied or failed."""
    log.info(
        action,
        document=document,
        subject="" if token is None else token.subject,
        token_id="" if token is None else token.token_id,
        outcome=outcome,
        **facts,
    )
