"""The question for a tier about candidates: which ones each criterion holds for."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from judgekit.judging import jury, pointwise, prompt
from judgekit.judging.documents import CONTEXT_CHARS, Candidates, PromptCandidate, Query
from judgekit.judging.jury import Mark, Marks
from judgekit.judging.kinds import get_model_kind
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

KEEP_AT = 0.5  # a candidate is kept if yes is more probable than no
POINTWISE_CHARS = 300  # of a candidate's text; with more, a small model is slower, but no better
_LONE_CANDIDATE_LABEL = ""  # the label of a candidate without others


class Kept(NamedTuple):
    """The probability of yes for each criterion, by candidate.

    At the `threshold`, the model is undecided. It's None if the model answered in words.
    """

    yes_probabilities: Mapping[str, Mapping[str, float]]
    threshold: float | None


def split_into_batches(
    candidates: Sequence[PromptCandidate], limit: int
) -> list[Sequence[PromptCandidate]]:
    """Split candidates into the fewest batches of at most `limit`, with similar sizes."""
    total = len(candidates)
    count = math.ceil(total / limit)
    cuts = [round(total * number / count) for number in range(count + 1)]
    return [candidates[start:end] for start, end in pairwise(cuts)]


@dataclass(frozen=True)
class SelectQuestion(AskedQuestion[SelectRubric, Candidates, Kept, Marks]):
    """Asks about candidates, as many at a time as the kind of model allows."""

    @classmethod
    def about_fixed_subject(cls, settings: JudgeSettings, tier: TierName) -> SelectQuestion:
        candidate = PromptCandidate("id", "title", "category", ("tag",), "text")
        return cls(settings, Candidates(Query("a", ("b",)), (candidate,)), tier)

    @staticmethod
    def write_agent_text(rubric: SelectRubric, mode: ModeName) -> str:
        return prompt.select_agent_text(rubric, mode)

    @property
    def reading_thresholds(self) -> Sequence[float]:
        return (KEEP_AT, POINTWISE_CHARS)

    def build_questionnaires(self, endpoint: Endpoint | None) -> list[Questionnaire]:
        """Build the questionnaires for a model, depending on its kind."""
        kind = get_model_kind(endpoint)
        candidates = self.subject.candidates
        # A model that answers with a single token gets one candidate at a time.
        if kind.candidates_at_once == 1:
            return [self._build_about_one(endpoint, candidate) for candidate in candidates]

        # A decision model gets all candidates at once.
        if not kind.gives_reasons:
            return [self._build_about_many(self.rubric, candidates, "", endpoint)]

        # A model that writes gets batches of candidates, for each part of the rubric.
        questionnaires = []
        batch_limit = kind.candidates_at_once or len(candidates)
        for batch in split_into_batches(candidates, batch_limit):
            for part, rubric in self.rubrics_by_part.items():
                questionnaires.append(self._build_about_many(rubric, batch, part, endpoint))
        return questionnaires

    def asks_in_order(self, endpoint: Endpoint) -> bool:
        return get_model_kind(endpoint).candidates_at_once == 1

    def _build_about_many(
        self,
        rubric: SelectRubric,
        candidates: Sequence[PromptCandidate],
        part: str,
        endpoint: Endpoint | None,
    ) -> Questionnaire:
        """Build the questionnaire about multiple candidates, listed with a label for each."""
        query = self.subject.query
        visible_candidates = self._cut_candidates(candidates, endpoint)
        listing, labels_by_id = prompt.list_candidates(query, visible_candidates)
        questionnaire = self._build_questionnaire(
            rubric,
            key=self._build_key(candidates, part),
            context=partial(prompt.write_candidates_context, query=query, listing=listing),
        )
        ids_by_label = {label: candidate_id for candidate_id, label in labels_by_id.items()}
        return replace(questionnaire, labels=ids_by_label, is_listing=True, part=part)

    def _build_about_one(
        self, endpoint: Endpoint | None, candidate: PromptCandidate
    ) -> Questionnaire:
        """Build the questionnaire about a single candidate, with controls.

        A control asks about something unrelated. If the model says yes to that with a similar probability,
        its yes to the candidate doesn't count.
        """
        query = self.subject.query
        key = self._build_key(self.subject.candidates).append_part(candidate.id)
        threshold = self._find_threshold(endpoint)

        # The first control asks about the same candidate, but for an unrelated request.
        unrelated_query = query._replace(text=pointwise.IDLE_REQUEST)
        about_unrelated_query = self._build_pair(
            candidate, unrelated_query, key.append_part("idle")
        )
        controls = [self._build_control(about_unrelated_query, pointwise.MIN_GAIN, threshold)]
        if query.turns:
            # Earlier turns can make a model say yes to any memory, so also ask about an unrelated one. This
            # prompt is the same for all candidates, so the session sends it once and remembers the reply.
            about_unrelated_memory = self._build_pair(
                pointwise.IDLE_MEMORY, query, key.append_part("idle-memory")
            )
            least_gain = pointwise.MIN_GAIN_OVER_MEMORY
            controls.append(self._build_control(about_unrelated_memory, least_gain, threshold))

        questionnaire = self._build_pair(candidate, query, key)
        return replace(
            questionnaire, labels={_LONE_CANDIDATE_LABEL: candidate.id}, controls=controls
        )

    def _build_pair(self, candidate: PromptCandidate, query: Query, key: CallKey) -> Questionnaire:
        """Build a questionnaire about one candidate for a query, with the start of its text."""
        short = replace(candidate, text=candidate.text[:POINTWISE_CHARS])
        context = partial(prompt.write_candidate_context, candidate=short, query=query)
        return self._build_questionnaire(self.rubric, key, context)

    def _build_questionnaire(
        self, rubric: SelectRubric, key: CallKey, context: Context
    ) -> Questionnaire:
        """Build a questionnaire with a question for each of the rubric's criteria.

        `context` is the function that writes the prompt's part with the candidates and the query.
        """
        questions = {}
        for name, text in rubric.criteria.items():
            text_for_mode = getattr(text, self.mode)
            questions[name] = TypedQuestion(text_for_mode)

        # Present the rubric's examples as earlier turns of the conversation with the model.
        example_turns = []
        for example in rubric.prompt.examples:
            candidate = PromptCandidate.of(example, name="", text=example.text)
            query = Query(example.query)
            example_context = partial(
                prompt.write_candidate_context, candidate=candidate, query=query
            )
            example_turns.append((example_context, "yes" if example.holds else "no"))

        instructions_tier = self.instructions_tier or self.tier
        return Questionnaire(
            call_key=key,
            timeout=self.limits.timeout,
            system=rubric.prompt.system,
            instructions=getattr(rubric.prompt.instructions, instructions_tier),
            context=context,
            questions=questions,
            example_turns=example_turns,
        )

    def _build_control(
        self, questionnaire: Questionnaire, least_gain: float, threshold: float
    ) -> Control:
        """Build a control from a questionnaire about something unrelated, which shouldn't get a yes.

        A candidate's yes only counts if its odds are at least `least_gain` times the odds of the control's
        yes.
        """

        def is_needed(yes: Points) -> bool:
            """Whether the candidate would be kept, so that the control matters."""
            return self._mark_candidate(yes, threshold).outcome == "accept"

        def weigh(yes: Points, control_yes: Points) -> Points:
            """Reduce each probability of yes by the bias that the control shows."""
            corrected = {}
            for name, probability in yes.items():
                control_probability = control_yes[name]
                corrected[name] = pointwise.correct_for_bias(
                    probability, control_probability, least_gain
                )
            return corrected

        return Control(questionnaire, is_needed, weigh)

    def _cut_candidates(
        self, candidates: Sequence[PromptCandidate], endpoint: Endpoint | None
    ) -> list[PromptCandidate]:
        """Truncate each candidate's text to the tier's limit, and to an equal part of the model's context.

        A model could silently ignore text beyond its context.
        """
        context_limit = CONTEXT_CHARS
        if endpoint is not None:
            context_limit = endpoint.profile.limits.context_chars or CONTEXT_CHARS
        equal_part = context_limit // len(candidates)
        tier_limit = self.limits.max_chars or CONTEXT_CHARS
        limit = min(tier_limit, equal_part)
        return [replace(candidate, text=candidate.text[:limit]) for candidate in candidates]

    def _build_key(self, candidates: Sequence[PromptCandidate], part: str = "") -> CallKey:
        """Build a call's key, which doesn't depend on the candidates' order."""
        listing = []
        for candidate in candidates:
            listing.append(f"{candidate.id}\0{candidate.title}\0{candidate.text}")
        listing.sort()
        # Include the mode, because it changes the question.
        query = self.subject.query
        text = "\0\0".join((self.mode, query.text, *query.turns, *listing))
        sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return CallKey(sha256, self.rubric.ref, self.tier, part)

    def read(self, endpoint: Endpoint, questionnaire: Questionnaire, answers: Answers) -> Kept:
        """Group a model's answers by candidate. Criteria without an answer are omitted."""
        yes_by_candidate: dict[str, dict[str, float]] = {}
        for label, candidate_id in questionnaire.labels.items():
            candidate_yes = {}
            for criterion in questionnaire.questions:
                question_name = criterion
                if label != _LONE_CANDIDATE_LABEL:  # one of several candidates
                    question_name = questionnaire.name_question(label, criterion)
                if question_name in answers.points:
                    candidate_yes[criterion] = answers.points[question_name]
            yes_by_candidate[candidate_id] = candidate_yes
        # A model that writes its answers gives no probabilities to compare with a threshold.
        is_written = not answers.probabilities_by_question
        return Kept(
            yes_by_candidate, threshold=None if is_written else self._find_threshold(endpoint)
        )

    def _find_threshold(self, endpoint: Endpoint | None) -> float:
        """Return the probability of yes at which a model is undecided, as measured or by default one half."""
        if endpoint is None:
            return KEEP_AT
        threshold_by_mode = pointwise.thresholds(endpoint).get(self.rubric.ref, {})
        return threshold_by_mode.get(self.mode, KEEP_AT)

    def combine_samples(self, samples: Sequence[Sequence[Kept | None]]) -> Marks | None:
        """Combine a model's samples into a mark (keep or drop) for each candidate.

        With multiple samples, a candidate's probability is the fraction of samples that keep it. Returns None
        if no candidate has a mark.
        """
        marks: Marks = dict.fromkeys(candidate.id for candidate in self.subject.candidates)
        marks_by_sample = [self._combine_marks(sample) for sample in samples]
        if len(samples) == 1:
            marks |= marks_by_sample[0]
            return marks if any(marks.values()) else None

        votes_by_candidate: defaultdict[str, list[bool]] = defaultdict(list)
        for sample_marks in marks_by_sample:
            for candidate, mark in sample_marks.items():
                votes_by_candidate[candidate].append(mark.outcome == "accept")
        for candidate, votes in votes_by_candidate.items():
            if jury.has_quorum(len(votes), len(samples)):
                probability = fmean(votes)
                marks[candidate] = Mark(
                    jury.decide_chance(probability), round(probability, jury.PROBABILITY_DECIMALS)
                )
        return marks if any(marks.values()) else None

    def _combine_marks(self, sample: Sequence[Kept | None]) -> dict[str, Mark]:
        """Merge the answers of a sample's calls, and mark the candidates: decide which ones to keep.

        Candidates without answers to all criteria get no mark.
        """
        yes_by_candidate: defaultdict[str, dict[str, float]] = defaultdict(dict)
        threshold = None
        # Each call is about some of the candidates and criteria.
        for call_answers in sample:
            if call_answers is None:  # the call failed
                continue
            threshold = call_answers.threshold  # the same for all calls
            for candidate, yes_by_criterion in call_answers.yes_probabilities.items():
                yes_by_candidate[candidate] |= yes_by_criterion

        marks = {}
        for candidate, candidate_yes in yes_by_candidate.items():
            if len(candidate_yes) == len(self.rubric.criteria):
                marks[candidate] = self._mark_candidate(candidate_yes, threshold)
        return marks

    def _mark_candidate(self, yes: Points, threshold: float | None) -> Mark:
        """Mark a candidate: decide whether to keep it, by the probability of yes for each criterion.

        Without a `threshold`, `yes` contains just 1 or 0 for each criterion, and the mark has no probability.
        """
        if threshold is None:
            holds = {criterion: bool(answer) for criterion, answer in yes.items()}
            return self._apply_criteria(holds)

        # Rescale the probabilities, so that the threshold becomes one half.
        centred = {}
        for criterion, probability in yes.items():
            centred[criterion] = pointwise.centre_probability(probability, threshold)

        # If all criteria are needed, the least probable one decides. Otherwise, the most probable one does.
        needs_all = getattr(self.rubric.modes, self.mode).keep == "all"
        deciding_probability = min(centred.values()) if needs_all else max(centred.values())
        holds = {criterion: probability >= KEEP_AT for criterion, probability in centred.items()}
        return self._apply_criteria(holds, round(deciding_probability, jury.PROBABILITY_DECIMALS))

    def _apply_criteria(self, holds: Mapping[str, bool], probability: float | None = None) -> Mark:
        """Keep or drop a candidate, depending on the criteria that hold."""
        is_kept = self.rubric.keeps(holds, self.mode)
        return Mark("accept" if is_kept else "reject", probability)

    def combine(self, voices: Sequence[tuple[Endpoint, Marks | None]]) -> Marks:
        """Combine the models' marks as a jury. A candidate that too few models marked has None."""
        answered = [(endpoint, marks) for endpoint, marks in voices if marks]
        unmarked: Marks = dict.fromkeys(candidate.id for candidate in self.subject.candidates)
        return unmarked | jury.combine_marks(answered, len(voices), self.settings.jury)

    def build_rounds(self, first: int, turns: Sequence[ModelTurn[Marks]]) -> list[SelectRound]:
        """Build the record of each model's turn, numbered from `first`."""
        rounds = []
        for number, turn in enumerate(turns, first):
            row = SelectRound(
                round=number,
                tier=self.tier,
                opinion=turn.answer.record_value(self.record),
                **turn.answer.build_round_fields(),
            )
            rounds.append(row)
        return rounds

    def record(self, opinion: Marks) -> SelectOpinion:
        """Convert an opinion to the form that's recorded for a round."""
        kept_ids = []
        unjudged = []
        probabilities = {}
        for candidate, mark in opinion.items():
            if mark is None:
                unjudged.append(candidate)
                continue
            if mark.outcome == "accept":
                kept_ids.append(candidate)
            if mark.probability is not None:
                probabilities[candidate] = mark.probability
        return SelectOpinion(keep=kept_ids, unjudged=unjudged, probabilities=probabilities)
