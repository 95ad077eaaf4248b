"""What two peers say to each other: hello, who is aligned, and a translation in each direction.

The peer that calls is the host first, then the client. Every `yield` is a hop over the network. Nothing
that comes is trusted: shapes, sizes and numbers are checked before they are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange import psi, psi_openmined
from fedkge.exchange.announce import Id, announced, announcement
from fedkge.exchange.hops import Hops, Parcel
from fedkge.graphs.graph import Axis, Graph
from fedkge.methods.fkge import FKGE
from fedkge.methods.lending import Loan, lent
from fedkge.methods.ppat import ClientHalf, HostHalf, csls, dealt, procrustes, random_orthogonal
from fedkge.models import Tables
from fedkge.models.tables import LONGEST
from fedkge.randomness import generator
from fedkge.training.loop import one_thread
from fedkge.training.secret import Secret

LEAST = 2  #: aligned rows that each teacher needs
Aligned = Mapping[Axis, Tensor]  # int64 [n]: own rows of what both have, in an order that is the same at both


@dataclass(frozen=True, slots=True)
class Keys:
    """What a peer draws from: `own` for matrices and orders, `noise` for all that privacy rests on."""

    own: Secret
    noise: Secret


@dataclass(frozen=True, slots=True)
class End:
    """A peer's part in one conversation. Tables are read, and not changed."""

    method: FKGE
    tables: Tables
    graph: Graph
    ids: Mapping[Axis, Sequence[Id]]
    keys: Keys
    nonce: str  #: new in every conversation, so that no noise is drawn twice
    aligned: Aligned | None = None  #: unset: the two find out
    spend: Callable[[int], bool] = lambda votes: True  #: records votes; false: the budget does not allow them
    release: Callable[[int], None] = lambda rows: None  #: records that rows are sent with noise
    withheld: Mapping[Axis, Collection[int]] = field(default_factory=dict)  #: rows that never leave

    def named(self, axis: Axis) -> dict[Id, int]:
        """Id -> own row, of those that the other may learn."""
        hidden = frozenset(self.withheld.get(axis, ()))
        return {one: place for place, one in enumerate(self.ids[axis]) if place not in hidden}


@dataclass(slots=True)
class Heard:
    """What a conversation has brought this end."""

    session: str = ""
    aligned: Aligned = field(default_factory=dict)
    taken: Aligned = field(default_factory=dict)  # the own rows that translations are for: those sampled
    rows: dict[Axis, Tensor] = field(default_factory=dict)  # [n, width], in the own space
    loan: Loan | None = None  #: virtual entities, relations and edges
    votes: int = 0
    real: list[float] = field(default_factory=list)  #: the share of noisy labels that said "real", by pass
    gaps: Counter[int] = field(default_factory=Counter)  #: votes by |n_0 - n_1|: private
    refused: str = ""  #: why this end was not a host


def converse(end: End, calls: bool) -> Hops[Heard]:
    """One end of a conversation; what it has heard, which counts when the other has heard everything too."""
    mine = {"nonce": end.nonce, "widths": _widths(end), "agreed": end.method.agreed}
    theirs = yield from _swap(Parcel(note={**mine, "known": end.aligned is not None}), calls)
    widths, nonce = _hello(theirs, end)
    heard = Heard("|".join((end.nonce, nonce) if calls else (nonce, end.nonce)))
    known = end.aligned is not None and bool(theirs.note.get("known"))
    aligned = (
        end.aligned if known and end.aligned is not None else (yield from _align(end, heard.session, calls))
    )
    heard.aligned = aligned
    if not any(len(rows) for rows in aligned.values()):
        return heard
    heard.taken = _sampled(end.method, aligned, heard.session)
    groups = _groups(end, widths, heard.taken)
    if not groups:
        raise DataError("nothing that both have can be translated: the models have no vectors of such rows")
    for host in (calls, not calls):
        if host:
            yield from _host(end, heard, groups, widths)
        else:
            yield from _client(end, heard, groups, widths)
    return heard


def _swap(parcel: Parcel, calls: bool) -> Hops[Parcel]:
    """Both say something; the caller first."""
    if calls:
        yield parcel
        return (yield None)
    theirs = yield None
    yield parcel
    return theirs


