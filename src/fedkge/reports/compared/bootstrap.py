"""A paired bootstrap: how far a mean difference would move with other questions of the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import DataError
from fedkge.randomness import generator
from fedkge.reports.compared.baseline import Difference

Values: TypeAlias = NDArray[np.float64]
RESAMPLES = 1000
LEVEL = 0.95
AT_A_TIME = 1 << 20  #: questions drawn at once: a few megabytes


def paired(new: Values, old: Values, seed: int = 0, resamples: int = RESAMPLES) -> Difference:
    """The mean of `new - old` [q] over questions, and its percentile interval over draws of q questions.

    Both are of the same questions in the same order; each is drawn with its pair, so that what makes a
    question hard or easy for both does not count.
    """
    if new.shape != old.shape or not len(new):
        raise DataError(f"expected pairs of questions, got {len(new)} and {len(old)}")
    change = new - old
    random, each = generator(seed, "paired bootstrap"), max(1, AT_A_TIME // len(change))
    means = np.concatenate(
        [
            change[random.integers(0, len(change), (min(each, resamples - at), len(change)))].mean(axis=1)
            for at in range(0, resamples, each)
        ]
    )
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Difference(float(change.mean()), float(low), float(high))


def mean_of(runs: Sequence[Values]) -> Values:
    """Each question's mean over runs."""
    lengths = {len(values) for values in runs}
    if len(lengths) > 1:
        raise DataError(f"runs with {sorted(lengths)} questions; expected the same in all")
    mean: Values = np.mean(runs, axis=0)
    return mean


def reciprocal_ranks(path: Path, sides: str = "both") -> Values:
    """1 / rank of each of a site's test questions, head before tail, from the file that its run has kept."""
    ranks, _ = read_ranks(path)
    return 1 / np.concatenate([of for side, of in ranks.items() if sides in ("both", side)])


def read_ranks(path: Path) -> tuple[dict[str, Values], NDArray[np.int32] | None]:
    """By side the rank of every test triple's end, and the triples [n, 3]; earlier versions kept none."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        found = load(path.read_bytes())
        ranks = {side: found[side].astype(np.float64) for side in ("head", "tail")}
    except (SafetensorError, KeyError) as error:
        raise DataError(f"{path}: cannot be read ({error}); expected ranks, as a run writes them") from None
    if not all((of >= 1).all() for of in ranks.values()):
        raise DataError(f"{path}: a rank below 1; expected ranks, as a run writes them")
    return ranks, found.get("triples")
