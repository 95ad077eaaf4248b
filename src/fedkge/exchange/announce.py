"""Who has what: a site announces the ids of its rows, the hub finds out which of them others have too.

An id is a byte string: a name, or where sites share a secret a pseudonym that the hub cannot turn back.
Only two things about ids matter: whether they are equal, and their order. Both ends keep them sorted, so
that later messages need no ids: a bit per announced row says which ones they are about.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from reprlib import repr as brief
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.graphs.graph import Axis

Id: TypeAlias = bytes
LONGEST_ID = 1 << 12  #: bytes
PSEUDONYM = 32  #: bytes of one
IDS, ENDS = "ids", "ends"


def identify(names: Iterable[str], axis: Axis, secret: bytes | None = None) -> list[Id]:
    """An id for each name: the name itself, or its pseudonym under a secret that the sites share.

        pseudonym = HMAC-SHA-256(secret, axis || 0x00 || name)

    Names are common names (`graphs.calling`): HMAC knows no spelling variants.
    """
    plain = [name.encode() for name in names]
    if secret is None:
        return plain
    return [hmac.digest(secret, f"{axis}\0".encode() + name, "sha256") for name in plain]


def fingerprint(secret: bytes) -> str:
    """Equal for equal secrets, and no help in finding one: sites with another secret are noticed by it."""
    return hmac.digest(secret, b"fingerprint\0", "sha256")[:8].hex()


def announcement(ids: Mapping[Axis, Sequence[Id]]) -> dict[str, Tensor]:
    """The body that lists ids, which are sorted: their bytes one after another, and where each one ends."""
    body = {}
    for axis, own in ids.items():
        body[f"{axis}.{IDS}"] = (
            torch.frombuffer(bytearray(b"".join(own)), dtype=torch.uint8).clone() if own else _NONE
        )
        body[f"{axis}.{ENDS}"] = torch.from_numpy(np.cumsum([len(one) for one in own], dtype=np.int64))
    return body


def announced(
    body: Mapping[str, Tensor], axes: Collection[Axis], pseudonyms: bool = False, most: int | None = None
) -> dict[Axis, tuple[Id, ...]]:
    """What `announcement` wrote, at most so many of an axis; anything else is a `DataError`."""
    expected = {f"{axis}.{part}" for axis in axes for part in (IDS, ENDS)}
    if body.keys() != expected:
        raise DataError(f"announces {brief(sorted(body))}, expected {sorted(expected)}; another method?")
    for axis in axes:
        count = body[f"{axis}.{ENDS}"].numel()
        if most is not None and count > most:
            raise DataError(f"{axis} ids: {count:,}, expected at most {most:,} (participation.most)")
    lengths = (PSEUDONYM, PSEUDONYM) if pseudonyms else (1, LONGEST_ID)
    return {axis: _ids(axis, body[f"{axis}.{IDS}"], body[f"{axis}.{ENDS}"], *lengths) for axis in axes}


def _ids(axis: Axis, content: Tensor, ends: Tensor, least: int, longest: int) -> tuple[Id, ...]:
    shapes = content.dtype == torch.uint8 and ends.dtype == torch.int64 and content.ndim == ends.ndim == 1
    stops = ends.tolist() if shapes else [-1]
    lengths = np.diff(np.array([0, *stops]))
    if not shapes or (stops[-1] if stops else 0) != len(content):
        raise DataError(f"{axis} ids: expected bytes, and where in them each id ends")
    if len(lengths) and not (lengths.min() >= least and lengths.max() <= longest):
        expected = f"{least} to {longest} bytes each" if least < longest else f"pseudonyms of {least} bytes"
        raise DataError(f"{axis} ids: expected {expected}")
    whole = content.cpu().numpy().tobytes()
    found = tuple(whole[begin:end] for begin, end in pairwise([0, *stops]))
    if any(a >= b for a, b in pairwise(found)):
        raise DataError(f"{axis} ids: expected each once, in increasing order")
    return found


def in_common(sites: Iterable[Sequence[Id]]) -> dict[Id, int]:
    """The ids that at least two sites announce, and how many do.

    They are sorted: the position of an id is the hub's number of it.
    """
    owners = Counter(one for ids in sites for one in ids)
    return {one: owners[one] for one in sorted(owners) if owners[one] > 1}


_NONE = torch.empty(0, dtype=torch.uint8)
