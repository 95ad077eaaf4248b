"""Plain values beside rows, read as hostile input: questions, metrics, and what a site says when it joins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite, nan
from reprlib import repr as brief
from typing import Any, TypeAlias

from torch import Tensor

from fedkge import __version__
from fedkge.errors import DataError
from fedkge.evaluation import combined
from fedkge.evaluation.metrics import NAMES
from fedkge.exchange.announce import Id, announced
from fedkge.exchange.rows import Message, Update
from fedkge.graphs.graph import Axis
from fedkge.methods import Hub, Method
from fedkge.models.tables import LONGEST
from fedkge.training.stopping import OWN

Measured: TypeAlias = Mapping[str, Mapping[str, float]]  #: whose triples -> metric -> value
MOST = 1 << 53  #: the largest whole number that a note may hold
LONGEST_WHY = 400  #: characters that a refusal takes to say why


class Refusal(Exception):  # noqa: N818 - reads as what it says
    """A message that is not heeded; nothing has changed."""


class Declined(Refusal):
    """A question that the site's own policy forbids to answer. The hub is told why."""


@contextmanager
def reading() -> Iterator[None]:
    """Whatever is wrong with what somebody sent is a refusal. Nothing may be changed in here."""
    try:
        yield
    except DataError as error:
        raise Refusal(fit_to_show(str(error))) from None  # it may quote what was sent
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
    ) as error:
        raise Refusal(f"cannot be read: {type(error).__name__}: {fit_to_show(str(error)[:200])}") from None


@dataclass(frozen=True, slots=True)
class Question:
    """What the hub says with its question, besides rows."""

    taken: int | None = (
        None  #: the round of an upload that was used; below zero: that was not; None: not said
    )
    best: Mapping[str, int] = field(default_factory=dict)  #: view -> the round whose measurement is the best
    held: bool = False  #: the answer that came to be measured still holds
    dials: Mapping[str, float] = field(default_factory=dict)
    update: Update = field(default_factory=dict)


def question(message: Message, dials: Collection[str], views: Collection[str]) -> Question:
    """The note of a question or of the end; `dials` are set when a site is asked to train."""
    note = _only(message.note, "taken", "best", "held", "dials")
    taken, best, held, told = (note.get(name) for name in ("taken", "best", "held", "dials"))
    if taken is not None and (type(taken) is not int or abs(taken) > MOST):
        raise DataError(f"taken: {brief(taken)}, expected a whole number")
    known = {OWN, *views}
    best = {} if best is None else best
    if not isinstance(best, Mapping) or not best.keys() <= known:
        raise DataError(f"best: {brief(best)}, expected the rounds of some of {sorted(known)}")
    if held is not None and held is not True:
        raise DataError(f"held: {brief(held)}, expected true, or nothing")
    expected = set(dials) if message.kind == "train" else set()
    told = {} if told is None else told
    if not isinstance(told, Mapping) or told.keys() != expected:
        raise DataError(f"dials: {brief(told)}, expected {sorted(expected) or 'none'}; another method?")
    return Question(
        taken,
        {view: _whole(f"best.{view}", round) for view, round in best.items()},
        held is True,
        {name: _number(f"dials.{name}", of, LONGEST) for name, of in told.items()},
    )


def same_release(found: Any) -> None:
    """Who begins to talk says which fedkge it runs. Another one is a `DataError`, whatever else it says."""
    if found != __version__:
        raise DataError(
            f"runs fedkge {brief(found)}, here is {__version__!r}; expected the same version at both ends"
        )


def version_of(message: Message, axes: Sequence[Axis], pseudonyms: bool) -> tuple[int, dict[Axis, int]]:
    """Which of its announcements a site is told about, and how many of its rows one other site has too.

    The second is told where ids are pseudonyms: then no one place could count them for the site.
    """
    same_release(message.note.get("fedkge"))
    note = _only(message.note, "fedkge", "version", *(("by_two",) if pseudonyms else ()))
    found = note.get("by_two", {} if not pseudonyms else None)
    if not isinstance(found, Mapping) or found.keys() != ({str(a) for a in axes} if pseudonyms else set()):
        raise DataError(f"by_two: {brief(found)}, expected a number of rows for {', '.join(axes)}")
    return _whole("version", note.get("version")), {
        Axis(a): _whole(f"by_two.{a}", n) for a, n in found.items()
    }


def refusal(message: Message) -> str:
    """Why the other end does not take part, in its own words, fit to be shown."""
    why = _only(message.note, "why").get("why")
    if not isinstance(why, str) or not why or message.body:
        raise DataError(f"refuses for {brief(why)}, expected a reason in words, and no rows")
    return fit_to_show(why)


