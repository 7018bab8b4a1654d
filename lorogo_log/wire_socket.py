"""Messages over a blocking socket, each step with a deadline. For threads: no asyncio here."""

from __future__ import annotations

import os
import select
import socket
from typing import TypeVar

from lorogo_log import wire
from lorogo_log.wire import Data, Header, Kind, Message, PeerError, Refused, Segments, Welcome

Address = tuple[str, int]
_M = TypeVar("_M", Welcome, Segments, Data)
#: One sendfile at most, so that a deadline is looked at now and then.
_SEND_BYTES = 8 << 20


def connect(address: Address, timeout: float) -> socket.socket:
    """A connection whose every step raises TimeoutError after `timeout` seconds."""
    sock = socket.create_connection(address, timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive_exactly(sock: socket.socket, size: int) -> bytearray:
    """So many bytes, or PeerError if the other side ends within them."""
    data = bytearray(size)
    receive_into(sock, memoryview(data))
    return data


def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill the whole view."""
    at = 0
    while at < len(view):
        got = sock.recv_into(view[at:])
        if not got:
            raise PeerError("the other side closed the connection within a message")
        at += got


def receive_header(sock: socket.socket) -> Header | None:
    """The next message's header; None if the other side closed between two messages."""
    first = sock.recv(wire.HEADER_BYTES)
    if not first:
        return None
    rest = receive_exactly(sock, wire.HEADER_BYTES - len(first))
    return wire.unpack_header(first + rest)


def receive_body(sock: socket.socket, header: Header) -> memoryview:
    """The body that belongs to a header, checked."""
    return wire.check_body(header, receive_exactly(sock, header.stored_bytes))


def send(sock: socket.socket, message: Message, number: int = 0) -> None:
    sock.sendall(wire.message(message, number))


def ask(sock: socket.socket, request: Message, answer: type[_M], number: int = 0) -> _M:
    """Send a request and wait for its answer; a refusal is raised."""
    send(sock, request, number)
    found = wire.unpack(*expect(sock, number, answer.kind))
    assert isinstance(found, answer)
    return found


def expect(sock: socket.socket, number: int, kind: Kind) -> tuple[Header, memoryview]:
    """The answer to a request; a refusal is raised. Nothing is read of what is neither."""
    header = receive_header(sock)
    if header is None:
        raise PeerError("the other side closed the connection without an answer")
    if header.kind not in {kind, Kind.REFUSED}:
        raise PeerError(f"a {header.kind.name} where a {kind.name} should be")
    if header.kind is not Kind.REFUSED and header.number != number:
        raise PeerError(f"the answer to request {header.number} where {number} was asked")
    body = receive_body(sock, header)
    if header.kind is Kind.REFUSED:
        raise Refused.unpack(body).error
    return header, body


def send_file(sock: socket.socket, fd: int, position: int, size: int) -> None:
    """Bytes of a file, copied by the kernel (`sendfile`): they never enter this process."""
    end = position + size
    timeout = sock.gettimeout()
    writable = select.poll()
    writable.register(sock, select.POLLOUT)
    while position < end:
        try:
            sent = os.sendfile(sock.fileno(), fd, position, min(_SEND_BYTES, end - position))
        except BlockingIOError:
            if not writable.poll(None if timeout is None else timeout * 1000):
                raise TimeoutError("the other side does not take what it asked for") from None
            continue
        if not sent:
            raise OSError("the file is shorter than it was")
        position += sent
