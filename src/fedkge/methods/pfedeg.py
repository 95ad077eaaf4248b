"""PFedEG (Zhang et al., 2024): the hub weighs rows for each site by how similar other sites are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import exp, inf
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedkge.aggregation import AGGREGATIONS, Aggregation
from fedkge.aggregation.bounded import limited
from fedkge.errors import ConfigError
from fedkge.exchange.rows import Rows, Update, under
from fedkge.graphs.graph import Axis
from fedkge.methods.base import METHODS, Kept, Method
from fedkge.methods.state import Hub, Pair, Site
from fedkge.training import BySite, Moments

TINY = 1e-12  #: keeps the norm's slope finite where nothing has moved yet; the least norm of a row
BLOCK = 1 << 11  #: rows compared at a time: few enough for a CPU's cache


@METHODS.register("pfedeg")
@dataclass(frozen=True)
class PFedEG(Method):
    """Each site starts at, and stays near, its own knowledge: `K = p mean_W + (1 - p) E`.

    At the hub, Eqs. 4-9: `mean_W` of entity e for site i is `sum_j W_ij E_j / sum_j W_ij` over the owners
    j of e, i among them. W is the affinity, each row scaled to sum 1:

    - `cosine`, the paper's PFedEG+: `sum_e exp(cos(E_i, E_j))` over what i and j have in common, `1/e` for
      i itself. As printed it is a sum, so the number of common entities counts more than similarity, and a
      site itself counts almost nothing. `cosine-mean` is the mean, which is at least `1/e`.
    - `jaccard`, PFedEG*: entities in common over entities of either; for i itself the smallest of its row.
      The hub knows how many entities each site has announced.
    - `uniform`: everyone counts the same, as in FedE.

    At the site, Eqs. 2, 3 and 10: rows start the round at K, and `beta ||E - K||` (Frobenius, over the
    whole table, not squared) is added to every step's loss, which is a mean over the batch. The site's
    own rows after training are measured.

    Deviations. The paper's hub mixes by p; here the site does, so its own part is neither coded nor old.
    If a fraction of the sites takes part (F), the others count with their last upload. The paper's hub
    also has everyone's first rows; here a site counts once it has sent rows, and with `cosine` receives
    nothing before. Rows that only one site has stay there: K is its own row, as in the paper. Rows of
    complex models are compared as the real vectors that they are stored as. If a selection sends only
    some rows, a site receives those that others sent this round, and keeps its own for the rest.
    """

    averages: ClassVar[bool] = True
    affinity: Literal["cosine", "cosine-mean", "jaccard", "uniform"] = "cosine"  #: how sites are weighed
    p: float = 0.7  #: weight of the hub's mean in a site's knowledge; 0: only the site's own rows
    beta: float = 0.003  #: strength of the pull towards the knowledge; 0: none, the paper's _Init
    initialise: bool = True  #: rounds start at the knowledge; false: at the site's own rows, the paper's _Reg
    restart: bool = True  #: starts every round with a new optimizer, as FedE does; the paper does not say

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ConfigError(f"p: expected a number from 0 to 1, got {self.p}")
        if not 0 <= self.beta < inf:
            raise ConfigError(f"beta: expected a finite number of at least 0, got {self.beta}")

    @property
    def shares(self) -> tuple[Axis, ...]:
        return (Axis.ENTITY,)

    def combining(self, given: Aggregation) -> Aggregation:
        if not given.averages:
            known = ", ".join(name for name in AGGREGATIONS if AGGREGATIONS[name].averages)
            raise ConfigError(
                f"aggregate.name: pfedeg weighs rows by a rule of its own; expected one of {known}, "
                f"got {AGGREGATIONS.name_of(given)}"
            )
        return given

    # At a site

    def adopt(self, site: Site, answer: Update) -> None:
        known = {
            axis: Rows(rows.ids, site.read(axis).take(rows.ids).values.lerp(rows.values, self.p))
            for axis, rows in answer.items()
        }
        site.kept[Axis.ENTITY]["knowledge"].copy_(site.overlay(known).entities)
        if self.initialise:
            site.write(known)

    def kept(self) -> Kept:
        return Kept("knowledge", self.penalty if self.beta else None)

    def penalty(self, moments: Moments, by_site: BySite) -> Tensor:
        return self.beta * (by_site.sum(moments.gap) + TINY).sqrt()

    # At the hub, which keeps the last row that each site sent of each entity

    def aggregate(self, hub: Hub, uploads: Mapping[str, Update]) -> None:
        sent = {site: update[Axis.ENTITY] for site, update in uploads.items() if Axis.ENTITY in update}
        for site, rows in limited(sent, hub.aggregation.longest(sent)).items():
            at = hub.take_in(site, Axis.ENTITY, rows)
            if hub.sparse:
                hub.fresh[f"sent.{site}"] = at
        self._weights(hub)

    def _weights(self, hub: Hub) -> Tensor:
        """W [s, s], sites in the order of their names; who has not sent rows yet has no weight."""
        if "affinity" not in hub.fresh:
            held = hub.last(Axis.ENTITY)
            heard = torch.tensor([site in held for site in sorted(hub.ids)])
            hub.fresh["affinity"] = normalised(AFFINITIES[self.affinity](hub) * heard)
        return hub.fresh["affinity"]

    def answer(self, hub: Hub, site: str) -> Update:
        """`mean_W` of the rows that others have sent; if only some came, of those, and how many sent them."""
        held, sent = hub.last(Axis.ENTITY), under("sent", hub.fresh)
        if not held:
            return {}
        ids, (like, _) = hub.ids[site][Axis.ENTITY], next(iter(held.values()))
        total, mass = like.new_zeros(len(ids), like.shape[1]), like.new_zeros(len(ids))
        others = torch.zeros_like(ids)  # that have news of the row
        weights = self._weights(hub)[sorted(hub.ids).index(site)].tolist()
        for weight, (other, at) in zip(weights, places(hub, site), strict=True):
            if weight == 0 or other not in held:
                continue
            there, (values, known) = at.clamp_min(0), held[other]
            has = (at >= 0) & known[there]
            share = has * weight
            total.addcmul_(share[:, None], values.index_select(0, there))
            mass += share
            if other != site and (other in sent or not sent):
                others += has & sent[other][there] if sent else has
        told = (others > 0).nonzero()[:, 0]
        mean = total[told] / mass[told, None]
        return {Axis.ENTITY: Rows(ids[told], mean, others[told] if sent else None)}

    def own_part(self, hub: Hub, pair: Pair) -> Tensor:
        """`W_ii / (W_ii + W_ij)`; none where the hub does not have the site's own row yet.

        With `uniform` and `jaccard` a site can compute it, from numbers of entities. With `cosine` it is next
        to nothing, where sites have more than a few entities in common.
        """
        sites = sorted(hub.ids)
        weights = self._weights(hub)[sites.index(pair.site)]
        own, other = (
            (rounds > 0) * weights[sites.index(site)]
            for site, rounds in ((pair.site, pair.own), (pair.other, pair.others))
        )
        return own / (own + other)

    def notes(self, hub: Hub) -> Mapping[str, Tensor]:
        return {name: hub.fresh[name] for name in ("affinity",) if name in hub.fresh}


# Affinities: raw weights [s, s] in float64, sites in the order of their names


def places(hub: Hub, site: str) -> Iterator[tuple[str, Tensor]]:
    """By site, itself included: where [n] it holds the rows that a site announced; -1: it does not."""
    for other in sorted(hub.ids):
        theirs = hub.ids[other][Axis.ENTITY]
        place = theirs.new_full((hub.sizes[Axis.ENTITY],), -1)
        place[theirs] = torch.arange(len(theirs), device=theirs.device)
        yield other, place[hub.ids[site][Axis.ENTITY]]


def _between(hub: Hub, alike: Callable[[str, Tensor, str, Tensor], Tensor]) -> Tensor:
    """A weight for every two sites, by where they hold what they have in common; 0 of one with itself."""
    sites = sorted(hub.ids)
    found = torch.zeros(len(sites), len(sites), dtype=torch.float64)
    below = []  # in the order of tril_indices
    for i, site in enumerate(sites):
        for other, at in islice(places(hub, site), i):
            here = (at >= 0).nonzero()[:, 0]
            below.append(alike(site, here, other, at[here]))
    if below:
        i, j = torch.tril_indices(len(sites), len(sites), -1)
        found[i, j] = found[j, i] = torch.stack(below).cpu()
    return found


def jaccard(hub: Hub) -> Tensor:
    """PFedEG*, Eq. 4: entities in common over entities of either; of a site with itself the row's least."""

    def alike(site: str, here: Tensor, other: str, there: Tensor) -> Tensor:
        either = hub.totals[site][Axis.ENTITY] + hub.totals[other][Axis.ENTITY] - len(here)
        return torch.tensor(len(here) / either, dtype=torch.float64)

    found = _between(hub, alike)
    least = found.clone().fill_diagonal_(inf).amin(1)
    return found + least.nan_to_num(posinf=1.0).diag()  # who is alone has itself


