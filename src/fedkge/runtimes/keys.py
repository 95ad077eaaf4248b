"""Keys of parties: who somebody is on the network is the certificate that its partners have on file."""

from __future__ import annotations

import datetime
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from fedkge.errors import ConfigError, DataError, MissingPackage
from fedkge.nodes.store import write_whole

YEARS = 10  #: that a certificate is good for
LONGEST = 64  #: characters of a common name (X.509)


@dataclass(frozen=True)
class KeyFiles:
    """Where a party's private key and its certificate are."""

    key: Path
    certificate: Path


def new_keys(name: str, folder: Path) -> KeyFiles:
    """A P-256 key that only the owner may read, and a certificate for it that says the party's name."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise MissingPackage("cryptography", "keys", "peers") from None
    if not name or len(name) > LONGEST or Path(name).name != name:
        raise ConfigError(f"NAME: {name!r}, expected a plain name of at most {LONGEST} characters")
    files = KeyFiles(folder / f"{name}.key", folder / f"{name}.crt")
    for file in (files.key, files.certificate):
        if file.exists():
            raise ConfigError(f"{file}: exists already; a key is not replaced, choose another folder")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
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
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    handle = os.open(files.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(content)
    write_whole(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    return files


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

    @classmethod
    def read(cls, path: Path) -> Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import NameOID

        try:
            pem = path.read_bytes()
            found = x509.load_pem_x509_certificate(pem)
            name = str(found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}; expected a certificate") from None
        except (ValueError, IndexError):
            raise DataError(f"{path}: not a certificate; expected one made by `fedkge keys new`") from None
        return cls(pem, name, _host(name), fingerprint(found.public_bytes(Encoding.DER)))


def fingerprint(der: bytes) -> str:
    """What people read to each other."""
    return hashlib.sha256(der).hexdigest()


def fingerprint_of_pem(pem: bytes) -> str:
    """Of a certificate that somebody showed; empty if it is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        return fingerprint(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))
    except ValueError:
        return ""
