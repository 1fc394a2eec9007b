"""Turns the rounds of a judging into answers as they would stand in a file of labelled cases."""

from __future__ import annotations

from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Any

from judgekit.calibrate.labelled import Recorded
from judgekit.gateway.base import seated
from judgekit.judging.ballots import ORDERS, Vote, of_calls
from judgekit.judging.readings import how

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.comparison import CompareRound
    from judgekit.gateway.base import Endpoint, Seats
    from judgekit.judging.ballots import PairWord
    from judgekit.judging.manner import Manner
    from judgekit.verdict import Round, Verdict

_BOTH = len(ORDERS)
_FREE = ("cache", "mixed")  # what was kept cost nothing this time, which says nothing about the next


def of_tiers(
    rounds: Sequence[Round], seats: Seats, manner: Manner, questions: int, cut: Collection[str] = ()
) -> dict[str, Recorded]:
    """Return what each tier said about a document or candidates; `cut` are those that did not see it all."""
    found: dict[str, Recorded] = {}
    for tier, jury in seated(seats).items():
        own = [each for each in rounds if each.tier == tier]
        said = [
            {**_said(each, seat), **_usage([each], _calls(seat, manner, questions)), **_who(seat)}
            for seat, each in zip(jury, own, strict=bool(own))
        ]
        if said:
            found[tier] = _joined(said, {**_how(manner), "cut": tier in cut})
    return found


def of_pairs(
    rounds: Sequence[CompareRound], seats: Seats, manner: Manner, criteria: int, cut: Collection[str] = ()
) -> dict[str, Recorded]:
    """Return what each tier said about two texts, in both orders, under a rubric with so many criteria.

    `cut` are the tiers that did not see both whole.
    """
    found: dict[str, Recorded] = {}
    asked = criteria if manner.each else 1
    for tier, jury in seated(seats).items():
        own = iter([each for each in rounds if each.tier == tier])
        calls = [list(islice(own, manner.samples_of(seat) * asked * _BOTH)) for seat in jury]
        said = [
            {**_preferred(each, asked), **_usage(each, len(each)), **_who(seat), "read": how(seat, None)}
            for seat, each in zip(jury, calls, strict=True)
            if each
        ]
        if said:
            found[tier] = _joined(said, {**_how(manner), "cut": tier in cut})
    return found


def of_subjects(
    said: Sequence[tuple[Endpoint, Mapping[str, Verdict]]], manner: Manner, questions: int, *, cut: bool
) -> Recorded:
    """Return what the models of one tier gave to several subjects, by letter."""
    return _joined([_given(*each, manner, questions) for each in said], {**_how(manner), "cut": cut})


def _given(seat: Endpoint, verdicts: Mapping[str, Verdict], manner: Manner, questions: int) -> dict[str, Any]:
    rounds = {letter: each for letter, found in verdicts.items() for each in found.rounds}
    told = {letter: each.opinion for letter, each in rounds.items() if each.opinion is not None}
    who = {**_usage(list(rounds.values()), _calls(seat, manner, questions) * len(verdicts)), **_who(seat)}
    if not told:
        failed = next((each.failure.kind for each in rounds.values() if each.failure), "not_recorded")
        return {"failure": failed, **who}
    points = {letter: [fmean(opinion["scores"].values())] for letter, opinion in told.items()}
    read = {how(seat, each["scores"], each.get("expected", ())) for each in told.values()}
    return {"points": points, "read": read.pop() if len(read) == 1 else "partly", **who}


def _preferred(calls: Sequence[CompareRound], criteria: int) -> dict[str, Any]:
    """Return what one model said: in each order, or of more calls what they come to."""
    if not any(map(_better, calls)):
        return {"failure": next((each.failure.kind for each in calls if each.failure), "not_recorded")}
    if len(calls) == _BOTH:
        return {"orders": {"".join(each.order): _better(each) for each in calls}}
    words = [_better(each) for each in calls]
    vote = of_calls([Vote(word) if word else None for word in words], criteria)
    if vote is None:
        return {"failure": next((each.failure.kind for each in calls if each.failure), "invalid_reply")}
    return {"probabilities": {"A": max(vote.lean, 0.0), "B": max(-vote.lean, 0.0)}}


def _how(manner: Manner) -> dict[str, Any]:
    criteria = "each" if manner.each else "together"
    return {
        "samples": manner.samples,
        "criteria": criteria,
        "rule": manner.jury,
        "redact": bool(manner.redact),
    }


def renamed(one: Round, names: Mapping[str, str]) -> Round:
    """Return a round about candidates with other names for them."""
    if one.opinion is None:
        return one
    told, lists = one.opinion, ("keep", "unjudged")
    opinion: dict[str, Any] = {key: [names[each] for each in told[key]] for key in lists}
    known = told.get("probabilities")
    if known is not None:
        opinion["probabilities"] = {names[each]: value for each, value in known.items()}
    return one.model_copy(update={"opinion": opinion})


def _said(one: Round, seat: Endpoint) -> dict[str, Any]:
    if one.opinion is None:
        return {"failure": one.failure.kind if one.failure else "not_recorded"}
    told = {key: one.opinion[key] for key in ("scores", "probabilities", "keep") if key in one.opinion}
    first = next(iter(told))
    read = how(seat, told.get("scores"), one.opinion.get("expected", ()))
    return {first: told[first], "unjudged": one.opinion.get("unjudged", []), "read": read}


def _better(one: CompareRound) -> PairWord | None:
    return None if one.opinion is None else one.opinion["better"]


def _calls(seat: Endpoint, manner: Manner, questions: int) -> int:
    return questions if seat.pointwise else manner.calls(questions)


def _usage(rounds: Sequence[Round | CompareRound], calls: int) -> dict[str, Any]:
    known = [each.usage.cost_usd for each in rounds if each.usage.cost_source not in _FREE]
    costs = [each for each in known if each is not None]
    return {
        "calls": calls,
        "input_tokens": sum(each.usage.input_tokens for each in rounds),
        "output_tokens": sum(each.usage.output_tokens for each in rounds),
        "cost_usd": sum(costs) if len(costs) == len(rounds) else None,
    }


def _who(seat: Endpoint) -> dict[str, str]:
    return {"model": seat.model, "family": seat.family}


def _joined(said: Sequence[dict[str, Any]], how: dict[str, Any]) -> Recorded:
    """Return what a tier said: its model's answer, or those of its jury."""
    if len(said) == 1:
        return Recorded.model_validate({**said[0], **how})
    costs = [each["cost_usd"] for each in said]
    sums = {name: sum(each[name] for each in said) for name in ("calls", "input_tokens", "output_tokens")}
    cost = None if None in costs else sum(costs)
    return Recorded.model_validate({"jury": list(said), "cost_usd": cost, **sums, **how})
