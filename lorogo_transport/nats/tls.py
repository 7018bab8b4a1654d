"""TLS to NATS with files named in the address: `tls://host:4222?ca=FILE&cert=FILE&key=FILE`.

File names are not secrets, so they are passed on with the address: to workers, to the keepalive process,
to tasks of Spark. `split` removes them before connecting.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from lorogo_transport.errors import Unreachable
from lorogo_transport.secret_files import SecretUnusable, read_file, read_secret_file

_NAMES = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The authority that signs the server's certificate, and the client's certificate and key."""

    ca: str | None = None  # replaces the authorities of this machine
    cert: str | None = None
    key: str | None = None

    def __bool__(self) -> bool:
        return any((self.ca, self.cert, self.key))


def name_files(url: str, files: TlsFiles) -> str:
    """Add these files to the addresses; files that an address names itself stay."""
    if not files:
        return url
    made = []
    for address in url.split(","):
        parts = urlsplit(address.strip() if "://" in address else f"nats://{address.strip()}")
        given = {name: getattr(files, name) for name in _NAMES if getattr(files, name)}
        own = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        made.append(urlunsplit(parts._replace(query=urlencode({**given, **own}))))
    return ",".join(made)


def split(url: str) -> tuple[str, TlsFiles]:
    """Split into addresses without files, and the files, equal for all addresses. Raises Unreachable."""
    if "?" not in url:
        return url, TlsFiles()
    plain: list[str] = []
    found: set[TlsFiles] = set()
    for address in url.split(","):
        parts = urlsplit(address.strip())
        try:
            asked = parse_qs(parts.query, strict_parsing=bool(parts.query))
        except ValueError:
            asked = {"": []}
        if any(name not in _NAMES or len(values) != 1 for name, values in asked.items()):
            raise Unreachable("after the ? a NATS address has ca=FILE, cert=FILE, key=FILE, once each")
        plain.append(urlunsplit(parts._replace(query="")))
        found.add(TlsFiles(**{name: values[0] for name, values in asked.items()}))
    if len(found) != 1:
        raise Unreachable("all NATS addresses must name the same TLS files")
    return ",".join(plain), found.pop()


def context_of(files: TlsFiles) -> ssl.SSLContext | None:
    """Create the SSL context; None without files. Raises Unreachable."""
    if not files:
        return None
    if (files.cert is None) != (files.key is None):
        raise Unreachable("a certificate for NATS needs its key: --nats-cert FILE --nats-key FILE")
    try:
        if files.ca is None:
            context = ssl.create_default_context()
        else:
            text, _ = read_file(files.ca, "the authority of NATS (--nats-ca)")
            context = ssl.create_default_context(cadata=text)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if files.cert is not None and files.key is not None:
            read_file(files.cert, "the certificate for NATS (--nats-cert)")
            read_secret_file(files.key, "the key for NATS (--nats-key)")
            context.load_cert_chain(Path(files.cert), Path(files.key), password=_nothing)
    except SecretUnusable as error:
        raise Unreachable(str(error)) from None
    except (ssl.SSLError, OSError, ValueError) as error:
        raise Unreachable(_why(files, error)) from None
    return context


def _why(files: TlsFiles, error: Exception) -> str:
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"the key in {files.key!r} does not belong to the certificate in {files.cert!r}"
    if files.cert is None:
        return f"{files.ca!r} has no certificate in PEM format"
    words = reason.replace("_", " ").lower() or "they are not in PEM format, or the key has a passphrase"
    return f"the certificate in {files.cert!r} and the key in {files.key!r} cannot be used: {words}"


def _nothing() -> str:
    """Return no passphrase, instead of a prompt on the terminal."""
    return ""
