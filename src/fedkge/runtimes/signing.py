"""A site's half of its certificate: the key, the request to sign it, and signatures by the key."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

from fedkge.errors import ConfigError, DataError
from fedkge.nodes.store import write_whole
from fedkge.runtimes.keys import crypto, fingerprint, write_key

BITS = 3072  #: of a key
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")  #: of a site; FLARE takes no dots


def make_request(name: str, organisation: str, folder: Path, renew: bool = False) -> tuple[Path, Path]:
    """A private key, or with `renew` the one that is there, and a request to sign it."""
    c = crypto()
    if not NAME.fullmatch(name):
        raise ConfigError(f"NAME: {name!r}, expected letters, digits, '-' and '_', and a letter first")
    path, out = folder / f"{name}.key", folder / f"{name}.csr"
    if renew:
        try:
            key = c.serialization.load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}; without --renew a new key is made") from None
    else:
        if path.exists():
            raise ConfigError(f"{path}: exists already; --renew asks for a new certificate with the same key")
        key = c.rsa.generate_private_key(65537, BITS)
        write_key(path, key)
    oid = c.oid.NameOID
    subject = [(oid.COMMON_NAME, name), (oid.ORGANIZATION_NAME, organisation or name)]
    request = (
        c.x509.CertificateSigningRequestBuilder()
        .subject_name(c.x509.Name([c.x509.NameAttribute(of, value) for of, value in subject]))
        .sign(key, c.hashes.SHA256())
    )
    write_whole(out, request.public_bytes(c.serialization.Encoding.PEM))
    return path, out


def asked_for(request: bytes) -> tuple[str, Any, str]:
    """The name, the public key and the organisation of a request, whose sender has the key."""
    c = crypto()
    oid = c.oid.NameOID
    try:
        read = c.x509.load_pem_x509_csr(request)
        name, organisation = (
            str(read.subject.get_attributes_for_oid(of)[0].value)
            for of in (oid.COMMON_NAME, oid.ORGANIZATION_NAME)
        )
        public = read.public_key()
    except (ValueError, IndexError, TypeError) as error:
        raise DataError(
            f"REQUEST: cannot be read ({error}); expected what `fedkge keys request` made"
        ) from None
    if not read.is_signature_valid or not isinstance(public, c.rsa.RSAPublicKey) or public.key_size < 2048:
        raise DataError(
            "REQUEST: not signed by its own key, or not with RSA; expected what `fedkge keys request` made"
        )
    if not NAME.fullmatch(name):
        raise DataError(
            f"REQUEST: for {name[:80]!r}, expected letters, digits, '-' and '_', and a letter first"
        )
    return name, public, organisation


def request_fingerprint(request: bytes) -> str:
    """Of the public key, which people compare before a request is approved."""
    s = crypto().serialization
    public = asked_for(request)[1]
    return fingerprint(public.public_bytes(s.Encoding.DER, s.PublicFormat.SubjectPublicKeyInfo))


def signed(key: bytes, said: bytes) -> bytes:
    """A signature by a site's private key."""
    c = crypto()
    found: bytes = c.serialization.load_pem_private_key(key, None).sign(said, padding(), c.hashes.SHA256())
    return found


def check_time(certificate: Any, whose: str) -> None:
    """An error if a certificate is not good now."""
    now = datetime.datetime.now(datetime.UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        until = certificate.not_valid_after_utc.date()
        raise ConfigError(f"{whose} was good until {until}; renew it with `fedkge keys request --renew`")


def padding() -> Any:
    """How signatures by RSA are padded."""
    c = crypto()
    return c.padding.PSS(c.padding.MGF1(c.hashes.SHA256()), c.padding.PSS.DIGEST_LENGTH)
