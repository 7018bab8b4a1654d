"""Request bodies: read within limits of bytes and time, and parsed as strict JSON.

Parsing JSON holds the interpreter's lock for most of the time, also on a thread. So the number of values is
counted before parsing, and limited.
"""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from starlette.requests import Request

from lorogo_gateway.http import schema_check
from lorogo_gateway.http.operations import Schema
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.limits.middleware import rate_limited
from lorogo_gateway.limits.request_quota import request_quota
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.limits import KIB

_THREAD_BYTES = 256 * KIB  # more than this is parsed and checked on a thread
_SMALL_BYTES = 256 * KIB
_READER = ThreadPoolExecutor(1, "large bodies")  # one at a time: parsed values take ten times their text
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_INTEGER_CHARS_MAX = 20  # 64 bits and a sign
_SOON = {"Retry-After": "1"}
_HANG_UP = {"Connection": "close"}  # the rest of the body is not read
_MARKS = (b",", b":", b"[", b"{")  # one of them precedes each parsed value
_VALUE_BYTES = 80  # of memory, at most, per mark: a map of one member has three


class Bodies:
    """Reads bodies within a memory budget that large responses share.

    Each token has a budget of its own. A quarter of the whole is reserved for small bodies.
    """

    def __init__(self, settings: GatewaySettings, limiter: Limiter) -> None:
        self._limiter = limiter
        self._free = settings.bodies_bytes_max
        self._kept = min(self._free // 4, self._free - settings.body_bytes_max)  # reserved for small bodies
        self._large_max = self._free - self._kept
        self._seconds = settings.call_seconds

    @asynccontextmanager
    async def read(self, request: Request, bytes_max: int) -> AsyncIterator[bytes]:
        """Read a whole body, which counts against the budget until the context ends.

        Raises HttpProblem 408, 413, 429, 503; ClientDisconnect.
        """
        declared = request.headers.get("content-length", "")
        if _DIGITS.fullmatch(declared) and (len(declared) > 18 or int(declared) > bytes_max):
            raise _too_large(bytes_max)
        parts: list[bytes] = []
        key = self._key(request)
        try:
            await self._collect(request, parts, bytes_max, key)
            yield b"".join(parts)
        finally:
            self._give(key, sum(map(len, parts)))

    async def _collect(self, request: Request, parts: list[bytes], bytes_max: int, key: str) -> None:
        size = 0
        deadline = asyncio.timeout(self._seconds)
        try:
            async with deadline:
                async for part in request.stream():
                    size += len(part)
                    if size > bytes_max:  # Content-Length may be wrong or absent
                        raise _too_large(bytes_max)
                    self._take(key, len(part), whole=size)
                    parts.append(part)
        except TimeoutError:
            if not deadline.expired():
                raise
            late = f"the body did not arrive in {self._seconds:g} s"
            raise HttpProblem(408, "body-timeout", late, headers=_HANG_UP) from None

    @contextmanager
    def held(self, request: Request, size: int) -> Iterator[None]:
        """Count `size` bytes of a response or value until the context ends. Raises HttpProblem 429, 503."""
        key = self._key(request)
        self._take(key, size, whole=size)
        try:
            yield
        finally:
            self._give(key, size)

    def _key(self, request: Request) -> str:
        return request_quota(request.scope, self._limiter).key

    def _take(self, key: str, size: int, *, whole: int) -> None:
        """Take `size` bytes of the budget for a body that has `whole` bytes so far."""
        large = _SMALL_BYTES < whole <= self._large_max  # a larger response may use the reserve, too
        if size > self._free - (self._kept if large else 0):
            raise HttpProblem(503, "busy", "too many large bodies at once; try again", headers=_SOON)
        if (no := self._limiter.hold(key, size)) is not None:
            raise rate_limited(no)
        self._free -= size

    def _give(self, key: str, size: int) -> None:
        self._limiter.release(key, size)
        self._free += size


def _too_large(bytes_max: int) -> HttpProblem:
    detail = f"the body has more than {bytes_max} bytes, the limit of this kind of request"
    return HttpProblem(413, "too-large", detail, headers=_HANG_UP)


async def weigh_json(data: bytes, values_max: int) -> int:
    """Return an upper bound of the memory that the parsed values take. Raises HttpProblem 413."""
    if len(data) > _THREAD_BYTES:
        return await asyncio.get_running_loop().run_in_executor(_READER, _weight, data, values_max)
    return _weight(data, values_max)


def _weight(data: bytes, values_max: int) -> int:
    count = _marks(data)
    if count > values_max:  # some may be inside of strings, where they separate nothing
        count = _marks(_without_texts(data, values_max))
    if count > values_max:
        detail = f"the body has more than {values_max} JSON values; send them in several requests"
        raise HttpProblem(413, "too-large", detail)
    return count * _VALUE_BYTES


def _marks(data: bytes) -> int:
    return sum(map(data.count, _MARKS))


def _without_texts(data: bytes, values_max: int) -> bytes:
    """Return the JSON without its strings, up to the first error; all of it if there are too many strings."""
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    return data if plain.count(b'"') > 2 * values_max + 2 else b"".join(plain.split(b'"')[::2])


async def parse_json(data: bytes, schema: Schema) -> Any:
    """Parse JSON and check it against the schema. Raises HttpProblem 400; 422: numbers above 64 bits."""
    if len(data) > _THREAD_BYTES:
        return await asyncio.get_running_loop().run_in_executor(_READER, _checked, data, schema)
    return _checked(data, schema)


def _checked(data: bytes, schema: Schema) -> Any:
    value = _parse(data)
    if problem := schema_check.wrong(schema, value, "the body"):
        raise HttpProblem(400, "invalid-body", problem)
    return value


def _parse(data: bytes) -> Any:
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_integer,
            object_pairs_hook=_map,
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise _malformed("it is not UTF-8") from None
    except UnicodeEncodeError:
        raise _malformed("it has an unpaired surrogate") from None
    except RecursionError:
        raise _malformed("it is nested too deep") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError as error:
        raise _malformed(str(error)) from None
    return value


def _malformed(why: str) -> HttpProblem:
    return HttpProblem(400, "malformed-json", f"the body is not valid JSON: {why}")


def _unfit(text: str) -> HttpProblem:
    """Return the error for a number that is valid JSON but too large for a document."""
    return HttpProblem(422, "number-too-large", f"{text[:40]} does not fit in 64 bits")


def _constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _integer(text: str) -> int:
    if len(text) > _INTEGER_CHARS_MAX or not -(2**63) <= int(text) < 2**63:
        raise _unfit(text)
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _unfit(text)
    return number


def _map(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise ValueError(f"the name {names.most_common(1)[0][0][:60]!r} is repeated")
    return made
