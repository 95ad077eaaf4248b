"""How the hub combines rows: one rule, one file."""

from fedkge.aggregation.base import AGGREGATIONS, Aggregation
from fedkge.aggregation.mean import Mean

__all__ = ["AGGREGATIONS", "Aggregation", "Mean"]
