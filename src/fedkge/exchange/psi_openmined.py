"""Private set intersection by OpenMined's library: the same protocol, in its C++ and its messages.

Each peer is a client, which learns, and a server, which answers, with a new secret for each role:

    caller  -> callee   request of the caller
    callee  -> caller   request, setup and response of the callee
    caller  -> callee   setup and response of the caller

A request has the blinded names in their own order, a setup those of the server in an order of its own, and a
response the request's points blinded twice. What holds for `psi` holds here: whoever does not follow the
protocol can ask for a dictionary of names, and `limit` bounds how many.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from fedkge.errors import DataError, MissingPackage
from fedkge.exchange.hops import Hops, Parcel
from fedkge.exchange.psi import LIMIT

POINT = 40  #: bytes of a point on the wire, at most
UNUSED = 1e-9  #: false positives of filters that are not used: setups list their points


def intersect(names: Iterable[str], salt: bytes, calls: bool, limit: int = LIMIT) -> Hops[list[str]]:
    """One peer's half; the common names in order, the same list at both ends. `calls`: it speaks first."""
    own = sorted(set(names))
    if len(own) > limit:
        raise DataError(f"set intersection: {len(own):,} names of one's own, expected at most {limit:,}")
    secrets.SystemRandom().shuffle(own)
    half = _Half([f"{salt.hex()} {name}" for name in own], limit)
    if calls:
        yield Parcel({"request": _packed(half.request)})
        answer = yield None
        served = half.served(answer)
        yield Parcel(served)
    else:
        asked = yield None
        served = half.served(asked)
        yield Parcel({"request": _packed(half.request), **served})
        answer = yield None
    return sorted(own[place] for place in half.found(answer))


class _Half:
    """Both roles of one peer. The library's messages are read here, and what it cannot read is refused."""

    def __init__(self, names: list[str], limit: int) -> None:
        try:
            self._psi: Any = import_module("private_set_intersection.python")
        except ImportError:
            raise MissingPackage("openmined-psi", "this set intersection", "psi") from None
        self._names, self._limit = names, limit
        self._client = self._psi.client.CreateWithNewKey(True)
        self._server = self._psi.server.CreateWithNewKey(True)
        self.request = self._client.CreateRequest(names)

    def served(self, parcel: Parcel) -> dict[str, torch.Tensor]:
        """The other's request is answered."""
        request = self._read(parcel, "request", self._psi.Request, self._limit)
        if not request.reveal_intersection:
            raise DataError("set intersection: a request for a size alone, expected one for names")
        _distinct(request.encrypted_elements, self._limit)
        count, listed = max(1, len(request.encrypted_elements)), self._psi.DataStructure.RAW
        setup = self._tried(self._server.CreateSetupMessage, UNUSED, count, self._names, listed)
        response = self._tried(self._server.ProcessRequest, request)
        return {"setup": _packed(setup), "response": _packed(response)}

    def found(self, parcel: Parcel) -> list[int]:
        """The places of the own names that the other has."""
        setup = self._read(parcel, "setup", self._psi.ServerSetup, self._limit)
        response = self._read(parcel, "response", self._psi.Response, len(self._names))
        if setup.WhichOneof("data_structure") != "raw":
            raise DataError("set intersection: a setup that does not list its points")
        _distinct(setup.raw.encrypted_elements, self._limit)
        if len(response.encrypted_elements) != len(self._names):
            raise DataError(
                f"set intersection: {len(response.encrypted_elements):,} points, "
                f"expected {len(self._names):,}"
            )
        found = self._tried(self._client.GetIntersection, setup, response)
        return [int(place) for place in found]

    def _read(self, parcel: Parcel, name: str, kind: Any, most: int) -> Any:
        content = parcel.body.get(name)
        if content is None or content.dtype != torch.uint8 or content.ndim != 1:
            raise DataError(f"set intersection: expected bytes {name!r}")
        if len(content) > POINT * (most + 1):
            raise DataError(f"set intersection: {len(content):,} bytes for at most {most:,} points")
        message = kind()
        self._tried(message.ParseFromString, content.numpy().tobytes())
        return message

    @staticmethod
    def _tried(function: Any, *given: Any) -> Any:
        """The library raises what it likes; all of it means that the other's message was no good."""
        try:
            return function(*given)
        except Exception as error:
            raise DataError(f"set intersection: {str(error)[:200]}") from None


def _distinct(points: Any, limit: int) -> None:
    if len(points) > limit:
        raise DataError(f"set intersection: {len(points):,} points, expected at most {limit:,}")
    if len(set(points)) < len(points):
        raise DataError("set intersection: a point occurs twice")


def _packed(message: Any) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(message.SerializeToString(), np.uint8).copy())
