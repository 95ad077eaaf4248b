"""A translation between two peers: a host teaches, a client learns W and sends what it makes of its rows.

Every `yield` is a hop over the network. Nothing that comes is trusted: shapes, sizes and numbers are checked
before they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.hops import Hops, Parcel
from fedkge.graphs.graph import Axis
from fedkge.methods.ends import End, Heard
from fedkge.methods.lending import Loan, lent
from fedkge.methods.ppat import ClientHalf, HostHalf, csls, dealt, procrustes, random_orthogonal
from fedkge.models import Tables
from fedkge.models.tables import LONGEST
from fedkge.training.loop import one_thread

LEAST = 2  #: aligned rows that each teacher needs


def vectors(tables: Tables, axis: Axis, rows: Tensor) -> Tensor:
    """The vectors of some rows, on the CPU: [n, width]."""
    return tables.table(axis)[rows.to(tables.device), : tables.model.spatial(axis)].detach().cpu().clone()


def _batches(count: int, size: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, count, size), count]))


def host(
    end: End, heard: Heard, groups: Sequence[tuple[Axis, ...]], widths: Mapping[Axis, int]
) -> Hops[None]:
    """Teach a generator, and receive what it has made of the client's rows."""
    method, width = end.method, end.widths
    for number, axes in enumerate(groups):
        own = torch.cat([vectors(end.tables, axis, heard.taken[axis]) for axis in axes])
        if method.translate == "ppat" and not (yield from _teach(end, heard, axes, own, number)):
            return
        parcel = yield None
        lengths = [len(heard.taken[axis]) for axis in axes]
        rows = _rows(
            parcel, "rows", sum(lengths), (widths if method.translate == "procrustes" else width)[axes[0]]
        )
        turn = procrustes(rows, own) if method.translate == "procrustes" else None
        made = rows if turn is None else rows @ turn.T
        heard.rows |= dict(zip(axes, made.split(lengths), strict=True))
        if method.virtual and Axis.ENTITY in axes:
            heard.loan = Loan.read(
                parcel.body,
                len(heard.taken[Axis.ENTITY]),
                rows.shape[1],
                rows.shape[1] if end.one_fits_both(widths) else 0,
                method,
            )
            if turn is not None:
                heard.loan = heard.loan.turned(turn)


def _teach(end: End, heard: Heard, axes: tuple[Axis, ...], own: Tensor, number: int) -> Hops[bool]:
    """PPAT at the host; false if there is none."""
    method, count = end.method, len(own)
    totals = {Axis.ENTITY: end.graph.n_entities, Axis.RELATION: end.graph.n_relations}
    parts = torch.cat(
        [dealt(heard.taken[a], totals[a], method.teachers, end.keys.own.key(0, "teachers", a)) for a in axes]
    )
    fewest = int(torch.bincount(parts, minlength=method.teachers).min())
    if fewest < LEAST:
        heard.refused = f"a teacher has {fewest} of {count} aligned rows, at least {LEAST} are needed"
    elif not end.spend(count):
        heard.refused = "the budget of votes is spent"
    yield Parcel(note={"go": not heard.refused, "why": heard.refused})
    if heard.refused:
        return False
    seeds = (
        end.keys.own.generator(number, "discriminators", heard.session),
        end.keys.noise.noise(number, "votes", heard.session),
    )
    half, best = HostHalf(method.game, own, parts, method.votes, seeds), -np.inf
    for turn in range(method.passes):
        for start, stop in (batches := _batches(count, method.batch)):
            parcel = yield None
            rows = _rows(parcel, "rows", stop - start, own.shape[1])
            with one_thread():
                gradient = half.answer(rows)
            if (start, stop) != batches[-1]:
                yield Parcel({"gradient": gradient})
        heard.votes += count
        heard.real.append(half.reset())
        more = turn + 1 < method.passes and not _settled(heard.real, method.tolerance) and end.spend(count)
        note: dict[str, Any] = {"more": more}
        if method.choose == "csls":  # the host looks at what the generator makes of all rows
            yield Parcel({"gradient": gradient}, {"show": True})
            shown = _rows((yield None), "rows", count, own.shape[1])
            score = csls(shown, own)
            note["best"] = score > best
            best = max(best, score)
            yield Parcel(note=note)
        else:
            yield Parcel({"gradient": gradient}, note)
        if not more:
            break
    heard.gaps.update(half.gaps)
    return True