def fit_to_show(text: str) -> str:
    """Words of somebody else, for journals and screens: not too long, and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:LONGEST_WHY])


@dataclass(frozen=True, slots=True)
class Joining:
    """What a site says when it joins."""

    version: int
    ids: Mapping[Axis, tuple[Id, ...]]
    queries: Mapping[str, int]  #: validation questions, by whose triples
    allows: int | None  #: how many more rounds its privacy budget has steps for
    fingerprint: str | None = None  #: of the secret that ids are pseudonyms under; None: ids are names
    moved: Mapping[Axis, Tensor] = field(default_factory=dict)  #: how far it has moved its rows, to unlearn


def joining(
    message: Message, axes: Sequence[Axis], pooled: bool, pseudonyms: bool, most: int | None = None
) -> Joining:
    """`pooled`: one party measures for several sites. `most`: rows of an axis that it may announce."""
    same_release(message.note.get("fedkge"))
    note = _only(message.note, "fedkge", "version", "queries", "allows", "fingerprint")
    secret = note.get("fingerprint")
    if (secret is not None) != pseudonyms:
        expected = "pseudonyms: give the site the secret of all sites" if pseudonyms else "names, no secret"
        raise DataError(f"announces {'names' if pseudonyms else 'pseudonyms'}, expected {expected}")
    if pseudonyms and not (isinstance(secret, str) and re.fullmatch("[0-9a-f]{16}", secret)):
        raise DataError(f"fingerprint: {brief(secret)}, expected 16 hexadecimal digits")
    if message.round:
        raise DataError(f"joins in round {message.round}, expected 0")
    queries = note.get("queries")
    if not isinstance(queries, Mapping) or not queries or not (pooled or queries.keys() == {message.sender}):
        raise DataError(
            f"queries: {brief(queries)}, expected a number of validation questions for {message.sender!r}"
        )
    counts = {site: _whole(f"queries.{site[:40]}", count) for site, count in queries.items()}
    allows = None if note.get("allows") is None else _whole("allows", note["allows"])
    ids = announced(message.body, axes, pseudonyms, most)
    return Joining(_whole("version", note.get("version")), ids, counts, allows, secret)


def allowed(message: Message) -> int | None:
    """How many more rounds the sender of an upload has a privacy budget for, where it says so."""
    note = _only(message.note, "allows")
    return None if note.get("allows") is None else _whole("allows", note["allows"])


def measured(
    message: Message, queries: Mapping[str, int], views: Collection[str]
) -> tuple[Measured, dict[str, Measured]]:
    """A site's metrics, and those of each view that is validated too."""
    if message.body:
        raise DataError("metrics with rows, expected none")
    note = _only(message.note, "metrics", "views")
    beside = note.get("views", {})
    if not isinstance(beside, Mapping) or beside.keys() != set(views):
        raise DataError(f"views: {brief(beside)}, expected {sorted(views) or 'none'}")
    return _by_site(note.get("metrics"), queries), {
        view: _by_site(of, queries) for view, of in beside.items()
    }


def _by_site(found: Any, queries: Mapping[str, int]) -> Measured:
    if not isinstance(found, Mapping) or found.keys() != queries.keys():
        raise DataError(f"metrics: {brief(found)}, expected those of {', '.join(queries)}")
    return {site: _metrics(of, queries[site]) for site, of in found.items()}


def _metrics(found: Any, queries: int) -> dict[str, float]:
    """Finite, in their ranges, and over as many questions as were announced."""
    if not isinstance(found, Mapping) or type(found.get("count")) is not int or found["count"] != queries:
        raise DataError(f"metrics: {brief(found)}, expected a count of {queries}, as announced")
    if queries == 0 and found.keys() == {"count"}:
        return {**dict.fromkeys(NAMES, nan), "count": 0}
    if found.keys() != {*NAMES, "count"}:
        raise DataError(f"metrics: {sorted(map(str, found))[:10]}, expected {', '.join(NAMES)} and count")
    values = {name: _number(name, found[name]) for name in NAMES}
    for name, value in values.items():
        if not (value >= 1 if name == "mr" else 0 <= value <= 1):
            raise DataError(
                f"{name}: {value:g}, expected {'at least 1' if name == 'mr' else 'a number from 0 to 1'}"
            )
    return {**values, "count": queries}


def _only(note: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    if not note.keys() <= set(names):
        raise DataError(f"a note of {brief(sorted(note))}, expected at most {', '.join(names)}")
    return note


def _whole(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST:
        raise DataError(f"{name}: {brief(value)}, expected a whole number of at least 0")
    return int(value)


def _number(name: str, value: Any, most: float = 1e300) -> float:
    if type(value) not in (int, float) or abs(value) > most or not isfinite(value):
        raise DataError(f"{name}: {brief(value)}, expected a finite number within {most:g}")
    return float(value)


# What the hub makes of them


def mrr_of(metrics: Mapping[str, Measured], sites: Iterable[str]) -> float:
    """Over all queries of these sites."""
    return combined(m for site in sites for m in metrics[site].values())["mrr"]


def dialled(method: Method, hub: Hub, sites: Sequence[str]) -> dict[str, Any]:
    """What sites are told from now on: a number by dial, or where theirs are not alike, one by site."""
    dials = method.dials()
    if dials is None:
        return {}
    told = {site: dials.told(hub, site) for site in sites}
    found = {name: {site: told[site][name] for site in sites} for name in dials.names}
    return {n: of if len(set(of.values())) > 1 else of[sites[0]] for n, of in found.items()}


def noted(sites: Sequence[str], notes: Mapping[str, Tensor]) -> dict[str, Any]:
    """Numbers [s, s] between sites as a journal has them, to six digits; nothing where there are none."""
    found = {
        name: {"sites": list(sites), "values": [[float(f"{v:.6g}") for v in row] for row in values.tolist()]}
        for name, values in notes.items()
    }
    return {"notes": found} if found else {}
