"""Messages over a blocking socket, with a deadline for each whole message. For threads, without asyncio.

The deadline covers a message from its first byte to its last, so a peer cannot hold a connection with single
bytes. For bytes of files the deadline covers each MiB.
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
#: File bytes per deadline, and the step in which memory for a message grows.
PIECE_BYTES = 1 << 20


def connect(address: Address, timeout: float) -> socket.socket:
    """Return a connection; each message over it has `timeout` seconds."""
    sock = socket.create_connection(address, timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class _Deadline:
    """Limits every step of one message to the rest of its deadline."""

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
            raise TimeoutError("the peer took too long for one message")
        return left

    def into(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            self._sock.settimeout(self.left())
            got = self._sock.recv_into(view[at:])
            if not got:
                raise PeerError("the peer closed the connection within a message")
            at += got

    def exactly(self, size: int) -> bytearray:
        """Receive exactly so many bytes. Memory grows as they arrive: an announced length reserves none."""
        data = bytearray()
        while len(data) < size:
            piece = bytearray(min(PIECE_BYTES, size - len(data)))
            self.into(memoryview(piece))
            data += piece
        return data


def receive_exactly(sock: socket.socket, size: int) -> bytearray:
    """Receive exactly so many bytes of a file; PeerError if the peer closes before."""
    data = bytearray()
    while len(data) < size:
        with _Deadline(sock) as deadline:
            data += deadline.exactly(min(PIECE_BYTES, size - len(data)))
    return data


def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill the view (a chunk of a file) within the deadline."""
    with _Deadline(sock) as deadline:
        deadline.into(view)


def receive(
    sock: socket.socket, kinds: frozenset[WireKind], seconds: float | None = None
) -> tuple[Header, memoryview] | None:
    """Return the next message, of one of these kinds; None if the peer closed before it."""
    first = bytearray(1)
    if not sock.recv_into(first):  # the socket's own timeout covers the wait for a message
        return None
    with _Deadline(sock, seconds) as deadline:
        header = wire.unpack_header(first + deadline.exactly(wire.HEADER_BYTES - 1))
        if header.kind not in kinds:
            raise PeerError(f"unexpected {header.kind.name} message")
        return header, wire.check_body(header, deadline.exactly(header.stored_bytes))


def send(sock: socket.socket, message: Message, number: int = 0) -> None:
    sock.sendall(wire.message(message, number))  # the socket's timeout covers the whole message


def request_message(sock: socket.socket, request: Message, answer: type[_M], number: int = 0) -> _M:
    """Send a request and return its response; raises RefusedError."""
    send(sock, request, number)
    found = wire.unpack(*receive_response(sock, number, answer.kind))
    assert isinstance(found, answer)
    return found


def receive_response(sock: socket.socket, number: int, *kinds: WireKind) -> tuple[Header, memoryview]:
    """Return the response to a request; raises RefusedError. Other messages are errors, unread."""
    came = receive(sock, frozenset({*kinds, WireKind.REFUSED}))
    if came is None:
        raise PeerError("the peer closed the connection without a response")
    header, body = came
    if header.kind is WireKind.REFUSED:
        raise RefusedMessage.unpack(body).error
    if header.number != number:
        raise PeerError(f"a response to request {header.number} instead of {number}")
    return header, body


# -- the greeting -------------------------------------------------------------------------------------


def greet(sock: socket.socket, hello: Hello, secret: bytes | None) -> Welcome:
    """Send HELLO and prove the secret, as the client; return before WELCOME is read."""
    send(sock, hello)
    answer = wire.unpack(*receive_response(sock, 0, WireKind.WELCOME, WireKind.CHALLENGE))
    if isinstance(answer, Challenge):
        send(sock, prove_secret(hello, answer, secret))
        answer = wire.unpack(*receive_response(sock, 0, WireKind.WELCOME))
    elif secret is not None:
        raise PeerError("the peer did not prove that it has the secret")
    assert isinstance(answer, Welcome)
    return answer


def prove_secret(hello: Hello, challenge: Challenge, secret: bytes | None) -> Proof:
    """Return the response to a challenge that proves the peer's secret."""
    if secret is None:
        raise PeerError("the peer requires a secret, and none is set here")
    if not hmac.compare_digest(challenge.proof, wire.proof_of(secret, b"server", hello, challenge.nonce)):
        raise PeerError("the peer has another secret")
    return Proof(wire.proof_of(secret, b"client", hello, challenge.nonce))


def challenge_client(sock: socket.socket, hello: Hello, secret: bytes, number: int, nonce: bytes) -> bool:
    """Return True if the client has the secret; otherwise send it a refusal."""
    send(sock, Challenge(nonce, wire.proof_of(secret, b"server", hello, nonce)), number)
    came = receive(sock, frozenset({WireKind.PROOF}))
    if came is None:
        return False
    good = hmac.compare_digest(bytes(came[1]), wire.proof_of(secret, b"client", hello, nonce))
    if not good:
        send(sock, RefusedMessage(WireRefusal.SECRET, "the secrets differ"), number)
    return good


# -- files --------------------------------------------------------------------------------------------


def send_file(sock: socket.socket, fd: int, position: int, size: int) -> None:
    """Send bytes of a file, copied by the kernel (`sendfile`) without entering this process."""
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
                    raise TimeoutError("the peer does not read the requested bytes") from None
                if left is None:
                    writable.poll()
                continue
            if not sent:
                raise OSError("the file was truncated")
            if left is not None and left <= 0:
                raise TimeoutError("the peer reads the requested bytes too slowly")
            position += sent