def cosine(hub: Hub, mean: bool) -> Tensor:
    """PFedEG+, Eq. 5: `exp(cos)` of the rows in common, summed or averaged; of a site with itself `1/e`."""

    def alike(site: str, here: Tensor, other: str, there: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=here.device)
        if not {site, other} <= held.keys():
            return total
        (own, known), (theirs, known_there) = held[site], held[other]
        both = known[here] & known_there[there]
        for i, j, counts in zip(here.split(BLOCK), there.split(BLOCK), both.split(BLOCK), strict=True):
            dot = (own.index_select(0, i) * theirs.index_select(0, j)).sum(-1)
            total += (dot / (norm[site][i] * norm[other][j])).double().exp() @ counts.double()
        return total / both.sum().clamp_min(1) if mean else total

    held = hub.last(Axis.ENTITY)
    norm = {site: rows.norm(dim=-1).clamp_min(TINY) for site, (rows, _) in held.items()}
    found = _between(hub, alike)
    return found.fill_diagonal_(exp(-1))


def uniform(hub: Hub) -> Tensor:
    """Everyone counts the same."""
    return torch.ones(len(hub.ids), len(hub.ids), dtype=torch.float64)


def normalised(weights: Tensor) -> Tensor:
    """Eq. 6: rows that sum to 1; a site that is like nobody hears itself."""
    total = weights.sum(1, keepdim=True)
    return torch.where(total > 0, weights / total, torch.eye(len(weights), dtype=weights.dtype))


AFFINITIES: Mapping[str, Callable[[Hub], Tensor]] = {
    "cosine": partial(cosine, mean=False),
    "cosine-mean": partial(cosine, mean=True),
    "jaccard": jaccard,
    "uniform": uniform,
}