def _widths(end: End) -> dict[str, int]:
    return {str(axis): end.tables.model.spatial(axis) for axis in Axis}


def _one_fits_both(end: End, widths: Mapping[Axis, int]) -> bool:
    """Whether a W for entities can translate relations too."""
    spatial = end.tables.model.spatial
    return spatial(Axis.ENTITY) == spatial(Axis.RELATION) and widths[Axis.ENTITY] == widths[Axis.RELATION]


def _hello(parcel: Parcel, end: End) -> tuple[dict[Axis, int], str]:
    """The other's widths, and its nonce."""
    note = parcel.note
    agreed, widths, nonce = note.get("agreed"), note.get("widths"), note.get("nonce")
    if agreed != end.method.agreed:
        raise DataError(f"agreed: {str(agreed)[:200]}, expected {end.method.agreed}")
    if not isinstance(nonce, str) or not 8 <= len(nonce) <= 64:
        raise DataError("nonce: expected a text of 8 to 64 characters")
    if not isinstance(widths, dict) or widths.keys() != _widths(end).keys():
        raise DataError(f"widths: {str(widths)[:80]}, expected one for each of {', '.join(_widths(end))}")
    if not all(type(width) is int and 0 <= width <= 1 << 16 for width in widths.values()):
        raise DataError(f"widths: {widths}, expected whole numbers of at most 65,536")
    if end.method.translate == "none" and widths != _widths(end):
        raise DataError(f"widths: {widths}, while {_widths(end)} here: rows cannot be taken as they are")
    return {Axis(axis): width for axis, width in widths.items()}, nonce


# Who is aligned


def _align(end: End, session: str, calls: bool) -> Hops[Aligned]:
    """Ids that both have, by telling them, or by private set intersection on normal names."""
    axes = end.method.axes
    if end.method.intersect != "ids":
        meet = psi.intersect if end.method.intersect == "psi" else psi_openmined.intersect
        found: dict[Axis, Tensor] = {}
        for axis in axes:
            rows = end.named(axis)
            own_rows = list(rows.values())
            places = psi.by_normal_name(one.decode(errors="replace") for one in rows)
            salt = f"{session} {axis}".encode()
            common = yield from meet(places, salt, calls, end.method.limit)
            found[axis] = torch.tensor([own_rows[places[name]] for name in common], dtype=torch.int64)
        return found
    own = {axis: end.named(axis) for axis in axes}
    theirs = yield from _swap(Parcel(announcement({axis: sorted(ids) for axis, ids in own.items()})), calls)
    there = announced(theirs.body, axes)
    if any(len(ids) > end.method.limit for ids in there.values()):
        raise DataError(f"more than {end.method.limit:,} ids, which is the limit here")
    return {
        axis: torch.tensor([own[axis][one] for one in there[axis] if one in own[axis]], dtype=torch.int64)
        for axis in axes
    }


def _sampled(method: FKGE, aligned: Aligned, session: str) -> dict[Axis, Tensor]:
    """Some of the aligned entities, the same at both ends; all relations."""
    taken = dict(aligned)
    if Axis.ENTITY in taken and method.sample < 1:
        count = len(taken[Axis.ENTITY])
        keep = generator(0, "sample", session).permutation(count)[: max(1, round(method.sample * count))]
        taken[Axis.ENTITY] = taken[Axis.ENTITY][torch.from_numpy(np.sort(keep))]
    return taken


def _groups(end: End, widths: Mapping[Axis, int], taken: Aligned) -> list[tuple[Axis, ...]]:
    """Axes that one W translates: both where widths are equal at each end, else one each."""
    axes = [
        axis
        for axis in end.method.axes
        if len(taken[axis]) and end.tables.model.spatial(axis) and widths[axis]
    ]
    if len(axes) == 2 and _one_fits_both(end, widths):
        return [tuple(axes)]
    return [(axis,) for axis in axes]


# A translation


