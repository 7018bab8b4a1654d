"""What was done to documents that cannot be undone by users, and who did it: the logger `lorogo.audit`."""

from typing import Any

from lorogo_protocol.tokens import Token
from lorogo_transport.telemetry.logs import get_logger

log = get_logger("lorogo.audit", always=True)


def record(action: str, *, document: str = "", token: Token | None, outcome: str, **facts: Any) -> None:
    """One line: the action, whose token, and `outcome`: done, denied or failed."""
    log.info(
        action,
        document=document,
        subject="" if token is None else token.subject,
        token_id="" if token is None else token.token_id,
        outcome=outcome,
        **facts,
    )
