"""The task `select`: candidates are judged together, in one call or few; only contested ones go up a tier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from judgekit.errors import GatewayError
from judgekit.judging import jury, outgoing
from judgekit.judging.calls import all_of
from judgekit.judging.choosing import Choice, Query
from judgekit.judging.course import round_record
from judgekit.judging.escalation import Final
from judgekit.judging.gates import certainty
from judgekit.judging.judge import Judge
from judgekit.judging.record import cost_of, failures, rubric_ref
from judgekit.judging.session import Stopwatch
from judgekit.prompt import candidate_text
from judgekit.rubric import SelectRubric
from judgekit.verdict import Decision, Selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.asking import Answer
    from judgekit.judging.escalation import Rules
    from judgekit.judging.opinion import Marks
    from judgekit.judging.session import Session
    from judgekit.names import TierName
    from judgekit.prompt import Shown
    from judgekit.verdict import Round

__all__ = ["CandidateJudge", "Query"]


@dataclass(frozen=True, slots=True)
class CandidateJudge(Judge[SelectRubric]):
    """Judges candidates; `call_seconds` bounds each call beside the rubric's own timeouts."""

    call_seconds: float | None = None

    async def judge(self, query: Query, candidates: Sequence[Shown]) -> Selection:
        """Return the decision on each candidate, in the given order; failures are in it, never raised."""
        watch = Stopwatch()
        session = self.session()
        session.call_seconds = self.call_seconds
        late = ""
        if self.manner.redact:
            size = sum(map(len, (query.text, *query.turns, *(each.text for each in candidates))))
            try:
                query, candidates = await session.aside(partial(_outgoing, query, candidates), size)
            except GatewayError as error:
                late = f"{error.kind} ({error.message})"
            left_out = outgoing.left_out(query.text, *query.turns, *map(candidate_text, candidates))
            if refusal := self.manner.refusal(left_out):
                late = f"nothing was judged: {refusal}"
        rules = self.rules()
        marks: dict[TierName, Marks] = {}
        rounds: list[Round] = []
        for tier in () if late else self.seats:
            asked = [each for each in candidates if _next(rules, marks, each.id) == tier]
            if asked:
                answers = await self._ask(tier, query, asked, marks, session)
                marks[tier] = dict.fromkeys(each.id for each in asked) | self._agreed(tier, answers)
                rounds += [
                    round_record(number, tier, each, _opinion(each.value))
                    for number, each in enumerate(answers, len(rounds) + 1)
                ]
        decisions = [_decision(each.id, rules, marks) for each in candidates]
        left = any(each.decision == "undetermined" for each in decisions)
        return Selection(
            rubric=rubric_ref(self.loaded),
            mode=self.mode,
            prompt_sha256=self.rubric.prompt.sha256,
            decisions=decisions,
            rounds=rounds,
            calibration=self.gates.id if self.gates else None,
            degraded=late or (failures(rounds) if left else None),
            duration_ms=watch.ms,
            **cost_of(rounds),
        )

    async def _ask(
        self,
        tier: TierName,
        query: Query,
        asked: Sequence[Shown],
        marks: Mapping[TierName, Marks],
        session: Session,
    ) -> list[Answer[Marks]]:
        """Return what each model of a tier makes of the candidates."""
        # Where the deep tier failed the tiebreaker stands in for it: nobody disagreed.
        stands_in = tier == "tiebreaker" and not any(marks.get("deep", {}).values())
        words: TierName = "deep" if stands_in else tier
        choice = Choice(self.rubric, self.mode, query, tier, self.manner, words)
        return await all_of(
            [partial(choice.ask, asked, seat, session) for seat in self.juries[tier]], session
        )

    def _agreed(self, tier: TierName, answers: Sequence[Answer[Marks]]) -> Marks:
        """Return what the models of a tier come to; nothing where too few of them answered."""
        seats = self.juries[tier]
        said = [(seat, each.value) for seat, each in zip(seats, answers, strict=True) if each.value]
        return jury.marks(said, len(seats), self.manner.jury)


def _outgoing(query: Query, candidates: Sequence[Shown]) -> tuple[Query, list[Shown]]:
    """Return the request and the candidates without their secrets."""
    return (
        Query(outgoing.request(query.text), outgoing.turns(query.turns)),
        [outgoing.shown(each) for each in candidates],
    )


def _next(rules: Rules, marks: Mapping[TierName, Marks], candidate: str) -> TierName | Final:
    seen = {tier: found[candidate] for tier, found in marks.items() if candidate in found}
    known = {tier: mark for tier, mark in seen.items() if mark}
    return rules.next(
        {tier: mark.outcome if mark else None for tier, mark in seen.items()},
        {tier: certainty(mark.probability) for tier, mark in known.items()},
        {tier: mark.divided for tier, mark in known.items() if mark.divided is not None},
    )


def _opinion(marks: Marks | None) -> dict[str, Any] | None:
    if marks is None:
        return None
    kept = [each for each, mark in marks.items() if mark and mark.outcome == "accept"]
    unjudged = [each for each, mark in marks.items() if mark is None]
    known = {each: mark.probability for each, mark in marks.items() if mark and mark.probability is not None}
    return {"keep": kept, "unjudged": unjudged} | ({"probabilities": known} if known else {})


def _decision(candidate: str, rules: Rules, marks: Mapping[TierName, Marks]) -> Decision:
    final = _next(rules, marks, candidate)
    # `improve` is what models say who are exactly between keeping and dropping: it decides nothing.
    if not isinstance(final, Final) or final.tier is None or final.verdict == "improve":
        return Decision(id=candidate, decision="undetermined")
    mark = marks[final.tier][candidate]
    return Decision(
        id=candidate,
        decision="kept" if final.verdict == "accept" else "dropped",
        tier=final.tier,
        probability=mark.probability if mark else None,
    )
