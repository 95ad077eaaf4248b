"""A conversation between two parties as a generator: every hop over a network is a `yield`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one hop carries: named tensors, and small plain values."""

    body: Mapping[str, Tensor] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)


#: One end of a conversation. It yields a parcel to send it, and yields None to get the next one that came.
#: What comes is not to be trusted: an end raises `DataError` on anything that it did not expect.
Hops: TypeAlias = Generator[Parcel | None, Parcel, T]


def introduced(first: Hops[T], second: Hops[T], most: int = 1 << 40) -> tuple[T, T]:
    """Both ends in one place: what each returns. For tests, and for whoever replays a conversation."""
    ends, results = (first, second), {}
    boxes: tuple[list[Parcel], list[Parcel]] = ([], [])
    waiting: list[bool] = [False, False]
    for _ in range(most):
        turn = next((i for i in (0, 1) if i not in results and (not waiting[i] or boxes[i])), None)
        if turn is None:
            break
        try:
            found = ends[turn].send(boxes[turn].pop(0)) if waiting[turn] else next(ends[turn])
            waiting[turn] = found is None
            if found is not None:
                boxes[1 - turn].append(found)
        except StopIteration as end:
            results[turn] = end.value
    if len(results) < 2:
        raise RuntimeError("a conversation in which both ends wait for the other")
    return results[0], results[1]
