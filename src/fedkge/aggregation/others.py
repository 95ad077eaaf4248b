"""Rounds in which only some rows travel: a site is told the aggregate over the others that sent a row."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedkge.aggregation.base import Aggregation
from fedkge.aggregation.bounded import limited
from fedkge.aggregation.mean import summed
from fedkge.exchange.rows import Memory, Rows, under


def gathered(rule: Aggregation, rows: Mapping[str, Rows], size: int) -> tuple[Tensor, Tensor, Memory]:
    """What `rule.combined` returns, and what `of_others` needs of the round, as named tensors."""
    longest = rule.longest(rows)
    round = {"longest": torch.tensor(longest, dtype=torch.float64)}
    if rule.averages:  # a site's own rows can be taken out of the sums
        rows = limited(rows, longest)
        total, owners = summed(rows, size)
        round |= {"total": total, "owners": owners}
        aggregate = total / owners.clamp_min(1)[:, None]
    else:
        aggregate, owners = rule.combined(rows, size, longest)
    for site, sent in rows.items():
        round |= {f"ids.{site}": sent.ids, f"values.{site}": sent.values}
    return aggregate, owners, round


def of_others(rule: Aggregation, round: Memory, site: str, ids: Tensor, size: int) -> Rows:
    """Of the rows `ids`, those that others than the site sent: their aggregate, and how many did."""
    sent = {other: Rows(of, round[f"values.{other}"]) for other, of in under("ids", round).items()}
    if "total" in round:
        aggregate, owners = round["total"][ids], round["owners"][ids]
        if site in sent:
            at = torch.searchsorted(ids, sent[site].ids)
            aggregate[at] -= sent[site].values
            owners[at] -= 1
        aggregate /= owners.clamp_min(1)[:, None]
    else:
        mine = torch.zeros(size, dtype=torch.bool, device=ids.device).index_fill_(0, ids, True)
        others = {other: of[mine[of.ids] & (other != site)] for other, of in sent.items()}
        aggregate, owners = (of[ids] for of in rule.combined(others, size, float(round["longest"])))
    told = (owners > 0).nonzero()[:, 0]
    return Rows(ids[told], aggregate[told], owners[told].to(torch.int64))
