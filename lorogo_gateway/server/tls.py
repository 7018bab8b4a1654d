"""The gateway's TLS certificate, reloaded when its files change.

A new pair is loaded into a context of its own first. If it is invalid, that is logged once and the old pair
stays in use. Open connections keep the certificate of their handshake.
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
    """The certificate or its key cannot be used; the message has the remedy."""

    code = "tls-unusable"


class Certificate:
    """A certificate with its key, and their TLS context."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Load the pair. Raises TlsUnusable."""
        self._cert = cert
        self._key = key
        self._stamp = self._file_stamps()
        self._reported = ""
        self._current, self.expires = self._loaded()
        self.context, _ = self._loaded()
        self.context.sni_callback = self._choose  # called at every handshake, with or without SNI

    def refresh(self) -> bool:
        """Load the pair again if the files have changed; returns whether it did. Raises TlsUnusable.

        An invalid pair is tried again at every call, and the same problem is raised once.
        """
        stamp = self._file_stamps()
        if stamp == self._stamp:
            return False
        try:
            self._current, self.expires = self._loaded()
        except TlsUnusable as error:
            if str(error) == self._reported:
                return False
            self._reported = str(error)
            raise
        self._stamp, self._reported = stamp, ""
        return True

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """Use the current context for a handshake.

        Contexts are replaced, never changed: a handshake must not see half of a new pair.
        """
        connection.context = self._current

    def warning(self, now: datetime) -> str:
        """Return a warning if the certificate has expired or will within two weeks; else empty."""
        day = f"{self.expires:%Y-%m-%d %H:%M} UTC"
        if self.expires <= now:
            return f"the TLS certificate in {str(self._cert)!r} expired on {day}: browsers will refuse it"
        if self.expires <= now + _SOON:
            return f"the TLS certificate in {str(self._cert)!r} expires on {day}"
        return ""

    def _loaded(self) -> tuple[ssl.SSLContext, datetime]:
        """Load the pair into a new context; returns it and the expiry. Raises TlsUnusable."""
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
            return f"the key in {key!r} has a passphrase: remove it with `openssl pkey`"
        words = reason.replace("_", " ").lower() or type(error).__name__
        return f"the certificate in {cert!r} and the key in {key!r} cannot be used: {words}"

    def _file_stamps(self) -> _Stamp:
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
    """Reload the certificate when its files change, checked every `seconds`; the caller owns the task."""
    warned = ""
    while True:
        try:
            if await asyncio.to_thread(certificate.refresh):
                log.info("TLS certificate reloaded", expires=certificate.expires.isoformat())
        except TlsUnusable as error:
            log.warning("reloading the TLS certificate failed; the old one stays in use", problem=str(error))
        warning = certificate.warning(datetime.now(UTC))
        if warning and warning != warned:
            log.warning(warning)
        warned = warning
        await asyncio.sleep(seconds)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _nothing() -> str:
    """Return an empty passphrase, so that OpenSSL does not prompt on the terminal."""
    return ""


def _locked(key: Path) -> bool:
    try:
        return b"ENCRYPTED" in key.read_bytes()
    except OSError:
        return False
