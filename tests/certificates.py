"""Certificates for tests: an authority of one's own, and what it signs, as files."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for this machine."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"lorogo tests {name}")])
        self.file = folder / f"{name}.pem"
        made = self._builder(self._name, self._key.public_key(), days=30).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        made = made.add_extension(usage, critical=True)
        self.file.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def sign(
        self, name: str, *, days: float = 30, password: bytes | None = None, mode: int = 0o600
    ) -> tuple[Path, Path]:
        """A certificate for localhost and 127.0.0.1, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        made = self._builder(subject, key.public_key(), days=days).add_extension(names, critical=False)
        cert_file, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        cert_file.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        lock = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password)
        )
        key_file.touch(mode=0o600)
        key_file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
        )
        key_file.chmod(mode)
        return cert_file, key_file

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, days: float
    ) -> x509.CertificateBuilder:
        end = datetime.now(UTC) + timedelta(days=days)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(datetime.now(UTC), end) - timedelta(days=1))
            .not_valid_after(end)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
