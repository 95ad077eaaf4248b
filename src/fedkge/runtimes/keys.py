"""Keys of parties: who somebody is on the network is the certificate that its partners have on file."""

from __future__ import annotations

import datetime
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedkge.errors import ConfigError, DataError, MissingPackage
from fedkge.nodes.store import write_whole

YEARS = 10  #: that a certificate is good for
LONGEST = 64  #: characters of a common name (X.509)


@dataclass(frozen=True)
class KeyFiles:
    """Where a party's private key and its certificate are."""

    key: Path
    certificate: Path


def crypto() -> Any:
    """The parts of the package that keys need, imported where they are used."""
    try:
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.x509 import oid
    except ImportError:
        raise MissingPackage("cryptography", "keys", "peers") from None
    return SimpleNamespace(
        x509=x509,
        InvalidSignature=InvalidSignature,
        hashes=hashes,
        serialization=serialization,
        ec=ec,
        padding=padding,
        rsa=rsa,
        oid=oid,
    )


def write_key(path: Path, key: Any) -> None:
    """A private key that only its owner may read; one that is there is not replaced."""
    s = crypto().serialization
    content = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)


def new_keys(name: str, folder: Path) -> KeyFiles:
    """A P-256 key that only the owner may read, and a certificate for it that says the party's name."""
    c = crypto()
    x509, oid = c.x509, c.oid
    if not name or len(name) > LONGEST or Path(name).name != name:
        raise ConfigError(f"NAME: {name!r}, expected a plain name of at most {LONGEST} characters")
    files = KeyFiles(folder / f"{name}.key", folder / f"{name}.crt")
    for file in (files.key, files.certificate):
        if file.exists():
            raise ConfigError(f"{file}: exists already; a key is not replaced, choose another folder")
    key = c.ec.generate_private_key(c.ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name)])
    usage = [oid.ExtendedKeyUsageOID.SERVER_AUTH, oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_host(name))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        .sign(key, c.hashes.SHA256())
    )
    write_key(files.key, key)
    write_whole(files.certificate, certificate.public_bytes(c.serialization.Encoding.PEM))
    return files


def name_of(pem: bytes) -> str:
    """The name that a certificate says; a `ValueError` where there is none."""
    c = crypto()
    found = c.x509.load_pem_x509_certificate(pem).subject.get_attributes_for_oid(c.oid.NameOID.COMMON_NAME)
    if not found:
        raise ValueError("a certificate without a name")
    return str(found[0].value)


def _host(name: str) -> str:
    """A name as a host may be called; the certificate itself is compared, so that it need not be unique."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-") or "peer"


@dataclass(frozen=True)
class Certificate:
    """A certificate on file."""

    pem: bytes
    name: str  #: that it says
    host: str
    fingerprint: str  #: SHA-256 of its DER form, to be compared over another channel

    until: str = ""  #: the last day that it is good for

    @classmethod
    def of(cls, pem: bytes) -> Certificate:
        """A `ValueError` if it is none."""
        c = crypto()
        found = c.x509.load_pem_x509_certificate(pem)
        name, der = name_of(pem), found.public_bytes(c.serialization.Encoding.DER)
        return cls(pem, name, _host(name), fingerprint(der), str(found.not_valid_after_utc.date()))

    @classmethod
    def read(cls, path: Path) -> Certificate:
        try:
            return cls.of(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}; expected a certificate") from None
        except ValueError:
            raise DataError(f"{path}: not a certificate; expected one made by `fedkge keys new`") from None

    def fits(self, key: bytes) -> bool:
        """Whether this is the certificate of a private key."""
        c = crypto()
        try:
            own = c.serialization.load_pem_private_key(key, None).public_key()
        except (ValueError, TypeError):
            return False
        return bool(c.x509.load_pem_x509_certificate(self.pem).public_key() == own)


def fingerprint(der: bytes) -> str:
    """What people read to each other."""
    return hashlib.sha256(der).hexdigest()


def fingerprint_of_pem(pem: bytes) -> str:
    """Of a certificate that somebody showed; empty if it is none."""
    try:
        return Certificate.of(pem).fingerprint
    except ValueError:
        return ""
