"""The question for a tier about a document: all scores in one reply, or dimension by dimension."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from judgekit.judging import claims, decisions, jury, pointwise, prompt
from judgekit.judging.documents import Document, TaskDescription, is_cut, make_file
from judgekit.judging.findings import mentions, place_findings
from judgekit.judging.jury import Opinion
from judgekit.judging.kinds import get_model_kind
from judgekit.judging.question import AskedQuestion, TierQuestion
from judgekit.judging.questionnaire import Answers, Control, Questionnaire, TypedQuestion
from judgekit.judging.verdict import Round, ScoreOpinion
from judgekit.providers.base import CallKey, Endpoint
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.questionnaire import Points
    from judgekit.judging.settings import JudgeSettings
    from judgekit.judging.verdict import Finding
    from judgekit.rubric.schema import Dimension


@dataclass(frozen=True)
class ScoreQuestion(AskedQuestion[ScoreRubric, Document, Answers, Opinion]):
    """Asks a tier to score a document."""

    has_scores = True

    is_for_comparison: bool = False
    """Whether scores stay as first given, to be compared with other documents' scores."""
    findings: tuple[Sequence[str], Sequence[str]] | None = None
    """After a review: the findings that were upheld, and those nobody checked."""

    @classmethod
    def about_fixed_subject(cls, settings: JudgeSettings, tier: TierName) -> ScoreQuestion:
        """Build the question about a fixed document, so that a hash only depends on the question's words."""
        files = (make_file("a", "b"), make_file("c", "d"))
        document = Document(files, "e", TaskDescription("f", "g", "h"))
        scores = dict.fromkeys(settings.loaded_rubric.rubric.questions, 1.0)
        earlier = Opinion("accept", scores, "i")
        findings = (["j"], ["k"])
        return cls(settings, document, tier, earlier_opinions=[earlier], findings=findings)

    @staticmethod
    def write_agent_text(rubric: ScoreRubric, mode: ModeName) -> str:
        return prompt.score_agent_text(rubric, mode)

    @property
    def reading_thresholds(self) -> Sequence[float]:
        return ()

    def build_questionnaires(self, endpoint: Endpoint | None) -> list[Questionnaire]:
        """Build the questionnaires for a model.

        A model that writes gets one for each part of the rubric. Other models get one for all dimensions.
        """
        rubrics_by_part = {"": self.rubric}
        if get_model_kind(endpoint).gives_reasons:
            rubrics_by_part = self.rubrics_by_part
        questionnaires = []
        for part, rubric in rubrics_by_part.items():
            questionnaires.append(self._build_questionnaire(rubric, part, endpoint))
        return questionnaires

    def _build_questionnaire(
        self, rubric: ScoreRubric, part: str, endpoint: Endpoint | None
    ) -> Questionnaire:
        """Build the questionnaire about a document, with a question for each of the rubric's dimensions."""
        files = self.subject.visible_files(self.limits, endpoint)
        claims_dimension = claims.find_claims_dimension(rubric)
        questions = {}
        for name, dimension in rubric.dimensions.items():
            question = _build_question(rubric, dimension)
            if name == claims_dimension:
                # The first file is the document, and the others are its sources.
                split_claims = partial(claims.split_claims, files[0].text)
                question = replace(question, split_claims=split_claims)
            questions[name] = question

        task = self.subject.task
        questionnaire = Questionnaire(
            call_key=self._call_key.append_part(part),
            timeout=self.limits.timeout,
            system=rubric.prompt.system,
            instructions=getattr(rubric.prompt.instructions, self.instructions_tier or self.tier),
            context=partial(
                prompt.write_document_context, files=files, task=task, given=rubric.given
            ),
            char_count=self.subject.char_count,
            cut_at_chars=sum(len(file.text) for file in files) if is_cut(files) else None,
            questions=questions,
            points_of_words=rubric.scale.answers,
            part=part,
            examples=prompt.format_rated_examples(rubric),
            are_examples_for_all=rubric.prompt.few_shot,
            earlier_opinions=self._describe_earlier_opinions(rubric),
            findings=self.findings,
        )
        if self.is_for_comparison:  # a control could lower the scores, which must stay as given
            return questionnaire
        return replace(questionnaire, controls=[self._build_control(questionnaire)])

    def _describe_earlier_opinions(self, rubric: ScoreRubric) -> list[str]:
        """Describe earlier opinions on these dimensions, without the models' names."""
        descriptions = []
        for opinion in self.earlier_opinions:
            scores = _describe_scores(rubric, opinion.scores)
            descriptions.append(f"{scores}\n{opinion.reasoning}")
        return descriptions

    def _build_control(self, questionnaire: Questionnaire) -> Control:
        """Build a control: a questionnaire about an unrelated subject.

        If the unrelated subject gets the same points as the text, the text hasn't earned them.
        """
        # Ask one question for each kind of answer, because numbers can't be compared with yes and no.
        # Questions of the same kind get the same name, so they replace each other.
        idle_questions = {}
        for question in questionnaire.questions.values():
            idle_questions[_name_idle_question(question)] = replace(
                pointwise.IDLE_RATING, kind=question.kind, options=question.options
            )

        def is_needed(scores: Points) -> bool:
            """Whether the text would be accepted. Otherwise, its scores don't have to be checked."""
            return self._make_opinion(scores).outcome == "accept"

        idle_questionnaire = replace(questionnaire, questions=idle_questions)
        weigh = partial(self._lower_unearned_scores, questionnaire)
        return Control(idle_questionnaire, is_needed, weigh, is_shown=False)

    def read(
        self, endpoint: Endpoint, questionnaire: Questionnaire, answers: Answers
    ) -> Answers | None:
        """Check a model's answers. If a score is missing, return None."""
        if set(answers.points) != set(questionnaire.questions):
            return None
        if get_model_kind(endpoint).shows_probabilities:
            return answers
        # Drop the probabilities, which aren't recorded.
        return replace(answers, probabilities_by_question={})

    def sample_plans(self, endpoint: Endpoint) -> list[Sequence[int]]:
        """Plan which samples to request, as lists of sample numbers."""
        plans = TierQuestion.sample_plans(self, endpoint)
        if endpoint.has_logprobs and self.settings.samples > 1:
            # Request one sample first. If token probabilities give all its scores, no other is needed.
            return [[0], *plans]
        return plans

    def is_enough(self, opinion: Opinion | None) -> bool:
        """Whether all scores are expectations, which don't vary between samples."""
        return opinion is not None and len(opinion.expected_value_names) == len(
            self.rubric.dimensions
        )

    @property
    def _call_key(self) -> CallKey:
        return CallKey(self.subject.sha256, self.rubric.ref, self.tier)

    def combine_samples(self, samples: Sequence[Sequence[Answers | None]]) -> Opinion | None:
        """Combine a model's samples into one opinion.

        The scores are averaged, and the reasoning comes from the sample whose scores are nearest to the
        average. Returns None unless more than half of the samples are complete.
        """
        opinions = []
        for sample in samples:
            replies = [reply for reply in sample if reply is not None]
            is_complete = len(replies) == len(sample)
            if is_complete:
                opinions.append(self._combine_replies(replies))

        if not jury.has_quorum(len(opinions), len(samples)):
            return None
        if len(samples) == 1:
            return opinions[0]

        average = self._make_opinion(jury.average_scores(opinions))
        nearest = jury.find_nearest(opinions, average)
        return replace(
            nearest,
            outcome=average.outcome,
            scores=average.scores,
            stated_word=None,
            expected_value_names=(),
            sample_count=len(opinions),
        )

    def _combine_replies(self, replies: Sequence[Answers]) -> Opinion:
        """Build a sample's opinion from its replies: either a single reply, or a reply for each dimension."""
        scores: dict[str, float] = {}
        findings: list[Finding] = []
        expected: list[str] = []
        for reply in replies:
            scores |= reply.points
            findings += reply.findings
            expected += reply.expected_value_names

        if len(replies) == 1:
            reasoning = replies[0].reasoning
            stated_outcome = replies[0].stated_word
        else:
            reasoning = _join_reasoning(replies)
            stated_outcome = None  # each reply was only about one dimension

        return replace(
            self._make_opinion(scores),
            reasoning=reasoning,
            findings=place_findings(findings, self.rubric),
            stated_word=stated_outcome,
            dimensions=tuple(mentions(reasoning, self.rubric)),
            expected_value_names=tuple(expected),
            # Only decision models' probabilities are recorded, and these give all answers in one reply.
            probabilities=replies[0].probabilities_by_question,
        )

    def combine(self, voices: Sequence[tuple[Endpoint, Opinion | None]]) -> Opinion | None:
        """Combine the models' opinions as a jury, or return None if too few models have one."""
        opinions = [(endpoint, opinion) for endpoint, opinion in voices if opinion]
        if not jury.has_quorum(len(opinions), len(voices)):
            return None
        decide = partial(self.rubric.decide, mode=self.mode)
        return jury.combine_opinions(opinions, self.settings.jury, decide)

    def build_rounds(self, first: int, turns: Sequence[ModelTurn[Opinion]]) -> list[Round]:
        """Build the record of each model's turn, numbered from `first`."""
        rounds = []
        for number, turn in enumerate(turns, first):
            row = Round(
                round=number,
                tier=self.tier,
                opinion=turn.answer.record_value(self.record),
                **turn.answer.build_round_fields(),
            )
            rounds.append(row)
        return rounds

    def record(self, opinion: Opinion) -> ScoreOpinion:
        """Convert an opinion to the form that's recorded for a round."""
        return ScoreOpinion(
            outcome=opinion.outcome,
            scores=opinion.scores,
            reasoning=opinion.reasoning,
            dimensions=list(opinion.dimensions),
            findings=list(opinion.findings),
            said=opinion.stated_word,
            samples=opinion.sample_count,
            expected=list(opinion.expected_value_names),
            probabilities=decisions.round_probabilities(opinion.probabilities),
        )

    def _lower_unearned_scores(
        self, questionnaire: Questionnaire, scores: Points, idle_scores: Points
    ) -> Points:
        """Lower scores that the text hasn't earned, because an unrelated subject gets similar ones.

        `idle_scores` are the unrelated subject's scores: one for each kind of question.
        """
        lowered_scores = dict(scores)
        span = self.rubric.scale.max - self.rubric.scale.min
        # The lowest score that each dimension needs for an acceptance
        least_accepted = getattr(self.rubric.modes, self.mode).accept.each
        for idle_name, idle_score in idle_scores.items():
            same_kind_scores = {}
            for name, question in questionnaire.questions.items():
                if _name_idle_question(question) == idle_name:
                    same_kind_scores[name] = scores[name]
            lowered_scores |= pointwise.lower_unearned_scores(
                same_kind_scores, idle_score, least_accepted, span
            )
        return lowered_scores

    def _make_opinion(self, scores: Mapping[str, float]) -> Opinion:
        """Make the opinion with these scores, deciding its outcome before they're rounded."""
        rounded = {name: round(float(score), 2) for name, score in scores.items()}
        return Opinion(self.rubric.decide(scores, self.mode), rounded)