def _settled(real: Sequence[float], tolerance: float) -> bool:
    """Whether a pass has changed the share of "real" labels by less; it is made of noisy labels only."""
    return tolerance > 0 and len(real) > 1 and abs(real[-1] - real[-2]) < tolerance


def client(
    end: End, heard: Heard, groups: Sequence[tuple[Axis, ...]], widths: Mapping[Axis, int]
) -> Hops[None]:
    """Translate rows into the host's space, and send them."""
    method = end.method
    random = end.keys.own.generator(0, "client", heard.session)
    blurred = _Blur(end, heard.session)
    for axes in groups:
        own = torch.cat([blurred(axis, heard.taken[axis]) for axis in axes])
        width = widths[axes[0]]
        if method.translate == "ppat":
            learning = ClientHalf(method.game, width, own.shape[1], random, method.orthogonal)
            if not (yield from _learn(end, learning, own, random)):
                return
            w = learning.w
        elif method.translate == "none":
            w = torch.eye(width)
        else:
            square = method.translate == "procrustes"
            w = random_orthogonal(own.shape[1] if square else width, own.shape[1], random)
        body = {"rows": own @ w.T}
        if method.virtual and Axis.ENTITY in axes:
            both = heard.taken[Axis.ENTITY], heard.aligned[Axis.ENTITY]
            loan = lent(end.graph, *both, method, random, end.withheld.get(Axis.ENTITY, ()))
            made = {Axis.ENTITY: blurred(Axis.ENTITY, loan.entities) @ w.T}
            if end.one_fits_both(widths):
                made[Axis.RELATION] = blurred(Axis.RELATION, loan.relations) @ w.T
            body |= loan.body(made)
        yield Parcel(body)


def _learn(end: End, client: ClientHalf, own: Tensor, random: np.random.Generator) -> Hops[bool]:
    """PPAT at the client: rows out, gradients in, in an order that the host does not know."""
    first = yield None
    if first.note.get("go") is not True:
        return False
    best = client.w.clone()
    for _ in range(end.method.passes):
        order = torch.from_numpy(random.permutation(len(own)))
        note: Mapping[str, Any] = {}
        for start, stop in _batches(len(own), end.method.batch):
            rows = own[order[start:stop]]
            yield Parcel({"rows": client.generate(rows)})
            answer = yield None
            with one_thread():
                client.learn(rows, _rows(answer, "gradient", len(rows), client.w.shape[0]))
            note = answer.note
        if note.get("show") is True:
            yield Parcel({"rows": client.generate(own)})
            note = (yield None).note
        if note.get("best", True) is True:
            best = client.w.clone()
        if not bool(torch.isfinite(client.w).all()):
            raise DataError("the generator diverged; lower method.lr")
        if note.get("more") is not True:
            client.w = best
            return True
    raise DataError(f"a host that asks for more than {end.method.passes} passes")


class _Blur:
    """A client's vectors, cut and with noise where it asks for that: drawn once per row and conversation."""

    def __init__(self, end: End, session: str) -> None:
        self.end, self.session = end, session
        self.tables: dict[Axis, Tensor] = {}

    def __call__(self, axis: Axis, rows: Tensor) -> Tensor:
        method, tables = self.end.method, self.end.tables
        if method.clip is None:
            return vectors(tables, axis, rows)
        if axis not in self.tables:
            every = vectors(tables, axis, torch.arange(len(tables.table(axis))))
            every *= (method.clip / every.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp_max(1)
            if method.noise:
                random = self.end.keys.noise.noise(0, "rows", axis, self.session)
                every += torch.from_numpy(
                    random.normal(0.0, 2 * method.clip * method.noise, tuple(every.shape))
                ).float()
            self.tables[axis] = every
        return self.tables[axis][rows]


def _rows(parcel: Parcel, name: str, count: int, width: int) -> Tensor:
    """Rows that came; of another shape, not finite or too large they are a `DataError`."""
    found = parcel.body.get(name)
    if found is None or found.dtype != torch.float32 or found.ndim != 2 or len(found) != count:
        shape = None if found is None else (str(found.dtype), list(found.shape))
        raise DataError(f"{name}: {shape}, expected {count} rows of float32")
    if found.shape[1] != width:
        raise DataError(f"{name}: rows of {found.shape[1]} numbers, expected {width}")
    if not bool((found.abs() <= LONGEST).all()):
        raise DataError(f"{name}: expected finite numbers within {LONGEST:g}")
    return found
