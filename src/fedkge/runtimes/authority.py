"""The hub's authority: it signs what sites ask for, knows whom it has signed, and whom it trusts no more.

A site makes its private key where it is used and sends a request. The hub approves it and sends back a kit:
one archive with the site's certificate, the authority's, and where the hub is. NVIDIA FLARE wants RSA.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkge.errors import ConfigError, DataError
from fedkge.nodes.store import write_whole
from fedkge.runtimes.engine import ADMIN
from fedkge.runtimes.keys import YEARS, crypto, fingerprint, fingerprint_of_pem, name_of, write_key
from fedkge.runtimes.kits import ABOUT, ROOT, Address, Kit
from fedkge.runtimes.signing import BITS, asked_for, check_time, padding

DAYS = 365  #: that a party's certificate is good for
KEY, REVOKED = "authority.key", "revoked.txt"


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
            shown.public_key().verify(signature, said, padding(), c.hashes.SHA256())
            name = name_of(certificate)
        except (ValueError, TypeError, AttributeError, c.InvalidSignature):
            raise ConfigError(
                f"{site}: shows a certificate that is not from this hub, or not its own"
            ) from None
        if name != site:
            raise ConfigError(f"{site}: shows the certificate of {name!r}")
        check_time(shown, f"the certificate of {site!r}")
        return fingerprint(shown.public_bytes(c.serialization.Encoding.DER))


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
