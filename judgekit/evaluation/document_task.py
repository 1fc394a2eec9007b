"""Evaluates judges of documents: their scores, and the outcome by a rubric's thresholds."""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from judgekit.errors import InputError, InvalidReply
from judgekit.evaluation.cases import Recorded
from judgekit.evaluation.samples import WHOLE_CASE_KEY
from judgekit.evaluation.stats import OUTCOMES
from judgekit.evaluation.task import (
    RecordedAnswer,
    SeparateTiersTask,
    Tried,
    UnaskedError,
    gives_decisions,
)
from judgekit.judging import jury, service
from judgekit.judging.documents import Document, TaskDescription, make_file
from judgekit.judging.evidence import measure_margin, read_document
from judgekit.judging.jury import Opinion
from judgekit.judging.score_source import score_source
from judgekit.judging.verdict import Verdict
from judgekit.replies import extract
from judgekit.replies.forms import make_score_reply_model
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.evaluation.cases import Case
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.named_inputs import NamedInputs
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.state import JudgingState
    from judgekit.judging.steps import End
    from judgekit.providers.base import Gateway
    from judgekit.replies.forms import ScoreReply
    from judgekit.rubric.loader import LoadedRubric

DISTANCE_KEY = ""
"""The key of the distance from acceptance among a document's scores."""


