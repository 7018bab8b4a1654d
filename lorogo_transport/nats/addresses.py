"""NATS addresses: read, shown without their passwords, and why one could not be reached."""

import socket
import ssl
from urllib.parse import urlsplit

from lorogo_transport.errors import Unreachable


def parse_servers(url: str) -> tuple[str, ...]:
    """Each address of a comma-separated list, with a scheme. Raises Unreachable for what is no address."""
    servers = []
    for part in url.split(","):
        address = part.strip()
        if "://" not in address:
            address = f"nats://{address}"
        try:
            parsed = urlsplit(address)
            good = parsed.scheme in ("nats", "tls") and bool(parsed.hostname) and parsed.port != 0
        except ValueError:
            good = False
        if not good or any(character.isspace() for character in address):
            raise Unreachable(f"{part.strip()!r} is not a NATS address; it looks like nats://host:4222")
        servers.append(address)
    return tuple(servers)


def place(server: str) -> str:
    """The address for people and logs: without its password."""
    parsed = urlsplit(server)
    return f"{parsed.scheme}://{parsed.hostname}:{parsed.port or 4222}"


def why(server: str, error: Exception, timeout: float) -> str:
    """One sentence about a connection that could not be made."""
    where = place(server)
    words = str(error).lower()
    if "secure connection not available" in words:
        return f"{where} offers no TLS, and the address asks for it (tls://): nothing was sent"
    match error:
        case socket.gaierror():
            return f"the host of {where} is not known"
        case OSError() if "connect call failed" in words or isinstance(error, ConnectionRefusedError):
            return f"nothing answers at {where} (connection refused); is nats-server running there?"
        case ssl.SSLError():
            return f"no TLS with {where}: {error}"
        case TimeoutError():
            return f"no answer from {where} within {timeout:g} s"
        case _ if "authentication timeout" in words:
            return f"{where} did not check our credentials in time; is `lorogo auth` running?"
        case _ if "authorization" in words or "authentication" in words:
            return f"{where} refuses our credentials"
        case _ if "expecting info" in words or "json parse" in words or isinstance(error, ValueError):
            return f"what listens at {where} does not speak NATS"
        case _:
            return f"no connection to {where}: {error}"


def refuses_us(error: Exception) -> bool:
    """Whether NATS said that it does not take our credentials."""
    words = str(error).lower()
    return "authorization violation" in words or (
        "authentication" in words and ("expired" in words or "revoked" in words)
    )
