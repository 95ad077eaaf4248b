"""What every backend computes on: the four similarities, and a table's gradient before it is summed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor


class Similarity(IntEnum):
    """How a query compares with a candidate row; higher is more alike, and every one is symmetric."""

    L1 = 0  #: -sum |q - e|
    L2 = 1  #: -sqrt(sum (q - e)^2)
    MODULUS = 2  #: -sum |q - e| over complex numbers; rows are [real half | imaginary half]
    DOT = 3  #: sum q e


@dataclass(frozen=True, slots=True)
class Tie:
    """What a penalty adds to the gradient of every row of a table beside which another one is kept.

    Row x gets factors[x, 0] * (x - kept) + factors[x, 1] * x + factors[x, 2] * kept: all that a function of
    |x - kept|^2, |x|^2 and x . kept can.
    """

    kept: Tensor  # [e, w]
    factors: Tensor  # [e, 3]


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one backward pass adds to a table's gradient, as factors: nothing of size [b, n, width].

    The gradient of row x is the sum of d similarity(query[i], x) * d_scores[i, j] over all (i, j) with
    index[i, j] = x, plus the sum of values[k] over all k with ids[k] = x, plus what ties it.
    """

    kind: Similarity
    query: Tensor  # [b, w]
    index: Tensor  # int64 [b, n]
    scores: Tensor  # [b, n], the similarities
    d_scores: Tensor  # [b, n]
    ids: Tensor  # int64 [m]
    values: Tensor  # [m, w]
    tie: Tie | None = None


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam's constants (Kingma & Ba, 2015)."""

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


ADAGRAD_EPSILON = 1e-10  #: as torch.optim.Adagrad


@dataclass(frozen=True, slots=True)
class Pace:
    """Which of the stacked sites take a step now; site s owns the rows from ends[s - 1] to ends[s] - 1."""

    ends: Tensor  # int64 [s]
    steps: Tensor  # int64 [s], how many steps each site has taken, with this one
    active: Tensor  # bool [s]


@dataclass(frozen=True, slots=True)
class Draw:
    """Where a batch's negatives come from: per site `s` entities first[s] .. first[s] + size[s] - 1.

    Row i of a batch belongs to `site[i]` and stands at `position[i]` of that site's own batch, so that
    what it draws does not depend on which sites train beside it. known[lo[i]:hi[i]] holds the answers
    to leave out: for the j-th smallest answer, its id minus first[s] minus j. lo = hi leaves out none.
    """

    keys: Tensor  # uint64 as int64 [s]
    first: Tensor  # int64 [s]
    size: Tensor  # int64 [s]
    known: Tensor  # int64
    site: Tensor  # int64 [b]
    position: Tensor  # int64 [b]
    lo: Tensor  # int64 [b]
    hi: Tensor  # int64 [b]


@dataclass(frozen=True, slots=True)
class Debt:
    """Noise that steps have left to be added when a row is next read, as plain gradient descent may.

    Row x is owed `taken - given[x]` steps: -rate times scale times normal numbers, that many times in square.
    """

    key: Tensor  # uint64 as int64 [1], what the numbers are drawn by now
    scale: Tensor  # [1], of one step's noise
    rate: float
    taken: Tensor  # int64 [1], steps with noise so far
    given: Tensor  # int64 [e], of them those whose noise a row has
    moves: Tensor  # bool [w], the columns that get noise
