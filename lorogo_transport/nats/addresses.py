"""NATS addresses: parsing, display without passwords, and error messages for failed connections."""

import socket
import ssl
from urllib.parse import urlsplit

from lorogo_transport.errors import Unreachable


def parse_servers(url: str) -> tuple[str, ...]:
    """Split a comma-separated list into addresses with a scheme.

    Raises Unreachable for an invalid address.
    """
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


def display_address(server: str) -> str:
    """Return the address without its password, for display and logs."""
    parsed = urlsplit(server)
    return f"{parsed.scheme}://{parsed.hostname}:{parsed.port or 4222}"


def connect_problem(server: str, error: Exception, timeout: float) -> str:
    """Describe a failed connection in one sentence."""
    where = display_address(server)
    words = str(error).lower()
    if "secure connection not available" in words:
        return f"{where} offers no TLS, but the address requires it (tls://): nothing was sent"
    match error:
        case socket.gaierror():
            return f"unknown host in {where}"
        case OSError() if "connect call failed" in words or isinstance(error, ConnectionRefusedError):
            return f"nothing answers at {where} (connection refused); is nats-server running there?"
        case ssl.SSLError():
            return f"no TLS with {where}: {error}"
        case TimeoutError():
            return f"no answer from {where} within {timeout:g} s"
        case _ if "authentication timeout" in words:
            return f"{where} did not check the credentials in time; is `lorogo auth` running?"
        case _ if "authorization" in words or "authentication" in words:
            return f"{where} refuses the credentials"
        case _ if "expecting info" in words or "json parse" in words or isinstance(error, ValueError):
            return f"the program at {where} does not speak NATS"
        case _:
            return f"no connection to {where}: {error}"


def refuses_credentials(error: Exception) -> bool:
    """True if NATS refused the credentials."""
    words = str(error).lower()
    return "authorization violation" in words or (
        "authentication" in words and ("expired" in words or "revoked" in words)
    )
