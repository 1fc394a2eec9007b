"""What is compared: subjects that answer one prompt, and the record of how that ended."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from judgekit.comparison import LETTERS, CompareRound, Comparison, Contestant
from judgekit.judging.record import cost_of, failures, rubric_ref
from judgekit.verdict import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.asking import Answer
    from judgekit.judging.subject import File
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, TierName
    from judgekit.verdict import Consensus

LEAST, MOST = 2, len(LETTERS)


@dataclass(frozen=True, slots=True)
class Contest:
    """Subjects, called A, B, … in their order, and the prompt that they answer."""

    prompt: str
    files: tuple[File, ...]

    @property
    def letters(self) -> str:
        """The letters of the subjects."""
        return LETTERS[: len(self.files)]

    def file(self, letter: str) -> File:
        """Return the subject that a letter stands for."""
        return self.files[LETTERS.index(letter)]

    def subject(self, order: str) -> str:
        """Return one hash for the prompt and the subjects as they are shown, by which a reply is known."""
        shown = "\0".join([self.prompt, *(self.file(each).sha256 for each in order)])
        return hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Terms:
    """Under what was compared: `nobody` says why no model was there, `notes` what else is to be known."""

    loaded: LoadedRubric
    mode: ModeName
    calibration: str | None = None
    nobody: str = ""
    notes: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a comparison: the word, by how much, and who settled it."""

    verdict: str
    consensus: Consensus
    tier: TierName | None = None
    lead: float | None = None
    reasoning: str = ""
    degraded: str | None = None
    truncated: bool = False


def compare_round(
    number: int, tier: TierName, order: str, answer: Answer[Any], opinion: dict[str, Any] | None
) -> CompareRound:
    """Return the record of one call about a pair."""
    return CompareRound(
        round=number,
        tier=tier,
        model=answer.model,
        order=list(order),
        opinion=opinion,
        failure=answer.failure,
        latency_ms=answer.latency_ms,
        usage=Usage(**answer.usage._asdict()),
    )


def comparison(
    contest: Contest,
    terms: Terms,
    ended: Ended,
    rounds: Sequence[CompareRound],
    duration_ms: int,
    scores: Mapping[str, tuple[float, TierName]] | None = None,
) -> Comparison:
    """Return the record of a comparison; `scores` holds the mean of each subject and the last tier's name."""
    known = scores or {}
    subjects = [
        Contestant(
            letter=letter,
            path=each.path,
            sha256=each.sha256,
            score=round(known[letter][0], 4) if letter in known else None,
            tier=known[letter][1] if letter in known else None,
        )
        for letter, each in zip(contest.letters, contest.files, strict=True)
    ]
    nothing = f"nothing was judged: {terms.nobody}" if terms.nobody and not rounds else None
    degraded = [nothing, ended.degraded, failures(rounds), terms.notes]
    return Comparison(
        id=uuid.uuid4().hex,
        subjects=subjects,
        question_sha256=hashlib.sha256(contest.prompt.encode("utf-8", "surrogatepass")).hexdigest(),
        rubric=rubric_ref(terms.loaded),
        mode=terms.mode,
        prompt_sha256=terms.loaded.rubric.prompt.sha256,
        calibration=terms.calibration,
        verdict=ended.verdict,
        lead=None if ended.lead is None else round(ended.lead, 4),
        reasoning=ended.reasoning,
        consensus=ended.consensus,
        judge_tier=ended.tier,
        rounds=list(rounds),
        degraded="; ".join(filter(None, degraded)) or None,
        truncated=ended.truncated,
        timestamp=datetime.now(UTC),
        duration_ms=duration_ms,
        **cost_of(rounds),
    )
