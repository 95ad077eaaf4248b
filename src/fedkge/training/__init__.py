"""How a site learns: the only place that takes gradient steps."""

from fedkge.training.corpus import Corpus
from fedkge.training.stopping import Stopping
from fedkge.training.trainer import Batch, Trainer, Training

__all__ = ["Batch", "Corpus", "Stopping", "Trainer", "Training"]
