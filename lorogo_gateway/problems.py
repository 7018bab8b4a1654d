"""Errors as `application/problem+json` (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

from lorogo_protocol.errors import LorogoError


class HttpProblem(LorogoError):
    """An error response: an HTTP status, a reason code for programs and a detail for people."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": str(self),
            "code": self.code,
        }
        return JSONResponse(body, self.status, headers=self.headers, media_type="application/problem+json")
