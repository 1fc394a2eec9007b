"""How well judgekit does, measured on labelled data: rankings, confidences, what a prompt would be told."""

from judgekit.evaluation.retrieval import ndcg, precision, recall, reciprocal_rank
from judgekit.evaluation.stats import (
    Bin,
    BootstrapInterval,
    LabelGroup,
    Measure,
    brier,
    by_label,
    difference,
    ece,
    interval,
    intervals,
    mean,
    table,
)

__all__ = ["Bin", "BootstrapInterval", "LabelGroup", "Measure", "brier", "by_label", "difference", "ece"]
__all__ += ["interval", "intervals", "mean", "ndcg", "precision", "recall", "reciprocal_rank", "table"]