class DocumentTask(SeparateTiersTask[ScoreRubric, Document, Opinion, Verdict]):
    """Documents, each judged by itself."""

    name = "document"
    label_kind = "outcome"
    trials_at_once = service.DEFAULT_CONCURRENCY

    def build_configured_judge(
        self, gateway: Gateway, loaded: LoadedRubric, project: Path | None, request: JudgeRequest
    ) -> DocumentJudge:
        """Build the judge that the project configures. It may run on a team's server."""
        del loaded  # not needed, because the request names the rubric
        judge, _ = service.build_document_judge(gateway, project, request)
        return judge

    def judge(self, judge: DocumentJudge) -> DocumentJudge:
        return judge

    def build_subject(self, case: Case, inputs: NamedInputs | None) -> Document:
        """Build the document from the case's text, its other files and its task."""
        judged_path = case.path or "text"
        # The judged file comes first.
        texts_by_path = {judged_path: read_text(case, inputs), **case.files}
        files = tuple(make_file(path, text) for path, text in texts_by_path.items())

        task = TaskDescription(case.description, case.acceptance, case.reference)
        name = case.path or case.id
        return Document(files, name, task)

    async def ask_tiers(
        self,
        judge: Judge[ScoreRubric, Document, Verdict],
        case: Case,
        state: JudgingState[Document],
    ) -> None:
        """Call every tier for a case. Raises `UnaskedError` if no model may see the case."""
        await super().ask_tiers(judge, case, state)
        if not state.turns:
            raise UnaskedError(case, str(state.refusal_reason))

    def read_turn(self, case: Case, turn: ModelTurn[Opinion]) -> RecordedAnswer:
        """Return a model's scores for recording, with how they were read.

        Returns {} if there's no opinion.
        """
        del case  # other tasks use it
        opinion = turn.answer.value
        if not opinion:
            return {}
        return {"scores": opinion.scores, "read": score_source(turn.endpoint, opinion)}

    def read_evidence(self, case: Case, recorded: Recorded) -> dict[str, TierEvidence]:
        """Convert a recorded opinion to the same evidence that live judging would give."""
        has_only_decision_models = gives_decisions(recorded)
        saw_whole_text = not recorded.cut
        evidence = read_document(
            self._read_opinion(case, recorded),
            self.rubric,
            self.mode,
            decides=has_only_decision_models,
            sees_all=saw_whole_text,
        )
        return {WHOLE_CASE_KEY: evidence}

    def _read_opinion(self, case: Case, recorded: Recorded) -> Opinion | None:
        """Combine a tier's readable answers into an opinion. Returns None if there are too few."""
        decide = partial(self.rubric.decide, mode=self.mode)
        votes = []
        for juror in recorded.jurors:
            scores = self._read_scores(case, juror)
            if scores is not None:
                votes.append((juror.endpoint, Opinion(decide(scores), scores)))
        if not jury.has_quorum(len(votes), len(recorded.jurors)):
            return None
        return jury.combine_opinions(votes, recorded.rule, decide)

    def _read_scores(self, case: Case, recorded: Recorded) -> dict[str, float] | None:
        """Read one model's scores by dimension, either as recorded or from the model's reply.

        Returns None if there are no readable scores. Raises `InputError` if the scores aren't for the
        rubric's dimensions.
        """
        if recorded.reply is None:
            scores = recorded.scores
        else:
            scores = self._read_reply(recorded.reply)
        if scores is None:
            return None

        dimensions = self.rubric.dimensions
        fits_rubric = scores.keys() == dimensions.keys()
        if not fits_rubric:
            expected = ", ".join(dimensions)
            raise case.build_error(f"scores: expected {expected}, got {', '.join(scores)}")
        return scores

    def _read_reply(self, reply: str) -> dict[str, float] | None:
        """Read the scores by dimension from a model's reply. Returns None if the reply can't be read."""
        reply_model = self._make_reply_model()
        try:
            answers = extract.read_answer(reply, reply_model).model_dump()["scores"]
        except InvalidReply:
            return None

        # "yes" and "no" stand for scores, and all other answers are scores already.
        number_by_word = self.rubric.scale.answers
        return {name: number_by_word.get(answer, answer) for name, answer in answers.items()}

    def _make_reply_model(self) -> type[ScoreReply]:
        """Make the Pydantic class for a reply. It expects one score for each of the rubric's dimensions."""
        dimensions = self.rubric.dimensions
        scale = self.rubric.scale
        binary_names = frozenset(
            name for name, dimension in dimensions.items() if dimension.scale == "binary"
        )
        return make_score_reply_model(tuple(dimensions), scale.min, scale.max, binary_names)

    def label_words(self, case: Case) -> Sequence[str]:
        del case  # other tasks use it
        return OUTCOMES

    def read_score(self, case: Case, recorded: Recorded) -> float | None:
        """Average the mean scores that a tier's models gave a document.

        Returns None if too few models gave readable scores. Raises `InputError` if the case's label isn't a
        score on the rubric's scale.
        """
        self._check_score(case)
        means = []  # each model's mean over the dimensions
        for juror in recorded.jurors:
            scores = self._read_scores(case, juror)
            if scores:
                means.append(self.rubric.mean(scores))
        if jury.has_quorum(len(means), len(recorded.jurors)):
            return fmean(means)
        return None

    def _check_score(self, case: Case) -> None:
        """Raise `InputError` if a case is labelled with a score that isn't on the rubric's scale."""
        if case.score is None:
            return
        scale = self.rubric.scale
        is_on_scale = scale.min <= case.score <= scale.max
        if not is_on_scale:
            expected = f"a number from {scale.min} to {scale.max}, as on the rubric's scale"
            raise case.build_error(f"label: expected {expected}, got {case.score:g}")

    def read_ratings(self, case: Case, recorded: Recorded) -> dict[str, float] | None:
        """Return a document's scores by dimension, and under `DISTANCE_KEY` their distance from acceptance.

        The distance is negative below acceptance. Returns None if the opinion can't be read.
        """
        opinion = self._read_opinion(case, recorded)
        if opinion is None:
            return None
        distance = measure_margin(self.rubric, opinion.scores, self.mode, signed=True)
        return {DISTANCE_KEY: distance, **opinion.scores}

    def record_ends(self, case: Case, ends: Mapping[str, End], calls: int) -> Recorded:
        """Record the scores of the tier that decided about the document. If none did, record a failure."""
        end = ends[WHOLE_CASE_KEY]
        deciding_tier = end.tier
        if deciding_tier is None:
            return Recorded(calls=calls, failure=end.verdict)

        # `{}` is only for the type checker: a tier that decided always has ratings.
        ratings = self.read_ratings(case, case.judges[deciding_tier]) or {}
        # Pick the scores, to leave out the distance.
        scores = {name: ratings[name] for name in self.rubric.questions}
        return Recorded(calls=calls, scores=scores)

    def compare_with_label(self, case: Case, record: Verdict) -> Iterator[Tried]:
        """Yield the judge's verdict with the case's label. A document has only one verdict."""
        reason_for_doubt = record.degraded
        yield Tried(
            case.id,
            self.mode,
            self.label_word(case),
            said=record.verdict,
            scores=record.scores,
            why=reason_for_doubt or record.reasoning,
        )


def read_text(case: Case, inputs: NamedInputs | None) -> str:
    """Return a case's text, or else the content of the file at its path.

    Raises `InputError` if the case has neither, or if the file can't be read.
    """
    if case.text is not None:
        return case.text
    if case.path is None or inputs is None:
        # A case with recorded answers would need no text.
        raise case.build_error("expected text, a path, or what judges said")
    try:
        return inputs.read(case.path)
    except InputError as error:
        raise case.build_error(f"path: {error}") from None