def vectors(tables: Tables, axis: Axis, rows: Tensor) -> Tensor:
    """The vectors of some rows, on the CPU: [n, width]."""
    return tables.table(axis)[rows.to(tables.device), : tables.model.spatial(axis)].detach().cpu().clone()


def _batches(count: int, size: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, count, size), count]))


def _host(
    end: End, heard: Heard, groups: Sequence[tuple[Axis, ...]], widths: Mapping[Axis, int]
) -> Hops[None]:
    """Teach a generator, and receive what it has made of the client's rows."""
    method, width = end.method, {axis: end.tables.model.spatial(axis) for axis in end.method.axes}
    for number, axes in enumerate(groups):
        own = torch.cat([vectors(end.tables, axis, heard.taken[axis]) for axis in axes])
        if method.translate == "ppat" and not (yield from _teach(end, heard, axes, own, number)):
            return
        parcel = yield None
        lengths = [len(heard.taken[axis]) for axis in axes]
        rows = _rows(
            parcel, "rows", sum(lengths), width[axes[0]] if method.translate != "procrustes" else None
        )
        turn = procrustes(rows, own) if method.translate == "procrustes" else None
        made = rows if turn is None else rows @ turn.T
        heard.rows |= dict(zip(axes, made.split(lengths), strict=True))
        if method.virtual and Axis.ENTITY in axes:
            heard.loan = Loan.read(
                parcel.body,
                len(heard.taken[Axis.ENTITY]),
                rows.shape[1],
                rows.shape[1] if _one_fits_both(end, widths) else 0,
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
        end.keys.noise.generator(number, "votes", heard.session),
    )
    host, best = HostHalf(method.game, own, parts, method.votes, seeds), -np.inf
    for turn in range(method.passes):
        for start, stop in (batches := _batches(count, method.batch)):
            parcel = yield None
            rows = _rows(parcel, "rows", stop - start, own.shape[1])
            with one_thread():
                gradient = host.answer(rows)
            if (start, stop) != batches[-1]:
                yield Parcel({"gradient": gradient})
        heard.votes += count
        heard.real.append(host.reset())
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
    heard.gaps.update(host.gaps)
    return True


def _settled(real: Sequence[float], tolerance: float) -> bool:
    """Whether a pass has changed the share of "real" labels by less; it is made of noisy labels only."""
    return tolerance > 0 and len(real) > 1 and abs(real[-1] - real[-2]) < tolerance


def _client(
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
            client = ClientHalf(method.game, width, own.shape[1], random, method.orthogonal)
            if not (yield from _learn(end, client, own, random)):
                return
            w = client.w
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
            if _one_fits_both(end, widths):
                made[Axis.RELATION] = blurred(Axis.RELATION, loan.relations) @ w.T
            body |= loan.body(made)
        yield Parcel(body)


def _learn(end: End, client: ClientHalf, own: Tensor, random: np.random.Generator) -> Hops[bool]:
    """PPAT at the client: rows out, gradients in, in an order that the host does not know."""
    first = yield None
    if first.note.get("go") is not True:
        return False
    best = client.w.clone()
    for _ in range(1 << 20):
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
    raise DataError("a host that never ends PPAT")


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
                if not self.tables:
                    self.end.release(len(every))
                random = self.end.keys.noise.generator(0, "rows", axis, self.session)
                every += torch.from_numpy(
                    random.normal(0, 2 * method.clip * method.noise, every.shape)
                ).float()
            self.tables[axis] = every
        return self.tables[axis][rows]


def _rows(parcel: Parcel, name: str, count: int, width: int | None) -> Tensor:
    """Rows that came; of another shape, not finite or too large they are a `DataError`."""
    found = parcel.body.get(name)
    if found is None or found.dtype != torch.float32 or found.ndim != 2 or len(found) != count:
        shape = None if found is None else (str(found.dtype), list(found.shape))
        raise DataError(f"{name}: {shape}, expected {count} rows of float32")
    if width is not None and found.shape[1] != width:
        raise DataError(f"{name}: rows of {found.shape[1]} numbers, expected {width}")
    if not bool((found.abs() <= LONGEST).all()):
        raise DataError(f"{name}: expected finite numbers within {LONGEST:g}")
    return found
