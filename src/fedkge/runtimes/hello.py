"""What hub and site say when a stream between them begins: versions, the run and its terms, who they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import fedkge
from fedkge.errors import DataError, FedkgeError
from fedkge.exchange.rows import PROTOCOL
from fedkge.runtimes.authority import Authority
from fedkge.runtimes.signing import signed

#: frames: the hub's and the site's first, why one is refused; then requests and answers as between processes
HELLO, REFUSAL = b"H", b"R"
OPEN, MESSAGE, END = b"O", b"M", b"Q"
LONGEST = 1 << 20  #: bytes of a first frame


class Refused(FedkgeError):  # noqa: N818 - reads as what it says
    """The other end does not want this."""


@dataclass(frozen=True)
class HubHello:
    """The hub's first words."""

    fedkge: str
    protocol: int
    run: str
    nonce: str  #: to be signed, new for every stream
    round: int  #: the last that was closed, and that this site was asked for; 0: none
    terms: Mapping[str, Any]

    @classmethod
    def of(cls, run: str, nonce: str, round: int, terms: Mapping[str, Any]) -> Self:
        return cls(fedkge.__version__, PROTOCOL, run, nonce, round, terms)

    def packed(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, content: bytes) -> Self:
        """What a hub said, of the right version."""
        found = _read(content, cls)
        for name in ("fedkge", "run", "nonce"):
            if not isinstance(found[name], str) or len(found[name]) > 200:
                raise DataError(f"hello: {name}: expected a short text")
        check_version(found["fedkge"], found["protocol"], "the hub")
        if type(found["round"]) is not int or not isinstance(found["terms"], dict):
            raise DataError("hello: expected a round and terms")
        return cls(**found)


@dataclass(frozen=True)
class SiteHello:
    """A site's first words: its certificate, and a signature that shows that it has the key."""

    fedkge: str
    protocol: int
    certificate: str
    signature: str

    @classmethod
    def of(cls, hub: HubHello, site: str, certificate: bytes, key: bytes) -> Self:
        signature = signed(key, _said(hub.nonce, hub.run, site)).hex()
        return cls(fedkge.__version__, PROTOCOL, certificate.decode(), signature)

    def packed(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def check(cls, content: bytes, authority: Authority, site: str, run: str, nonce: str) -> str:
        """The fingerprint of the certificate that a site has shown; an error says why it is refused."""
        found = _read(content, cls)
        check_version(found["fedkge"], found["protocol"], f"site {site!r}")
        try:
            certificate, signature = found["certificate"].encode(), bytes.fromhex(found["signature"])
        except (AttributeError, TypeError, ValueError):
            raise DataError("hello: expected a certificate and a signature") from None
        return authority.check_shown(site, certificate, signature, _said(nonce, run, site))


def check_version(version: Any, protocol: Any, who: str) -> None:
    """Both ends run the same version: the results of a run are those of one program."""
    if (version, protocol) != (fedkge.__version__, PROTOCOL):
        raise Refused(
            f"{who} runs fedkge {str(version)[:40]} (protocol {str(protocol)[:10]}), this end "
            f"{fedkge.__version__} ({PROTOCOL}); install the same version on both"
        )


def _read(content: bytes, cls: type[Any]) -> dict[str, Any]:
    names = {field.name for field in fields(cls)}
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found.keys() >= {"fedkge", "protocol"}:
        raise DataError("hello: cannot be read")
    check_version(found["fedkge"], found["protocol"], "the other end")
    if found.keys() != names:
        raise DataError(f"hello: {sorted(map(str, found))[:10]}, expected {', '.join(sorted(names))}")
    return found


def _said(nonce: str, run: str, site: str) -> bytes:
    return json.dumps(["fedkge site", nonce, run, site]).encode()
