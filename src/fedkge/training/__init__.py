"""How a site learns: the only place that takes gradient steps."""

from fedkge.training.corpus import Corpus
from fedkge.training.factored import Changes, Factoring
from fedkge.training.loop import Training
from fedkge.training.stopping import Stopping
from fedkge.training.trainer import Batch, BySite, Moments, Penalty, Trainer

__all__ = [
    "Batch",
    "BySite",
    "Changes",
    "Corpus",
    "Factoring",
    "Moments",
    "Penalty",
    "Stopping",
    "Trainer",
    "Training",
]
