"""docs/epsilon.md: DPKGE's Figure 4, ε over epochs, by its own accountant and by those of this project.

    python benchmarks/epsilon.py

No training and no data: ε follows from the number of training triples and the paper's settings. Writes
docs/epsilon.json, the page and its pictures within a few minutes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

from epsilon_page import page, pictures
from fedkge.privacy.accountants import ACCOUNTANTS
from fedkge.privacy.releases import Everything, Gaussian, Poisson, Release, Shuffled, TouchedRows

DOCS = Path(__file__).parents[1] / "docs"
TRIPLES = {"FB15k": 483_142, "YAGO3-10": 1_079_040}  #: for training: the paper's Table 1
NOISES = {"FB15k": (0.7, 1.0, 1.3, 10.0), "YAGO3-10": (1.0,)}  #: multipliers in Tables 5 and 6
CONFIDENTIAL = {"DPKGE": 2, "FullDP": 1}  #: one of so many training triples
PERCENTILE = 20.0  #: of the private gradients' norms, that clips them
EPOCHS = 100
LAST = 99  #: epochs that the printed ε belong to
SHOWN = (1, *range(10, EPOCHS, 10), LAST, EPOCHS)  #: epochs at which every accountant is asked


class Setting(NamedTuple):
    """Training as the paper describes it: batches of √N, and as many steps as there are full batches."""

    data: str
    method: str
    noise: float

    @property
    def triples(self) -> int:
        return TRIPLES[self.data]

    @property
    def confidential(self) -> int:
        return self.triples // CONFIDENTIAL[self.method]

    @property
    def batch(self) -> int:
        return isqrt(self.triples)

    @property
    def rate(self) -> float:
        return self.batch / self.confidential

    @property
    def steps(self) -> int:
        """Confidential ones in an epoch."""
        return self.confidential // self.batch

    @property
    def delta(self) -> float:
        return 1 / self.triples

    def published(self, epochs: int) -> Release:
        """What the paper's training releases: noise on touched rows only, shuffled batches."""
        return Release(TouchedRows(self.noise, PERCENTILE), Shuffled(self.rate), epochs * self.steps)

    def assumed(self, epochs: int, noise: float) -> Release:
        """What its accountant takes that for: noise on every row, Poisson samples."""
        return Release(Gaussian(noise), Poisson(self.rate), epochs * self.steps)

    def unsampled(self, epochs: int) -> Release:
        """For a triple that is in at most one batch of an epoch: a noisy sum per epoch, and no luck."""
        return Release(Gaussian(self.noise), Everything(), epochs)

    def epsilon(self, accountant: str, release: Release) -> float:
        return ACCOUNTANTS[accountant]().epsilon([release], self.delta)


def settings() -> Iterator[Setting]:
    for data, noises in NOISES.items():
        yield from (Setting(data, method, noise) for method in CONFIDENTIAL for noise in noises)


def accounted(of: Setting) -> dict[str, Any]:
    """ε of one setting: over epochs by each accountant, and after the last one under other assumptions."""
    printed = range(1, EPOCHS + 1)
    return {
        **of._asdict(),
        **{name: getattr(of, name) for name in ("delta", "rate", "batch", "confidential", "steps")},
        "rdp-paper": [[epoch, of.epsilon("rdp-paper", of.published(epoch))] for epoch in printed],
        **{
            name: [[epoch, of.epsilon(name, of.assumed(epoch, of.noise))] for epoch in SHOWN]
            for name in ("rdp", "pld")
        },
        "apart": of.epsilon("pld", of.assumed(LAST, of.noise / 2)),
        "unsampled": of.epsilon("pld", of.unsampled(LAST)),
    }


def main() -> None:
    kept = []
    for setting in settings():
        kept.append(accounted(setting))
        print(*setting, f"ε {kept[-1]['rdp-paper'][LAST - 1][1]:.3f}", flush=True)
    (DOCS / "epsilon.json").write_text(written(kept))
    (DOCS / "epsilon.md").write_text(page(kept))
    for file, svg in pictures(kept).items():
        (DOCS / file).write_text(svg)


def written(kept: list[dict[str, Any]]) -> str:
    """JSON with a line for each setting."""
    return "[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n"


if __name__ == "__main__":
    main()
