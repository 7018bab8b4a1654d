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
_HEADER_BYTES_MAX = 8 * 1024  # of its end: nearer hops stand there, and what a proxy's line holds
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.%]+)\](?::[0-9]+)?")


@dataclass(frozen=True, slots=True)
class RequestOrigin:
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


class TrustedProxies:
    """The proxies that may say who comes."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks: tuple[Network, ...] = tuple(ipaddress.ip_network(one) for one in networks)

    def trusts(self, address: str) -> bool:
        """Whether what it says is believed."""
        found = _parse(address)
        return found is not None and any(found in network for network in self._networks)

    def came(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> RequestOrigin:
        """Who it is, with headers as ASGI has them (names in small letters)."""
        if not self._networks or not self.trusts(peer):
            return RequestOrigin(peer, local=_is_local(peer))
        plain = _hops(headers, b"x-forwarded-for")
        standard, protocol = _forwarded(headers)
        said = (_last(headers, b"x-forwarded-proto") or protocol).lower()
        https = {"https": True, "wss": True, "http": False, "ws": False}.get(said)
        if not plain and not standard:
            return RequestOrigin(peer, https=https, local=_is_local(peer))
        found = {self._client(peer, hops) for hops in (plain, standard) if hops}
        # A proxy sets one of the two headers; where the other disagrees, somebody made it up.
        return RequestOrigin(found.pop() if len(found) == 1 else peer, https=https, forwarded=True)

    def _client(self, peer: str, hops: Sequence[str]) -> str:
        nearest = peer
        for hop in reversed(hops):
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
    """The last values of all headers of that name, in order, without ports."""
    return [_bare(one.strip()) for one in _parts(headers, name)]


def _forwarded(headers: Sequence[tuple[bytes, bytes]]) -> tuple[list[str], str]:
    """RFC 7239: the `for` of each of the last hops, and the `proto` of the last one."""
    hops: list[str] = []
    protocol = ""
    for hop in _parts(headers, b"forwarded"):
        pairs = dict(map(_pair, hop.split(";")))
        hops.append(_bare(pairs.get("for", "")))
        protocol = pairs.get("proto", "")
    return hops, protocol


def _parts(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """What stands between commas in all headers of that name, the last few; without anything: none.

    Clients write what they like in front of what proxies add, so only the end is looked at. A value that
    is cut counts as empty: half an address might be another's.
    """
    whole = b",".join(value for header, value in headers if header == name)
    parts = whole[-_HEADER_BYTES_MAX:].decode("latin-1").rsplit(",", _HOPS_MAX)
    if len(whole) > _HEADER_BYTES_MAX:
        parts[0] = ""
    return parts[-_HOPS_MAX:] if whole.strip() else []


def _pair(text: str) -> tuple[str, str]:
    """`name=value` or `name="value"`, read once from left to right; what has other quotes is empty."""
    name, _, value = (one.strip() for one in text.partition("="))
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name.lower(), "" if '"' in value else value


def _bare(text: str) -> str:
    """An address without its port."""
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed is not None:
        return bracketed[1]
    return text.partition(":")[0] if text.count(":") == 1 else text
