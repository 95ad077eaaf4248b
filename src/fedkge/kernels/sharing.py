"""Negatives that a chunk of queries shares, in plain torch: what is left out, scores and gradients.

Part of `kernels.reference`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from fedkge.kernels.base import Draw, Laid, Shared, Similarity
from fedkge.kernels.comparing import compare


def left_out(negatives: Tensor, starts: Tensor, draw: Draw) -> Tensor:
    """Which negatives [c, n] of its chunk are known answers of a query, bool [b, n].

    None where a query has nothing but answers: filtering is impossible.
    """
    out = torch.zeros(len(draw.site), negatives.shape[1], dtype=torch.bool, device=negatives.device)
    for chunk, (start, end) in enumerate(pairwise(starts.tolist())):
        for i in range(start, end):
            lo, hi, site = int(draw.lo[i]), int(draw.hi[i]), draw.site[i]
            if hi - lo < draw.size[site]:
                answers = draw.known[lo:hi] + torch.arange(hi - lo, device=out.device) + draw.first[site]
                out[i] = torch.isin(negatives[chunk], answers)
    return out


def scores(kind: Similarity, query: Tensor, table: Tensor, shared: Shared) -> tuple[Tensor, Laid]:
    """Similarities [b, 1 + n] of each query with its candidates, those that are left out too."""
    return compare(kind, query[:, None], table[shared.index()]), ()


def gradients(
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    shared: Shared,
    laid: Laid,
    scores: Tensor,
    d_scores: Tensor,
    each: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of the queries [b, w], and of the rows `shared.ids()` [b + c n, w].

    Those of scores are d_scores [b, 1 + n] times each [b].

    A coordinate of L1 in which query and candidate are equal has no gradient; a backend may give it either
    sign, unless all are equal.
    """
    b, c = len(query), len(shared.negatives)
    own = torch.arange(b, device=query.device)[:, None]
    n = shared.negatives.shape[1]
    places = b + shared.chunks()[:, None] * n + torch.arange(n, device=query.device)
    with torch.enable_grad():
        leaf, rows = query.detach().requires_grad_(), table[shared.ids()].detach().requires_grad_()
        found = compare(kind, leaf[:, None], rows[torch.cat((own, places), 1)])
        d_query, d_rows = torch.autograd.grad(found, (leaf, rows), d_scores * each[:, None])
    assert len(d_rows) == b + c * n
    return d_query, d_rows
