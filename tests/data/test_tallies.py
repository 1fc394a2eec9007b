"""The separate counts of workers add up to one in the end."""

from __future__ import annotations

import pickle
from typing import Any

from judgekit.data.runs import Tally


def verdict(model: str, opinion: dict[str, Any]) -> dict[str, Any]:
    return {"rounds": [{"model": model, "opinion": opinion}]}


def test_decision_models_of_several_workers_are_named_together() -> None:
    one = Tally()
    one.deciders.add(verdict("small", {"probabilities": {}}))
    other = Tally()
    other.deciders.add(verdict("large", {"probabilities": {}}))
    both = Tally()
    for part in (one, other):
        both.add(pickle.loads(pickle.dumps(part.take_counts())))
    (note,) = both.deciders.write_notes("judge")
    assert "small, large alone" in note
    assert one.deciders.write_notes("judge") == []


def test_a_model_that_writes_has_given_reasons_for_all() -> None:
    one = Tally()
    one.deciders.add(verdict("small", {"probabilities": {}}))
    other = Tally()
    other.deciders.add(verdict("writes", {"reasoning": "It is clear."}))
    one.add(other)
    assert one.deciders.write_notes("judge") == []
