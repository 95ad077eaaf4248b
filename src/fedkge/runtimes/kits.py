"""The kit of a site: one archive with its certificate, the authority's, and where the hub is."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from fedkge.errors import ConfigError, DataError
from fedkge.runtimes.keys import crypto, name_of
from fedkge.runtimes.signing import check_time

ABOUT, ROOT = "about.json", "authority.crt"  #: files of a kit, and of the authority
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
