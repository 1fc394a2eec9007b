"""How well judgekit does, measured on labelled data: rankings, confidences, what a prompt would be told."""

from judgekit.evaluation.bootstrap import Interval, Measure, difference, interval, intervals, mean
from judgekit.evaluation.metrics import ndcg, precision, recall, reciprocal_rank
from judgekit.evaluation.reliability import Bin, Group, brier, by_label, ece, table

__all__ = [
    "Bin",
    "Group",
    "Interval",
    "Measure",
    "brier",
    "by_label",
    "difference",
    "ece",
    "interval",
    "intervals",
    "mean",
    "ndcg",
    "precision",
    "recall",
    "reciprocal_rank",
    "table",
]
