"""How good tables are: ranks, triple classification, predictions."""

from fedkge.evaluation.classification import Classification, classify
from fedkge.evaluation.constraints import TypeConstraints
from fedkge.evaluation.filter import Known
from fedkge.evaluation.metrics import combined, metrics, metrics_by_relation, metrics_by_side
from fedkge.evaluation.prediction import Neighbour, Prediction, Predictor, predict
from fedkge.evaluation.ranking import Asked, Counted, Ranks, Ties, rank

__all__ = [
    "Asked",
    "Classification",
    "Counted",
    "Known",
    "Neighbour",
    "Prediction",
    "Predictor",
    "Ranks",
    "Ties",
    "TypeConstraints",
    "classify",
    "combined",
    "metrics",
    "metrics_by_relation",
    "metrics_by_side",
    "predict",
    "rank",
]