def _build_question(rubric: ScoreRubric, dimension: Dimension) -> TypedQuestion:
    """Build the question about a dimension: yes or no if it's binary, otherwise a score."""
    is_binary = dimension.scale == "binary"
    if is_binary:
        return TypedQuestion(dimension.question, look_for=dimension.look_for)
    points = {}
    for value, label in sorted(rubric.scale.labels.items()):
        points[str(value)] = label
    return TypedQuestion(dimension.question, "score", points, dimension.look_for)


def _name_idle_question(question: TypedQuestion) -> str:
    """Return the name of the idle question with the same kind of answer."""
    return "binary" if question.kind == "predicate" else "idle"


def _describe_scores(rubric: ScoreRubric, scores: Mapping[str, float]) -> str:
    """Describe scores in a prompt: yes or no for a binary dimension, otherwise a number."""
    answer_by_score = {float(point): answer for answer, point in rubric.scale.answers.items()}
    descriptions = []
    for name, dimension in rubric.dimensions.items():
        score = scores[name]
        word = f"{score:g}"
        if dimension.scale:  # binary
            word = answer_by_score.get(score, word)  # a mean of yes and no has no word
        descriptions.append(f"{name} {word}")
    return ", ".join(descriptions)


def _join_reasoning(replies: Sequence[Answers]) -> str:
    """Join the replies' reasoning, with a line for each dimension that has any."""
    reasoning_lines = []
    for reply in replies:
        for name in reply.points:
            if reply.reasoning:
                reasoning_lines.append(f"{name}: {reply.reasoning}")
    return "\n".join(reasoning_lines)
