"""How often confidential triples are visited: public numbers, which an accountant can rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fedkge.privacy import Privacy, Release
from fedkge.training.trainer import Trainer


@dataclass(frozen=True)
class Cadence:
    """Steps on confidential triples in an epoch, and the share of units that a step is on."""

    rate: float
    steps: int
    expected: float  #: units of a batch, in the mean

    @classmethod
    def of(cls, trainer: Trainer, privacy: Privacy, units: int) -> Cadence:
        """An epoch visits every unit (triple or person) about once per side: by Poisson samples in the mean.

        By the paper's rules the last batch of a pass, which is not full, is left out, as its ε is counted.
        """
        size = min(privacy.batch_size or trainer.batch_size, units)
        batches = units // size if privacy.rules == "paper" else round(units / size)
        return cls(size / units, batches * trainer.visits, float(size))

    def release(self, privacy: Privacy, noise: float, count: int) -> Release:
        return privacy.release(noise, self.rate, count)


def interleaved(unrestricted: int, confidential: int, coin: Callable[[], bool]) -> Iterator[bool]:
    """The order of an epoch's batches, whether each is confidential (DPKGE, Algorithm 1, lines 4 to 9).

    A confidential batch is due when `m_U / m_C > U / C`, an unrestricted one when it is less; when neither
    is, the coin decides. It ends with all of both.
    """
    m_u = m_c = 0
    for _ in range(unrestricted + confidential):
        ahead = m_u * confidential - m_c * unrestricted
        closed = coin() if ahead == 0 and unrestricted and confidential else ahead > 0 or not unrestricted
        m_u, m_c = m_u + (not closed), m_c + closed
        yield closed
