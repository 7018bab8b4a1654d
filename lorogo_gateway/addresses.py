"""The client address of a request: the socket's peer, or the address that a trusted proxy forwards. Pure.

A forwarding header counts only if the peer is a `--trusted-proxy`. The client is the rightmost address in
the header that is not a trusted proxy, because the client can forge everything to the left of it.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOPS_MAX = 32  # more than any chain of proxies has
_HEADER_BYTES_MAX = 8 * 1024  # read from the end, where the nearest hops are
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.%]+)\](?::[0-9]+)?")


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The client address of a request and how it reached the gateway."""

    address: str  # in text form
    https: bool | None = None  # None: unknown
    forwarded: bool = False  # by a trusted proxy, which owns the TCP connection
    local: bool = False  # a loopback peer without a proxy


def check_network(text: str) -> str:
    """Return the network or address in canonical form, as in 10.0.0.0/8. Raises ValueError."""
    try:
        return str(ipaddress.ip_network(text.strip(), strict=False))
    except ValueError:
        raise ValueError(f"{text[:60]!r} is not a network; write 10.0.0.0/8 or 192.0.2.7") from None


def key_of(address: str) -> str:
    """Return the key of the per-address limits: an IPv4 address, or the /64 of an IPv6 address.

    One subscriber line usually has a whole /64.
    """
    found = _parse(address)
    if found is None:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        return f"{ipaddress.IPv6Address(int(found) >> 64 << 64)}/64"
    return str(found)


class TrustedProxies:
    """The proxies whose forwarding headers count."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks: tuple[Network, ...] = tuple(ipaddress.ip_network(one) for one in networks)

    def trusts(self, address: str) -> bool:
        """Return whether the address is a trusted proxy."""
        found = _parse(address)
        return found is not None and any(found in network for network in self._networks)

    def origin(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> RequestOrigin:
        """Return the origin of a request with these ASGI headers (names in lower case)."""
        if not self._networks or not self.trusts(peer):
            return RequestOrigin(peer, local=_is_local(peer))
        plain = _hops(headers, b"x-forwarded-for")
        standard, protocol = _forwarded(headers)
        scheme = (_last(headers, b"x-forwarded-proto") or protocol).lower()
        https = {"https": True, "wss": True, "http": False, "ws": False}.get(scheme)
        if not plain and not standard:
            return RequestOrigin(peer, https=https, local=_is_local(peer))
        found = {self._client(peer, hops) for hops in (plain, standard) if hops}
        # A proxy sets one of the two headers. If they disagree, the client forged the other one: use neither.
        return RequestOrigin(found.pop() if len(found) == 1 else peer, https=https, forwarded=True)

    def _client(self, peer: str, hops: Sequence[str]) -> str:
        nearest = peer
        for hop in reversed(hops):
            address = _parse(hop)
            if address is None:
                return nearest  # "unknown" or malformed: hops further left are unverified
            nearest = str(address)
            if not any(address in network for network in self._networks):
                break
        return nearest


def _parse(text: str) -> Address | None:
    """Parse an address; IPv4-mapped IPv6 becomes IPv4. Returns None if it is malformed."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped if mapped is not None else found


def _is_local(peer: str) -> bool:
    found = _parse(peer)
    return found is not None and found.is_loopback


def _last(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str:
    values = _hops(headers, name)
    return values[-1] if values else ""


def _hops(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Return the last values of all headers of that name, in order, without ports."""
    return [_bare(one.strip()) for one in _parts(headers, name)]


def _forwarded(headers: Sequence[tuple[bytes, bytes]]) -> tuple[list[str], str]:
    """Return the `for` of each of the last hops and the `proto` of the last one (RFC 7239)."""
    hops: list[str] = []
    protocol = ""
    for hop in _parts(headers, b"forwarded"):
        pairs = dict(map(_pair, hop.split(";")))
        hops.append(_bare(pairs.get("for", "")))
        protocol = pairs.get("proto", "")
    return hops, protocol


def _parts(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Return the last comma-separated values of all headers of that name.

    Proxies append to what the client sent, so only the end is parsed. A value cut by the size limit counts
    as empty: half an address could be a different valid address.
    """
    whole = b",".join(value for header, value in headers if header == name)
    parts = whole[-_HEADER_BYTES_MAX:].decode("latin-1").rsplit(",", _HOPS_MAX)
    if len(whole) > _HEADER_BYTES_MAX:
        parts[0] = ""
    return parts[-_HOPS_MAX:] if whole.strip() else []


def _pair(text: str) -> tuple[str, str]:
    """Parse `name=value` or `name="value"`; a value with other quotes is empty."""
    name, _, value = (one.strip() for one in text.partition("="))
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name.lower(), "" if '"' in value else value


def _bare(text: str) -> str:
    """Return the address without its port."""
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed is not None:
        return bracketed[1]
    return text.partition(":")[0] if text.count(":") == 1 else text
