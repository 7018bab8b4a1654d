"""Who a request comes from: the peer of the socket, or what a proxy that we were told of says. Pure.

A header is believed only if the peer is one of `--trusted-proxy`; of the addresses in it the rightmost that
is no such proxy counts, since everything left of it may be the client's own invention.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOPS_MAX = 32  # more than any chain of proxies has
_PAIR = re.compile(r'\s*([a-z]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*', re.IGNORECASE)
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.%]+)\](?::[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Came:
    """From where."""

    address: str  # as people write it
    https: bool | None = None  # None: nobody said
    forwarded: bool = False  # by a proxy that we trust; its connection is not the client's
    local: bool = False  # from this machine itself


def check_network(text: str) -> str:
    """A network as 10.0.0.0/8, or one address. Raises ValueError."""
    try:
        return str(ipaddress.ip_network(text.strip(), strict=False))
    except ValueError:
        raise ValueError(f"{text[:60]!r} is no network, as 10.0.0.0/8 or 192.0.2.7 are") from None


def key_of(address: str) -> str:
    """What limits are counted by: an IPv4 address, the /64 of an IPv6 address (one line has all of it)."""
    found = _parse(address)
    if found is None:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        return f"{ipaddress.IPv6Address(int(found) >> 64 << 64)}/64"
    return str(found)


class Proxies:
    """The proxies that may say who comes."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks: tuple[Network, ...] = tuple(ipaddress.ip_network(one) for one in networks)

    def trusts(self, address: str) -> bool:
        """Whether what it says is believed."""
        found = _parse(address)
        return found is not None and any(found in network for network in self._networks)

    def came(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> Came:
        """Who it is, with headers as ASGI has them (names in small letters)."""
        if not self._networks or not self.trusts(peer):
            return Came(peer, local=_is_local(peer))
        plain = _hops(headers, b"x-forwarded-for")
        standard, protocol = _forwarded(headers)
        said = (_last(headers, b"x-forwarded-proto") or protocol).lower()
        https = {"https": True, "wss": True, "http": False, "ws": False}.get(said)
        if not plain and not standard:
            return Came(peer, https=https, local=_is_local(peer))
        found = {self._client(peer, hops) for hops in (plain, standard) if hops}
        # A proxy sets one of the two headers; where the other disagrees, somebody made it up.
        return Came(found.pop() if len(found) == 1 else peer, https=https, forwarded=True)

    def _client(self, peer: str, hops: Sequence[str]) -> str:
        nearest = peer
        for hop in reversed(hops[-_HOPS_MAX:]):
            address = _parse(hop)
            if address is None:
                return nearest  # "unknown", or garbage: nobody vouches for more
            nearest = str(address)
            if not any(address in network for network in self._networks):
                break
        return nearest


def _parse(text: str) -> Address | None:
    """An address; what is IPv4 in the clothes of IPv6 comes out as IPv4."""
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
    """The values of all headers of that name, in order, without ports."""
    text = ",".join(value.decode("latin-1") for header, value in headers if header == name)
    return [_bare(one.strip()) for one in text.split(",")] if text.strip() else []


def _forwarded(headers: Sequence[tuple[bytes, bytes]]) -> tuple[list[str], str]:
    """RFC 7239: the `for` of each hop, and the `proto` of the last one."""
    hops: list[str] = []
    protocol = ""
    text = ",".join(value.decode("latin-1") for header, value in headers if header == b"forwarded")
    for hop in text.split(",") if text.strip() else []:
        pairs = {}
        for part in hop.split(";"):
            found = _PAIR.fullmatch(part)
            if found is not None:
                pairs[found[1].lower()] = found[2].strip('"')
        hops.append(_bare(pairs.get("for", "")))
        protocol = pairs.get("proto", "")
    return hops, protocol


def _bare(text: str) -> str:
    """An address without its port."""
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed is not None:
        return bracketed[1]
    return text.partition(":")[0] if text.count(":") == 1 else text
