"""Private set intersection: two peers find the names that both have, and learn nothing else but a set size.

Diffie-Hellman on the curve P-256 (Meadows, 1986; Huberman, Franklin and Hogg, 1999). Each peer has a new
secret number, a or b, and a public hash H onto the curve, salted for this meeting:

    caller  -> callee   a H(x), in a random order
    callee  -> caller   b H(y), in a random order, and b (a H(x)) in the order in which they came
    caller  -> callee   a (b H(y)) in the order in which they came

`a b H(x)` is equal for equal names, so both find which of their own names are common. Only x-coordinates
travel: a point and its negative have the same multiples up to the sign.

This protects against peers that follow the protocol. One that does not can ask for any names that it can
guess, a whole dictionary, and learn which of them the other has: `limit` bounds how many it can ask for.
"""

from __future__ import annotations

import hashlib
import secrets
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import DataError, MissingPackage
from fedkge.exchange.hops import Hops, Parcel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

WIDTH = 32  #: bytes of a coordinate
LIMIT = 1_000_000  #: names that a peer may ask about, unless told otherwise
TRIES = 256  #: hashes of a name until one is on the curve; each is with probability 1/2


def normalised(name: str) -> str:
    """A name as it is compared: compatible characters made equal, no case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def by_normal_name(names: Iterable[str]) -> dict[str, int]:
    """Normal name -> the place of the first name that is so; later ones of the same are left out."""
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        found.setdefault(normalised(name), place)
    return found


class Blinder:
    """A peer's half: a secret number, and points multiplied by it."""

    def __init__(self, salt: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            raise MissingPackage("cryptography", "private set intersection", "peers") from None
        self._ec, self._curve, self._ecdh, self._salt = ec, ec.SECP256R1(), ec.ECDH(), salt
        self._secret: EllipticCurvePrivateKey = ec.generate_private_key(self._curve)

    def hashed(self, names: Sequence[str]) -> bytes:
        """`a H(name)` of each."""
        exchange, ecdh = self._secret.exchange, self._ecdh
        return b"".join([exchange(ecdh, self._onto_curve(name)) for name in names])

    def again(self, points: bytes) -> bytes:
        """Each of the other's points times the secret; one that is not on the curve is a `DataError`."""
        read, curve = self._ec.EllipticCurvePublicKey.from_encoded_point, self._curve
        exchange, ecdh = self._secret.exchange, self._ecdh
        try:
            return b"".join(
                [
                    exchange(ecdh, read(curve, b"\x02" + points[i : i + WIDTH]))
                    for i in range(0, len(points), WIDTH)
                ]
            )
        except ValueError:
            raise DataError("set intersection: a number that is no point of P-256") from None

    def _onto_curve(self, name: str) -> EllipticCurvePublicKey:
        """The first of the hashes of a name that is the x-coordinate of a point."""
        start = hashlib.sha256(self._salt + name.encode())
        for count in range(TRIES):
            hashing = start.copy()
            hashing.update(bytes([count]))
            try:
                return self._ec.EllipticCurvePublicKey.from_encoded_point(
                    self._curve, b"\x02" + hashing.digest()
                )
            except ValueError:
                continue
        raise AssertionError("no hash of a name is on the curve: probability 2^-256")


def intersect(names: Iterable[str], salt: bytes, calls: bool, limit: int = LIMIT) -> Hops[list[str]]:
    """One peer's half; the common names in order, the same list at both ends. `calls`: it speaks first."""
    own = sorted(set(names))
    if len(own) > limit:
        raise DataError(f"set intersection: {len(own):,} names of one's own, expected at most {limit:,}")
    secrets.SystemRandom().shuffle(own)
    blinder = Blinder(salt)
    first = blinder.hashed(own)
    if calls:
        yield Parcel({"once": _tensor(first)})
        answer = yield None
        other = blinder.again(_points(answer, "once", limit))
        twice = _points(answer, "twice", len(own), len(own))
        yield Parcel({"twice": _tensor(other)})
    else:
        asked = yield None
        other = blinder.again(_points(asked, "once", limit))
        yield Parcel({"once": _tensor(first), "twice": _tensor(other)})
        answer = yield None
        twice = _points(answer, "twice", len(own), len(own))
    common = set(_split(other))
    return sorted(name for name, point in zip(own, _split(twice), strict=True) if point in common)


def _split(points: bytes) -> list[bytes]:
    return [points[i : i + WIDTH] for i in range(0, len(points), WIDTH)]


def _tensor(points: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(points, np.uint8).reshape(-1, WIDTH).copy())


def _points(parcel: Parcel, name: str, most: int, exactly: int | None = None) -> bytes:
    """Points that came; of the wrong number or shape, or one twice, they are a `DataError`."""
    found = parcel.body.get(name)
    if found is None or found.dtype != torch.uint8 or found.ndim != 2 or found.shape[1] != WIDTH:
        raise DataError(f"set intersection: expected coordinates {name!r} of {WIDTH} bytes each")
    if len(found) > most or (exactly is not None and len(found) != exactly):
        raise DataError(
            f"set intersection: {len(found):,} points, expected {'at most ' * (exactly is None)}{most:,}"
        )
    content = found.numpy().tobytes()
    if len(set(_split(content))) < len(found):
        raise DataError("set intersection: a point occurs twice")
    return content
