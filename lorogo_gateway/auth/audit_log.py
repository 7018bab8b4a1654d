"""The audit log: operators' actions through this gateway, with subject and address."""

from collections import OrderedDict
from typing import Final

from lorogo_gateway.auth.principal import OPEN, Principal
from lorogo_protocol.errors import LorogoError
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.telemetry import audit

DASHBOARD: Final = "dashboard"  # requested every few seconds: one line an hour is enough
_AGAIN_SECONDS: Final = 3600.0
_KEPT_MAX: Final = 4_096  # keys remembered; the least recently logged are dropped


class AuditLog:
    """Writes audit lines.

    Dashboard reads and denied requests without a token are logged once an hour per address and outcome.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._last: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def record(
        self,
        action: str,
        principal: Principal | None,
        address: str,
        outcome: str,
        *,
        document: str = "",
        problem: LorogoError | None = None,
    ) -> None:
        """Write a line for the action; `outcome` is done, denied or failed."""
        if action == DASHBOARD and principal is OPEN:
            return  # without keys the dashboard is public
        token = None if principal is None else principal.token
        anonymous = token is None and outcome == "denied"
        if action == DASHBOARD or anonymous:
            user = "" if token is None else token.user
            if not self._is_due(action, user, address, outcome):
                return
        why = {} if problem is None else {"reason": problem.code}
        audit.record(action, document=document, token=token, outcome=outcome, address=address, **why)

    def _is_due(self, *key: str) -> bool:
        now = self._clock.now()
        last = self._last.get(key)
        if last is not None and now - last < _AGAIN_SECONDS:
            return False
        self._last.pop(key, None)
        self._last[key] = now
        if len(self._last) > _KEPT_MAX:
            self._last.popitem(last=False)
        return True
