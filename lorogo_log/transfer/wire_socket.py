"""Messages over a blocking socket, each whole message with a deadline. For threads: no asyncio here.

A peer that sends one byte now and then gains nothing: the time counts from the first byte of a message to its
last. Bytes of files have no such end; there each MiB must come (or go) within the time.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import time as clock
from typing import Self, TypeVar

from lorogo_log.transfer import wire
from lorogo_log.transfer.wire import (
    Challenge,
    Data,
    Header,
    Hello,
    Message,
    PeerError,
    Proof,
    RefusedMessage,
    SegmentList,
    Welcome,
    WireKind,
    WireRefusal,
)

Address = tuple[str, int]
_M = TypeVar("_M", Welcome, SegmentList, Data)
#: Of a file, so much must move within a deadline; and what is read of a message is made room for so.
PIECE_BYTES = 1 << 20


def connect(address: Address, timeout: float) -> socket.socket:
    """A connection; each message over it has `timeout` seconds."""
    sock = socket.create_connection(address, timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class _Deadline:
    """Lets every step of one message take only what is left of the whole time."""

    def __init__(self, sock: socket.socket, seconds: float | None = None) -> None:
        self._sock = sock
        self._before = sock.gettimeout()
        given = self._before if seconds is None else seconds
        self._end = None if given is None else clock.monotonic() + given

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sock.fileno() >= 0:  # (closed by another thread)
            self._sock.settimeout(self._before)

    def left(self) -> float | None:
        if self._end is None:
            return None
        left = self._end - clock.monotonic()
        if left <= 0:
            raise TimeoutError("the other side took too long over one message")
        return left

    def into(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            self._sock.settimeout(self.left())
            got = self._sock.recv_into(view[at:])
            if not got:
                raise PeerError("the other side closed the connection within a message")
            at += got

    def exactly(self, size: int) -> bytearray:
        """Room is made as the bytes come: a length alone costs the other side nothing."""
        data = bytearray()
        while len(data) < size:
            piece = bytearray(min(PIECE_BYTES, size - len(data)))
            self.into(memoryview(piece))
            data += piece
        return data


def receive_exactly(sock: socket.socket, size: int) -> bytearray:
    """So many bytes of a file, or PeerError if the other side ends within them."""
    data = bytearray()
    while len(data) < size:
        with _Deadline(sock) as deadline:
            data += deadline.exactly(min(PIECE_BYTES, size - len(data)))
    return data


def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill the whole view (a piece of a file) within the time."""
    with _Deadline(sock) as deadline:
        deadline.into(view)


def receive(
    sock: socket.socket, kinds: frozenset[WireKind], seconds: float | None = None
) -> tuple[Header, memoryview] | None:
    """The next message, which must be one of these kinds; None if the other side closed before it."""
    first = bytearray(1)
    if not sock.recv_into(first):  # waiting for a message to begin has the socket's own time
        return None
    with _Deadline(sock, seconds) as deadline:
        header = wire.unpack_header(first + deadline.exactly(wire.HEADER_BYTES - 1))
        if header.kind not in kinds:
            raise PeerError(f"a {header.kind.name} message does not belong here")
        return header, wire.check_body(header, deadline.exactly(header.stored_bytes))


def send(sock: socket.socket, message: Message, number: int = 0) -> None:
    sock.sendall(wire.message(message, number))  # the socket's time is for all of it


def ask(sock: socket.socket, request: Message, answer: type[_M], number: int = 0) -> _M:
    """Send a request and wait for its answer; a refusal is raised."""
    send(sock, request, number)
    found = wire.unpack(*expect(sock, number, answer.kind))
    assert isinstance(found, answer)
    return found


def expect(sock: socket.socket, number: int, *kinds: WireKind) -> tuple[Header, memoryview]:
    """The answer to a request; a refusal is raised. Nothing is read of what is neither."""
    came = receive(sock, frozenset({*kinds, WireKind.REFUSED}))
    if came is None:
        raise PeerError("the other side closed the connection without an answer")
    header, body = came
    if header.kind is WireKind.REFUSED:
        raise RefusedMessage.unpack(body).error
    if header.number != number:
        raise PeerError(f"the answer to request {header.number} where {number} was asked")
    return header, body


# -- the greeting -------------------------------------------------------------------------------------


def greet(sock: socket.socket, hello: Hello, secret: bytes | None) -> Welcome:
    """HELLO and all that comes before WELCOME, by the one who connected."""
    send(sock, hello)
    answer = wire.unpack(*expect(sock, 0, WireKind.WELCOME, WireKind.CHALLENGE))
    if isinstance(answer, Challenge):
        send(sock, proven(hello, answer, secret))
        answer = wire.unpack(*expect(sock, 0, WireKind.WELCOME))
    elif secret is not None:
        raise PeerError("the other side did not prove that it knows the secret")
    assert isinstance(answer, Welcome)
    return answer


def proven(hello: Hello, challenge: Challenge, secret: bytes | None) -> Proof:
    """The answer to a challenge, if it proves that the other side knows the secret too."""
    if secret is None:
        raise PeerError("the other side asks for a secret, and this one has none")
    if not hmac.compare_digest(challenge.proof, wire.proof_of(secret, b"server", hello, challenge.nonce)):
        raise PeerError("the other side has another secret")
    return Proof(wire.proof_of(secret, b"client", hello, challenge.nonce))


def challenged(sock: socket.socket, hello: Hello, secret: bytes, number: int, nonce: bytes) -> bool:
    """Whether the one who connected knows the secret; if not, it is told so."""
    send(sock, Challenge(nonce, wire.proof_of(secret, b"server", hello, nonce)), number)
    came = receive(sock, frozenset({WireKind.PROOF}))
    if came is None:
        return False
    good = hmac.compare_digest(bytes(came[1]), wire.proof_of(secret, b"client", hello, nonce))
    if not good:
        send(sock, RefusedMessage(WireRefusal.SECRET, "the secret is another one"), number)
    return good


# -- files --------------------------------------------------------------------------------------------


def send_file(sock: socket.socket, fd: int, position: int, size: int) -> None:
    """Bytes of a file, copied by the kernel (`sendfile`): they never enter this process."""
    end = position + size
    timeout = sock.gettimeout()
    writable = select.poll()
    writable.register(sock, select.POLLOUT)
    while position < end:
        piece_end = min(end, position + PIECE_BYTES)
        late = None if timeout is None else clock.monotonic() + timeout
        while position < piece_end:
            left = None if late is None else late - clock.monotonic()
            try:
                sent = os.sendfile(sock.fileno(), fd, position, piece_end - position)
            except BlockingIOError:
                if left is not None and (left <= 0 or not writable.poll(left * 1000)):
                    raise TimeoutError("the other side does not take what it asked for") from None
                if left is None:
                    writable.poll()
                continue
            if not sent:
                raise OSError("the file is shorter than it was")
            if left is not None and left <= 0:
                raise TimeoutError("the other side takes what it asked for too slowly")
            position += sent
