"""A PyKEEN interaction for RotatE as Sun et al. (2019) define it; PyKEEN's own takes another norm."""

from __future__ import annotations

from pykeen.nn.modules import RotatEInteraction
from torch import Tensor


class RotatEByModuli(RotatEInteraction):  # type: ignore[misc]
    """`-sum_k |h_k r_k - t_k|`, where PyKEEN has `-sqrt(sum_k |h_k r_k - t_k|^2)`."""

    def forward(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return -(h * r - t).abs().sum(-1)
