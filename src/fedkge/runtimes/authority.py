"""The hub's authority: it signs what sites ask for, knows whom it has signed, and whom it trusts no more.

A site makes its private key where it is used and sends a request. The hub approves it and sends back a kit:
one archive with the site's certificate, the authority's, and where the hub is. NVIDIA FLARE wants RSA.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from fedkge.errors import ConfigError, DataError
from fedkge.nodes.store import write_whole
from fedkge.runtimes.engine import ADMIN
from fedkge.runtimes.keys import YEARS, crypto, fingerprint, fingerprint_of_pem, name_of, write_key

BITS = 3072  #: of a key
DAYS = 365  #: that a party's certificate is good for
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")  #: of a site; FLARE takes no dots
KEY, ROOT, ABOUT, REVOKED = "authority.key", "authority.crt", "about.json", "revoked.txt"
LARGEST = 1 << 16  #: bytes of a file in a kit


@dataclass(frozen=True)
class Address:
    """Where the hub is."""

    host: str
    port: int

    def check(self) -> None:
        if not self.host or not re.fullmatch(r"[A-Za-z0-9.:-]{1,64}", self.host):
            raise ConfigError(f"HOST: {self.host!r}, expected the hub's full host name, or its IP address")
        if not 0 < self.port < 1 << 16:
            raise ConfigError(f"port: {self.port}, expected a number from 1 to 65535")


@dataclass(frozen=True)
class Kit:
    """What the hub gives an organisation: all that a site needs besides its own key."""

    name: str
    certificate: bytes
    root: bytes
    address: Address

    @classmethod
    def read(cls, path: Path) -> Kit:
        try:
            with zipfile.ZipFile(path) as archive:
                found = {one.filename: _member(archive, one) for one in archive.infolist()[:8]}
            about = json.loads(found[ABOUT])
            address = Address(str(about["host"]), int(about["port"]))
            made = cls(str(about["name"]), found["site.crt"], found[ROOT], address)
            if name_of(made.certificate) != made.name:
                raise ValueError(f"its certificate is of {name_of(made.certificate)!r}")
        except OSError as error:
            raise DataError(
                f"kit: {path}: {error.strerror}; expected what `fedkge keys approve` made"
            ) from None
        except (zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
            raise DataError(
                f"kit: {path}: cannot be read ({error}); expected what `fedkge keys approve` made"
            ) from None
        address.check()
        return made

    def packed(self) -> bytes:
        about = {"name": self.name, "host": self.address.host, "port": self.address.port}
        out = BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in (
                (ABOUT, json.dumps(about).encode()),
                ("site.crt", self.certificate),
                (ROOT, self.root),
            ):
                archive.writestr(name, content)
        return out.getvalue()

    def check_key(self, key: bytes, path: Path) -> None:
        """An error if the private key is not that of the certificate, or the certificate has run out."""
        c = crypto()
        own = c.x509.load_pem_x509_certificate(self.certificate)
        try:
            public = c.serialization.load_pem_private_key(key, None).public_key()
        except (ValueError, TypeError) as error:
            raise DataError(f"key: {path}: not a private key ({error})") from None
        if public != own.public_key():
            raise ConfigError(
                f"key: {path} is not the key that the kit of {self.name!r} was made for; ask for another, "
                "or restore the key that was there when `fedkge keys request` ran"
            )
        check_time(own, f"the certificate of {self.name!r}")


def _member(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    if one.file_size > LARGEST:
        raise ValueError(f"{one.filename} has {one.file_size:,} bytes")
    return archive.read(one)


@dataclass(frozen=True)
class Authority:
    """The folder at the hub with the authority's key, the hub's own keys, whom it approved and revoked."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, address: Address, also: Sequence[str] = ()) -> Authority:
        """A new authority, and keys of the hub and of whoever submits its jobs."""
        address.check()
        made = cls(folder)
        if (folder / KEY).exists():
            raise ConfigError(f"{folder}: holds an authority already; --renew makes its hub new certificates")
        c = crypto()
        root = c.rsa.generate_private_key(65537, BITS)
        name = c.x509.Name([c.x509.NameAttribute(c.oid.NameOID.COMMON_NAME, "fedkge authority")])
        usage = c.x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            _dated(name, name, root.public_key(), root.public_key(), 365 * YEARS)
            .add_extension(c.x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(root, c.hashes.SHA256())
        )
        write_key(folder / KEY, root)
        write_whole(folder / ROOT, certificate.public_bytes(c.serialization.Encoding.PEM))
        about = {"host": address.host, "port": address.port, "also": list(also)}
        write_whole(folder / ABOUT, json.dumps(about).encode())
        made.renew()
        return made

    def renew(self) -> None:
        """New keys and certificates of the hub; sites keep theirs."""
        c, about = crypto(), self._about()
        for name, subject, role in (("hub", self.address.host, None), ("admin", ADMIN, "project_admin")):
            key = c.rsa.generate_private_key(65537, BITS)
            hosts = [self.address.host, *about.get("also", ())] if role is None else [ADMIN.partition("@")[2]]
            certificate = self._signed(
                subject, "hub", role, key.public_key(), hosts, DAYS, server=role is None
            )
            (self.folder / f"{name}.key").unlink(missing_ok=True)
            write_key(self.folder / f"{name}.key", key)
            write_whole(self.folder / f"{name}.crt", certificate)

    def _about(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.folder}: no authority ({error}); expected a folder that `fedkge keys authority` made"
            ) from None
        return found

    @property
    def address(self) -> Address:
        about = self._about()
        return Address(about["host"], about["port"])

    def file(self, name: str) -> bytes:
        """One of its files."""
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise DataError(f"{self.folder / name}: {error.strerror}; restore it from the backup") from None

    def approve(self, request: bytes, days: int = DAYS) -> Kit:
        """Sign what a site asks for. Only its name and key are taken over: a site never gets a role."""
        c = crypto()
        name, public, organisation = asked_for(request)
        certificate = self._signed(name, organisation, None, public, [name], days)
        write_whole(
            self.folder / "approved" / f"{name}-{fingerprint_of_pem(certificate)[:16]}.crt", certificate
        )
        assert c.x509.load_pem_x509_certificate(certificate).public_key() == public
        return Kit(name, certificate, self.file(ROOT), self.address)

    def _signed(
        self,
        name: str,
        organisation: str,
        role: str | None,
        public: Any,
        hosts: Sequence[str],
        days: int,
        server: bool = False,
    ) -> bytes:
        c = crypto()
        root = c.x509.load_pem_x509_certificate(self.file(ROOT))
        key = c.serialization.load_pem_private_key(self.file(KEY), None)
        oid, use = c.oid.NameOID, c.oid.ExtendedKeyUsageOID
        parts = [(oid.COMMON_NAME, name), (oid.ORGANIZATION_NAME, organisation)]
        parts += [] if role is None else [(oid.UNSTRUCTURED_NAME, role)]
        subject = c.x509.Name([c.x509.NameAttribute(of, value) for of, value in parts])
        usage = [use.SERVER_AUTH, use.CLIENT_AUTH] if server else [use.CLIENT_AUTH]
        made = (
            _dated(subject, root.subject, public, key.public_key(), days)
            .add_extension(c.x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(c.x509.SubjectAlternativeName([_called(host) for host in hosts]), critical=False)
            .add_extension(c.x509.ExtendedKeyUsage(usage), critical=False)
            .sign(key, c.hashes.SHA256())
        )
        content: bytes = made.public_bytes(c.serialization.Encoding.PEM)
        return content

    # Whom it trusts no more

    def revoke(self, who: str) -> list[str]:
        """Trust a certificate no more, or all that a site ever got; the fingerprints that were added."""
        own: dict[str, list[str]] = {}
        for path in (self.folder / "approved").glob("*.crt"):
            own.setdefault(path.stem.rpartition("-")[0], []).append(fingerprint_of_pem(path.read_bytes()))
        found = own.get(who, [who.lower()] if re.fullmatch("[0-9a-fA-F]{64}", who) else [])
        if not found:
            raise ConfigError(
                f"{who!r}: expected a site that was approved ({', '.join(sorted(own)) or 'none was'}), or "
                "the fingerprint of a certificate"
            )
        new = sorted(set(found) - self.revoked())
        if new:
            write_whole(
                self.folder / REVOKED,
                "".join(f"{one}\n" for one in sorted(self.revoked() | set(new))).encode(),
            )
        return new

    def revoked(self) -> set[str]:
        """Fingerprints."""
        path = self.folder / REVOKED
        return set(path.read_text(encoding="ascii").split()) if path.exists() else set()

    def check_shown(self, site: str, certificate: bytes, signature: bytes, said: bytes) -> str:
        """The fingerprint of a certificate that a site shows, and has the key of; or what is wrong."""
        c = crypto()
        try:
            shown = c.x509.load_pem_x509_certificate(certificate)
            shown.verify_directly_issued_by(c.x509.load_pem_x509_certificate(self.file(ROOT)))
            shown.public_key().verify(signature, said, _padding(), c.hashes.SHA256())
            name = name_of(certificate)
        except (ValueError, TypeError, AttributeError, c.InvalidSignature):
            raise ConfigError(
                f"{site}: shows a certificate that is not from this hub, or not its own"
            ) from None
        if name != site:
            raise ConfigError(f"{site}: shows the certificate of {name!r}")
        check_time(shown, f"the certificate of {site!r}")
        return fingerprint(shown.public_bytes(c.serialization.Encoding.DER))


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
    found: bytes = c.serialization.load_pem_private_key(key, None).sign(said, _padding(), c.hashes.SHA256())
    return found


def check_time(certificate: Any, whose: str) -> None:
    """An error if a certificate is not good now."""
    now = datetime.datetime.now(datetime.UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        until = certificate.not_valid_after_utc.date()
        raise ConfigError(f"{whose} was good until {until}; renew it with `fedkge keys request --renew`")


def _padding() -> Any:
    c = crypto()
    return c.padding.PSS(c.padding.MGF1(c.hashes.SHA256()), c.padding.PSS.DIGEST_LENGTH)


def _dated(subject: Any, issuer: Any, public: Any, signer: Any, days: int) -> Any:
    c = crypto()
    now = datetime.datetime.now(datetime.UTC)
    return (
        c.x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(c.x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(c.x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(c.x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _called(host: str) -> Any:
    x509 = crypto().x509
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
