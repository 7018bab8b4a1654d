"""The gateway's certificate: loaded with care, and again when its files change.

Certificates rotate while we run. A new pair is tried apart first: a wrong one is logged once, and the
old one stays. Connections that are open keep what they began with.
"""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from lorogo_protocol.errors import LorogoError
from lorogo_transport.secret_files import SecretUnusable, read_file, read_secret_file
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_SOON = timedelta(days=14)

_Stamp = tuple[tuple[int, int, int, int], ...]


class TlsUnusable(LorogoError):
    """The certificate or its key cannot be used; the sentence says what to do."""

    code = "tls-unusable"


class Certificate:
    """A certificate with its key, and the context that serves them."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Raises TlsUnusable."""
        self._cert = cert
        self._key = key
        self._stamp = self._look()
        self._told = ""
        self._current, self.expires = self._loaded()
        self.context, _ = self._loaded()
        self.context.sni_callback = self._choose  # asked at every handshake, with a name or without

    def refresh(self) -> bool:
        """Whether there was a new pair, which new connections get from now on. Raises TlsUnusable.

        A pair that cannot be used is tried again at every look, and the same problem is raised once.
        """
        stamp = self._look()
        if stamp == self._stamp:
            return False
        try:
            self._current, self.expires = self._loaded()
        except TlsUnusable as error:
            if str(error) == self._told:
                return False
            self._told = str(error)
            raise
        self._stamp, self._told = stamp, ""
        return True

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """A handshake begins. Contexts are never changed: half a new pair would break those who come then."""
        connection.context = self._current

    def warning(self, now: datetime) -> str:
        """A sentence if it has expired or soon will; else nothing."""
        day = f"{self.expires:%Y-%m-%d %H:%M} UTC"
        if self.expires <= now:
            return f"the TLS certificate in {str(self._cert)!r} expired on {day}: browsers will refuse it"
        if self.expires <= now + _SOON:
            return f"the TLS certificate in {str(self._cert)!r} expires on {day}"
        return ""

    def _loaded(self) -> tuple[ssl.SSLContext, datetime]:
        """What serves them, and when they end; if they are good and belong together."""
        try:
            text, _ = read_file(self._cert, "the TLS certificate")
            read_secret_file(self._key, "the TLS key")
        except SecretUnusable as error:
            raise TlsUnusable(str(error)) from None
        try:
            found = x509.load_pem_x509_certificates(text.encode())
        except (ValueError, x509.InvalidVersion):
            raise TlsUnusable(f"{str(self._cert)!r} has no certificate in PEM") from None
        context = _context()
        try:
            context.load_cert_chain(self._cert, self._key, password=_nothing)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise TlsUnusable(self._why(error)) from None
        return context, found[0].not_valid_after_utc

    def _why(self, error: Exception) -> str:
        cert, key = str(self._cert), str(self._key)
        reason = getattr(error, "reason", None) or ""
        if reason == "KEY_VALUES_MISMATCH":
            return f"the key in {key!r} does not belong to the certificate in {cert!r}"
        if reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ", "PROBLEMS_GETTING_PASSWORD") or _locked(self._key):
            return f"the key in {key!r} has a passphrase: give one without, as `openssl pkey` writes it"
        words = reason.replace("_", " ").lower() or type(error).__name__
        return f"the certificate in {cert!r} and the key in {key!r} cannot be used: {words}"

    def _look(self) -> _Stamp:
        stamps = []
        for path in (self._cert, self._key):
            try:
                facts = path.stat()
            except OSError:
                stamps.append((0, 0, 0, 0))
                continue
            stamps.append((facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino))
        return tuple(stamps)


async def keep_fresh(certificate: Certificate, seconds: float) -> None:
    """Look at the files every so many seconds, for ever; the caller owns the task."""
    warned = ""
    while True:
        try:
            if await asyncio.to_thread(certificate.refresh):
                log.info("a new TLS certificate", expires=certificate.expires.isoformat())
        except TlsUnusable as error:
            log.warning("the new TLS certificate is not used; the old one stays", problem=str(error))
        words = certificate.warning(datetime.now(UTC))
        if words and words != warned:
            log.warning(words)
        warned = words
        await asyncio.sleep(seconds)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _nothing() -> str:
    """Instead of asking on the terminal."""
    return ""


def _locked(key: Path) -> bool:
    try:
        return b"ENCRYPTED" in key.read_bytes()
    except OSError:
        return False
