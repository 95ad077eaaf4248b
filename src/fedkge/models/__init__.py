"""Two tables and a score: each model is one file."""

from fedkge.models.base import MODELS, Model, Side
from fedkge.models.gradient import Gradient
from fedkge.models.tables import Tables

__all__ = ["MODELS", "Gradient", "Model", "Side", "Tables"]
