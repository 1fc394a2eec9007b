"""The question for a tier about candidates: which ones each criterion holds for."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from judgekit.judging import jury, pointwise, prompt
from judgekit.judging.documents import CONTEXT_CHARS, Candidates, PromptCandidate, Query
from judgekit.judging.jury import Mark, Marks
from judgekit.judging.kinds import kind_of
from judgekit.judging.question import AskedQuestion
from judgekit.judging.questionnaire import Control, Questionnaire, TypedQuestion
from judgekit.judging.verdict import SelectOpinion, SelectRound
from judgekit.providers.base import CallKey, Endpoint
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.questionnaire import Answers, Context, Points
    from judgekit.judging.settings import JudgeSettings

KEEP_AT = 0.5  # a candidate is kept if yes is likelier than no
POINTWISE_CHARS = 300  # of a candidate's text; with more, a small model is slower and no better
_ALONE = ""  # the label of a candidate asked about alone


class Kept(NamedTuple):
    """The probability of each criterion, by candidate.

    The model is undecided at the `threshold`, which is None if it answered in words.
    """

    yes: Mapping[str, Mapping[str, float]]
    threshold: float | None


def batches(candidates: Sequence[PromptCandidate], most: int) -> list[Sequence[PromptCandidate]]:
    """Split candidates into as few runs of at most `most` as possible, of nearly equal length."""
    count = math.ceil(len(candidates) / most)
    cuts = [round(len(candidates) * number / count) for number in range(count + 1)]
    return [candidates[start:end] for start, end in pairwise(cuts)]


@dataclass(frozen=True)
class SelectQuestion(AskedQuestion[SelectRubric, Candidates, Kept, Marks]):
    """Asks about candidates, as many at a time as the kind of model allows."""

    @classmethod
    def about_letters(cls, settings: JudgeSettings, tier: TierName) -> SelectQuestion:
        candidate = PromptCandidate("id", "title", "category", ("tag",), "text")
        return cls(settings, Candidates(Query("a", ("b",)), (candidate,)), tier)

    @staticmethod
    def agent_text(rubric: SelectRubric, mode: ModeName) -> str:
        return prompt.select_agent_text(rubric, mode)

    @property
    def bars(self) -> Sequence[float]:
        return (KEEP_AT, POINTWISE_CHARS)

    def questionnaires(self, endpoint: Endpoint | None) -> list[Questionnaire]:
        """Build one for each candidate, for all, or for each run and part, by the kind of model."""
        kind = kind_of(endpoint)
        candidates = self.subject.candidates
        if kind.candidates_at_once == 1:
            return [self._about_one(endpoint, candidate) for candidate in candidates]
        if not kind.gives_reasons:
            return [self._about_several(self.rubric, candidates, "", endpoint)]
        questionnaires = []
        runs = batches(candidates, kind.candidates_at_once or len(candidates))
        for run, (part, rubric) in product(runs, self.rubrics_by_part.items()):
            questionnaires.append(self._about_several(rubric, run, part, endpoint))
        return questionnaires

    def asks_in_order(self, endpoint: Endpoint) -> bool:
        return kind_of(endpoint).candidates_at_once == 1

    def _about_several(
        self,
        rubric: SelectRubric,
        candidates: Sequence[PromptCandidate],
        part: str,
        endpoint: Endpoint | None,
    ) -> Questionnaire:
        """Ask about several candidates in one listing, each after a label."""
        query = self.subject.query
        visible_candidates = self._cut(candidates, endpoint)
        listing, labels_by_id = prompt.listed_candidates(query, visible_candidates)
        usual = self._questionnaire(
            rubric,
            key=self._key(candidates, part),
            context=partial(prompt.candidates_context, query=query, listing=listing),
        )
        labels = {label: candidate_id for candidate_id, label in labels_by_id.items()}
        return replace(usual, labels=labels, is_listing=True, part=part)

    def _about_one(self, endpoint: Endpoint | None, candidate: PromptCandidate) -> Questionnaire:
        """Ask about one candidate alone, with the controls that its yes is weighed against."""
        query = self.subject.query
        key = self._key(self.subject.candidates).within(candidate.id)
        threshold = self._threshold(endpoint)
        idle_query = self._alone(candidate, query._replace(text=pointwise.IDLE), key.within("idle"))
        controls = [self._control(idle_query, pointwise.LEAST_GAIN, threshold)]
        if query.turns:
            # The same for all candidates, so a session asks it once.
            idle = self._alone(pointwise.IDLE_MEMORY, query, key.within("idle-memory"))
            controls.append(self._control(idle, pointwise.LEAST_GAIN_OVER_MEMORY, threshold))
        asked = self._alone(candidate, query, key)
        return replace(asked, labels={_ALONE: candidate.id}, controls=controls)

    def _alone(self, candidate: PromptCandidate, query: Query, key: CallKey) -> Questionnaire:
        short = replace(candidate, text=candidate.text[:POINTWISE_CHARS])
        context = partial(prompt.candidate_context, candidate=short, query=query)
        return self._questionnaire(self.rubric, key, context)

    def _questionnaire(self, rubric: SelectRubric, key: CallKey, context: Context) -> Questionnaire:
        """Build the questionnaire about one candidate, with the rubric's worked examples as earlier turns."""
        questions = {}
        for name, text in rubric.criteria.items():
            questions[name] = TypedQuestion(getattr(text, self.mode))
        turns = []
        for example in rubric.prompt.examples:
            memory = PromptCandidate.of(example, name="", text=example.text)
            shown = partial(prompt.candidate_context, candidate=memory, query=Query(example.query))
            turns.append((shown, "yes" if example.holds else "no"))
        return Questionnaire(
            call_key=key,
            timeout=self.limits.timeout,
            system=rubric.prompt.system,
            instructions=getattr(rubric.prompt.instructions, self.instructions_tier or self.tier),
            context=context,
            questions=questions,
            turns=turns,
        )

    def _control(
        self, questionnaire: Questionnaire, least_gain: float, threshold: float
    ) -> Control:
        """Build a control: a real yes has `least_gain` times its odds."""

        def is_needed(yes: Points) -> bool:
            return self._mark(yes, threshold).outcome == "accept"

        def weigh(yes: Points, idle: Points) -> Points:
            earned = {}
            for name, probability in yes.items():
                earned[name] = pointwise.earned(probability, idle[name], least_gain)
            return earned

        return Control(questionnaire, is_needed, weigh)

    def _cut(
        self, candidates: Sequence[PromptCandidate], endpoint: Endpoint | None
    ) -> list[PromptCandidate]:
        """Cut candidates to their share of the model's limit, and each to the tier's."""
        # A model might silently ignore text beyond its context and judge it anyway.
        context_limit = CONTEXT_CHARS
        if endpoint is not None:
            context_limit = endpoint.profile.limits.context_chars or CONTEXT_CHARS
        limit = min(self.limits.max_chars or CONTEXT_CHARS, context_limit // len(candidates))
        return [replace(candidate, text=candidate.text[:limit]) for candidate in candidates]

    def _key(self, candidates: Sequence[PromptCandidate], part: str = "") -> CallKey:
        """Build a question's key, independent of the candidates' order; the mode changes its words."""
        parts_of_candidates = (
            (candidate.id, candidate.title, candidate.text) for candidate in candidates
        )
        listing = sorted(map("\0".join, parts_of_candidates))
        query = self.subject.query
        text = "\0\0".join((self.mode, query.text, *query.turns, *listing))
        sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return CallKey(sha256, self.rubric.ref, self.tier, part)

    def read(self, endpoint: Endpoint, questionnaire: Questionnaire, answers: Answers) -> Kept:
        """Group the answers by candidate; some questions may have none."""
        yes: dict[str, dict[str, float]] = {}
        for label, candidate_id in questionnaire.labels.items():
            yes[candidate_id] = {}
            for criterion in questionnaire.questions:
                name = criterion
                if label != _ALONE:
                    name = questionnaire.question_of(label, criterion)
                if name in answers.points:
                    yes[candidate_id][criterion] = answers.points[name]
        return Kept(yes, self._threshold(endpoint) if answers.shares else None)

    def _threshold(self, endpoint: Endpoint | None) -> float:
        if endpoint is None:
            return KEEP_AT
        by_mode = pointwise.thresholds(endpoint).get(self.rubric.ref, {})
        return by_mode.get(self.mode, KEEP_AT)

    def opinion(self, samples: Sequence[Sequence[Kept | None]]) -> Marks | None:
        """Return one sample's marks, or the share of several samples that keep each; None without any."""
        marks: Marks = dict.fromkeys(candidate.id for candidate in self.subject.candidates)
        marks_by_sample = [self._marks(sample) for sample in samples]
        if len(samples) == 1:
            marks |= marks_by_sample[0]
            return marks if any(marks.values()) else None
        is_kept_by_sample: dict[str, list[bool]] = {}
        for marks_of_sample in marks_by_sample:
            for candidate, mark in marks_of_sample.items():
                is_kept_by_sample.setdefault(candidate, []).append(mark.outcome == "accept")
        for candidate, is_kept in is_kept_by_sample.items():
            if jury.has_quorum(len(is_kept), len(samples)):
                share = fmean(is_kept)
                marks[candidate] = Mark(jury.leaning(share), round(share, jury.DIGITS))
        return marks if any(marks.values()) else None

    def _marks(self, sample: Sequence[Kept | None]) -> dict[str, Mark]:
        """Mark the candidates with an answer on every criterion."""
        yes_by_candidate: dict[str, dict[str, float]] = {}
        threshold = None
        for kept in sample:
            if kept is None:
                continue
            threshold = kept.threshold
            for candidate, yes in kept.yes.items():
                yes_by_candidate.setdefault(candidate, {}).update(yes)
        marks = {}
        for candidate, yes_of_candidate in yes_by_candidate.items():
            if len(yes_of_candidate) == len(self.rubric.criteria):
                marks[candidate] = self._mark(yes_of_candidate, threshold)
        return marks

    def _mark(self, yes: Points, threshold: float | None) -> Mark:
        """Mark a candidate by the probability of yes for each criterion."""
        if threshold is None:
            holds = {criterion: bool(share) for criterion, share in yes.items()}
            return self._mark_of(holds)
        centred = {}
        for criterion, probability in yes.items():
            centred[criterion] = pointwise.centred(probability, threshold)
        if getattr(self.rubric.modes, self.mode).keep == "all":
            deciding_probability = min(centred.values())
        else:
            deciding_probability = max(centred.values())
        holds = {criterion: probability >= KEEP_AT for criterion, probability in centred.items()}
        return self._mark_of(holds, round(deciding_probability, jury.DIGITS))

    def _mark_of(self, holds: Mapping[str, bool], probability: float | None = None) -> Mark:
        """Mark a candidate by the criteria that hold."""
        return Mark("accept" if self.rubric.keeps(holds, self.mode) else "reject", probability)

    def combine(self, voices: Sequence[tuple[Endpoint, Marks | None]]) -> Marks:
        answered = [(endpoint, marks) for endpoint, marks in voices if marks]
        unmarked: Marks = dict.fromkeys(candidate.id for candidate in self.subject.candidates)
        return unmarked | jury.marks(answered, len(voices), self.settings.jury)

    def rounds(self, first: int, turns: Sequence[ModelTurn[Marks]]) -> list[SelectRound]:
        rounds = []
        for number, turn in enumerate(turns, first):
            row = SelectRound(
                round=number,
                tier=self.tier,
                opinion=turn.answer.record_value(self.record),
                **turn.answer.round_fields(),
            )
            rounds.append(row)
        return rounds

    def record(self, opinion: Marks) -> SelectOpinion:
        """Convert an opinion to its form in a round."""
        marks = {name: mark for name, mark in opinion.items() if mark}
        probabilities = {}
        for name, mark in marks.items():
            if mark.probability is not None:
                probabilities[name] = mark.probability
        return SelectOpinion(
            keep=[name for name, mark in marks.items() if mark.outcome == "accept"],
            unjudged=[name for name in opinion if name not in marks],
            probabilities=probabilities,
        )
