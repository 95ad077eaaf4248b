"""Two tables and a score: each model is one file."""

from fedkge.models.base import MODELS, Model, Side
from fedkge.models.tables import Gradient, Tables

__all__ = ["MODELS", "Gradient", "Model", "Side", "Tables"]
