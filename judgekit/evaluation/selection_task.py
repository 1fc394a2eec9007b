"""Evaluates judges of candidates: which ones a request needs."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from judgekit.errors import InvalidReply
from judgekit.evaluation.cases import Recorded
from judgekit.evaluation.task import RecordedAnswer, SeparateTiersTask, Tried, gives_decisions
from judgekit.judging import documents, fence, jury
from judgekit.judging.documents import Candidates, PromptCandidate
from judgekit.judging.evidence import read_candidate
from judgekit.judging.jury import Mark, Marks
from judgekit.judging.score_source import score_source
from judgekit.judging.select import CandidateJudge
from judgekit.judging.verdict import Selection
from judgekit.replies import extract
from judgekit.replies.forms import KEEP, make_select_reply_model
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.evaluation.cases import Case
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.named_inputs import NamedInputs
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.steps import End


class SelectionTask(SeparateTiersTask[SelectRubric, Candidates, Marks, Selection]):
    """A request's candidates, each kept or dropped."""

    name = "candidate"
    label_kind = "candidates"

    def judge(self, judge: DocumentJudge) -> CandidateJudge:
        return judge.as_judge(CandidateJudge)

    def subject(self, case: Case, inputs: NamedInputs | None) -> Candidates:
        """Build the query and its candidates. Their names determine the order in which they're shown."""
        del inputs  # the case contains all texts
        name_by_id = shown_ids(case)
        candidates = []
        for candidate in case.candidates:
            name = name_by_id[candidate.id]
            candidates.append(PromptCandidate.of(candidate, name, candidate.text))
        return Candidates(documents.Query(case.query), tuple(candidates))

    def read_turn(self, case: Case, turn: ModelTurn[Marks]) -> RecordedAnswer:
        """Return a model's answer for recording: probabilities by candidate id, or the ids that it keeps.

        Returns {} if the model gave no answer.
        """
        marks = turn.answer.value
        if not marks:
            return {}

        id_by_name = {name: candidate_id for candidate_id, name in shown_ids(case).items()}
        probabilities = {}
        keep = []
        unjudged = []
        for name, mark in marks.items():
            candidate_id = id_by_name[name]
            if not mark:
                unjudged.append(candidate_id)
                continue
            if mark.probability is not None:
                probabilities[candidate_id] = mark.probability
            if mark.outcome == "accept":
                keep.append(candidate_id)

        source = score_source(turn.endpoint, None)
        if probabilities:
            return {"probabilities": probabilities, "unjudged": unjudged, "read": source}
        return {"keep": keep, "unjudged": unjudged, "read": source}

    def evidence(self, case: Case, recorded: Recorded) -> dict[str, TierEvidence]:
        """Read a tier's evidence about each candidate, combining the models in a jury."""
        votes = []
        for juror in recorded.jurors:
            votes.append((juror.endpoint, self._read_marks(case, juror)))
        marks = jury.combine_marks(votes, len(recorded.jurors), recorded.rule)
        evidence = {}
        for candidate in case.candidates:
            evidence[candidate.id] = read_candidate(
                marks.get(candidate.id),
                decides=gives_decisions(recorded),
                sees_all=not recorded.cut,
            )
        return evidence

    def _read_marks(self, case: Case, recorded: Recorded) -> Marks:
        """Read one model's mark on each candidate, by id. Returns {} if the answer is unreadable.

        Raises `InputError` if the answer contains an unknown id.
        """
        ids = [candidate.id for candidate in case.candidates]
        for key in ("probabilities", "keep", "unjudged"):
            unknown_ids = sorted(set(getattr(recorded, key) or ()) - set(ids))
            if unknown_ids:
                listed_ids = ", ".join(unknown_ids)
                raise case.wrong(f"{key}: expected ids of its candidates, got {listed_ids}")

        marks: dict[str, Mark | None] = {}
        if recorded.probabilities is not None:
            marks = dict.fromkeys(ids)  # None for candidates without a probability
            for candidate_id, probability in recorded.probabilities.items():
                marks[candidate_id] = Mark(jury.leaning(probability), probability)
            return marks

        # Without probabilities, the answer lists the candidates that are kept.
        kept_ids = recorded.keep
        if recorded.reply is not None:
            kept_ids = self._read_kept(ids, recorded.reply)
        if kept_ids is None:
            return {}
        for candidate_id in ids:
            if candidate_id not in recorded.unjudged:
                marks[candidate_id] = Mark("accept" if candidate_id in kept_ids else "reject")
        return marks

    def _read_kept(self, ids: list[str], reply: str) -> list[str] | None:
        """Read the ids of the candidates that a reply keeps. Returns None if the reply is unreadable."""
        criteria = list(self.rubric.criteria)
        try:
            ids_by_key = extract.read_answer(
                reply, make_select_reply_model(criteria, ids)
            ).model_dump()
        except InvalidReply:
            return None

        ids_by_criterion = ids_by_key
        if len(criteria) == 1:  # In this case, the reply doesn't contain the criterion's name.
            ids_by_criterion = {criteria[0]: ids_by_key[KEEP]}

        # The reply lists the candidates that fulfil each criterion. The rubric decides which of them to keep.
        kept_ids = []
        for candidate_id in ids:
            holds = {name: candidate_id in ids_by_criterion[name] for name in criteria}
            if self.rubric.keeps(holds, self.mode):
                kept_ids.append(candidate_id)
        return kept_ids

    def label_words(self, case: Case) -> Sequence[str]:
        return [candidate.id for candidate in case.candidates]

    def labels(self, case: Case) -> dict[str, str]:
        """Return "accept" or "reject" for each candidate. Raises `InputError` if the label is invalid."""
        label = case.right(self.mode)
        ids = self.label_words(case)
        if not (ids and isinstance(label, list) and set(label) <= set(ids)):
            raise case.wrong("label: expected a list of ids of its candidates")
        labels = dict.fromkeys(ids, "reject")
        labels.update(dict.fromkeys(label, "accept"))
        return labels

    def record_ends(self, case: Case, ends: Mapping[str, End], calls: int) -> Recorded:
        """Record the candidates that are kept, and those that no tier decided about."""
        del case  # other tasks use it
        keep = []
        unjudged = []
        for candidate_id, end in ends.items():
            if end.verdict == "accept":
                keep.append(candidate_id)
            if end.tier is None:
                unjudged.append(candidate_id)
        return Recorded(calls=calls, keep=keep, unjudged=unjudged)

    def compare_with_label(self, case: Case, record: Selection) -> Iterator[Tried]:
        """Yield the judge's decision about each candidate with the expected one."""
        label = case.right(self.mode)
        assert isinstance(label, list)  # noqa: S101 - labels of a rubric's cases are lists of ids to keep
        for decision in record.decisions:
            name = f"{case.id}/{decision.id}"
            expected = "kept" if decision.id in label else "dropped"
            yield Tried(
                name, self.mode, expected, said=decision.decision, why=record.degraded or ""
            )


def shown_ids(case: Case) -> dict[str, str]:
    """Map candidate ids to names, which determine the order in which candidates are shown.

    Models don't see the names. A name is the id itself, except in a swapped case, which needs another order.
    """
    ids = [candidate.id for candidate in case.candidates]
    if case.variant != "swapped":
        return dict(zip(ids, ids, strict=True))

    # The order depends on a hash of the names, so it can't be chosen freely. Try eight sets of names, and use
    # the one that reverses the most pairs.
    original_order = list(fence.labels(case.query, ids))

    def count_reversed_pairs(names: Mapping[str, str]) -> int:
        order = fence.labels(case.query, list(names.values()))
        position_by_name = {name: position for position, name in enumerate(order)}
        positions = [position_by_name[names[candidate_id]] for candidate_id in original_order]
        return sum(first > second for first, second in combinations(positions, 2))

    # In each set, the names have an additional apostrophe: "a'", "a''" and so on.
    choices = []
    for mark_count in range(1, 9):
        choices.append({candidate_id: candidate_id + "'" * mark_count for candidate_id in ids})
    return max(choices, key=count_reversed_pairs)
