"""What is compared, and the record of how that ended.

Subjects have letters, and answer one prompt.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from judgekit.config import ModeName, TierName
from judgekit.errors import CostSource
from judgekit.judging import authors, redact
from judgekit.judging.authors import is_independent, lacking
from judgekit.judging.escalation import UNDETERMINED
from judgekit.judging.orchestrator import AnyRubric, Judge
from judgekit.judging.round import ms_since
from judgekit.judging.verdict import (
    LETTERS,
    TIE,
    CompareRound,
    Consensus,
    Letter,
    RubricRef,
    cost_of,
    failures,
    rubric_ref,
)
from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.judging.orchestrator import JudgingState
    from judgekit.judging.subject import File


Word = Annotated[str, StringConstraints(pattern="^([A-Z]|tie|escalate|undetermined)$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Contestant(_Record):
    """One of the subjects, and which `family` of models wrote it, where that is said.

    `score` is its mean where subjects are scored, over all that tiers gave it.
    """

    letter: Letter
    path: str
    sha256: str
    family: str | None = None
    score: float | None = None
    tier: TierName | None = None


class Comparison(_Record):
    """What was decided between subjects: the letter of the better one, `tie`, or that it is not known.

    `lead` is by how much: the share of the deciding tier's families, or points of the scale. `prompt_sha256`
    is the hash of the rubric's templates, `question_sha256` that of the prompt which the subjects answer.
    `families` are those of the models behind the verdict; `independent` says whether there is one among them
    that wrote none of the subjects. `redacted` secrets were left out of what was sent. `substitutes` are the
    providers that were asked in place of the authors' own families.
    """

    schema_: Literal["judgekit/comparison@1"] = Field(default="judgekit/comparison@1", alias="schema")
    id: str
    subjects: list[Contestant]
    question_sha256: str
    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    calibration: str | None = None
    verdict: Word
    lead: float | None = None
    reasoning: str = ""
    consensus: Consensus
    judge_tier: TierName | None = None
    rounds: list[CompareRound] = []
    degraded: str | None = None
    truncated: bool = False
    families: list[str] = []
    independent: bool | None = None
    redacted: int = 0
    substitutes: list[str] = []
    timestamp: AwareDatetime
    duration_ms: int
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cost_complete: bool = True

    @property
    def decided(self) -> bool:
        return self.verdict == TIE or len(self.verdict) == 1


LEAST, MOST = 2, len(LETTERS)


@dataclass(frozen=True, slots=True)
class ComparisonInput:
    """Subjects, called A, B, … in their order, and the prompt that they answer.

    `authors` says of each which families of models wrote it, as `judgekit.judging.authors.named` reads it:
    "none" for a person's, None where nothing is said.
    """

    prompt: str
    files: tuple[File, ...]
    authors: tuple[str | None, ...] = ()

    @property
    def size(self) -> int:
        """How many characters there are to look through."""
        return len(self.prompt) + sum(len(file.text) for file in self.files)

    @property
    def letters(self) -> str:
        return LETTERS[: len(self.files)]

    def file(self, letter: str) -> File:
        return self.files[LETTERS.index(letter)]

    def original(self, letter: str) -> str:
        """Return the first subject with the same text: one that is no copy is its own."""
        sha256 = self.file(letter).sha256
        return next(letter for letter in self.letters if self.file(letter).sha256 == sha256)

    @property
    def distinct(self) -> tuple[str, ...]:
        return tuple(letter for letter in self.letters if self.original(letter) == letter)

    def has_copy(self, letter: str) -> bool:
        return sum(self.original(each) == self.original(letter) for each in self.letters) > 1

    def author(self, letter: str) -> str | None:
        place = LETTERS.index(letter)
        return self.authors[place] if place < len(self.authors) else None

    def families(self, letter: str) -> tuple[str, ...]:
        """Return the families that wrote a subject, as far as it is said."""
        return authors.named(self.author(letter))

    def written_by(self, family: str | None) -> ComparisonInput:
        """Return the same where `family` wrote the subjects of which nothing is said."""
        return replace(self, authors=tuple(self.author(letter) or family for letter in self.letters))

    @property
    def wrote(self) -> tuple[str, ...]:
        """The families that wrote any subject, "unknown" among them where of some nothing is said."""
        found = [family for letter in self.letters for family in self.families(letter)]
        silent = any(self.author(letter) is None for letter in self.letters)
        return tuple(dict.fromkeys([*found, *([UNKNOWN_FAMILY] if found and silent else [])]))

    @property
    def sided(self) -> tuple[str, ...]:
        """The families that wrote some subjects and not the others: their models have a favourite."""
        wrote = Counter(family for letter in self.letters for family in self.families(letter))
        return tuple(each for each in wrote if each != UNKNOWN_FAMILY and wrote[each] < len(self.files))

    def shown_sha256(self, order: str) -> str:
        """Return one hash for the prompt and the subjects as they are shown, by which a reply is known."""
        shown = "\0".join([self.prompt, *(self.file(each).sha256 for each in order)])
        return hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()


class Ended(NamedTuple):
    """The end of a comparison: the word, by how much, who settled it, and the families of who said so."""

    verdict: str
    consensus: Consensus
    tier: TierName | None = None
    lead: float | None = None
    reasoning: str = ""
    degraded: str | None = None
    truncated: bool = False
    families: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonJudge(Judge[AnyRubric, ComparisonInput, Comparison]):
    """Compares texts; whether they are two or several, their record is the same."""

    def attributed(self, subject: ComparisonInput) -> ComparisonInput:
        return subject.written_by(self.written_by)

    def redacted(self, subject: ComparisonInput) -> tuple[ComparisonInput, int]:
        if not self.options.redact:
            return subject, 0
        question, files = redact.redact(subject.prompt), [redact.file(file) for file in subject.files]
        secrets = question.secrets + sum(count for _, count in files)
        return replace(subject, prompt=question.text, files=tuple(file for file, _ in files)), secrets

    async def run(self, state: JudgingState[ComparisonInput]) -> Comparison:
        if len(state.subject.distinct) == 1:  # of a text beside itself nobody is asked
            return self.record(state, UNDETERMINED)
        return await Judge.run(self, state)

    def comparison(
        self,
        state: JudgingState[ComparisonInput],
        ended: Ended,
        note: str | None = None,
        scores: Mapping[str, tuple[float, TierName]] | None = None,
    ) -> Comparison:
        """Return the record; `scores` holds the mean of each subject and the name of its last tier."""
        subject, rounds, known = state.subject, state.rounds, scores or {}
        nobody = state.refused or self.nobody
        if len(subject.distinct) == 1:
            few, nobody = "two texts" if len(subject.files) == LEAST else "texts", ""
            ended = Ended(TIE, "none", lead=0.0, reasoning=f"The {few} are the same.")
        if ended.verdict in tuple(subject.letters):
            # A win by the winner's own family alone is none, if it has to be another's.
            why = lacking(self.independence, subject.families(ended.verdict), ended.families)
            if why is not None:
                why = "; ".join(filter(None, (why, ended.degraded)))
                ended = Ended(
                    "undetermined", "none", degraded=why, truncated=ended.truncated, families=ended.families
                )
        nothing = f"not judged: {nobody}" if nobody and not rounds else None
        degraded = [nothing, ended.degraded, failures(rounds), note, self.calibration_warning]
        record = Comparison(
            id=uuid.uuid4().hex,
            subjects=[
                Contestant(
                    letter=letter,
                    path=file.path,
                    sha256=file.sha256,
                    family=authors.listed(subject.families(letter)),
                    score=round(known[letter][0], 4) if letter in known else None,
                    tier=known[letter][1] if letter in known else None,
                )
                for letter, file in zip(subject.letters, subject.files, strict=True)
            ],
            question_sha256=hashlib.sha256(subject.prompt.encode("utf-8", "surrogatepass")).hexdigest(),
            rubric=rubric_ref(self.loaded),
            mode=self.mode,
            prompt_sha256=self.rubric.prompt.sha256,
            calibration=self.finality.id if self.finality else None,
            verdict=ended.verdict,
            lead=None if ended.lead is None else round(ended.lead, 4),
            reasoning=ended.reasoning,
            consensus=ended.consensus,
            judge_tier=ended.tier,
            rounds=list(rounds),
            degraded="; ".join(filter(None, degraded)) or None,
            truncated=ended.truncated,
            families=list(ended.families),
            independent=is_independent(subject.wrote, ended.families),
            redacted=state.secrets if rounds else 0,
            substitutes=self.asked_instead({each.tier for each in rounds}) if self.substitutes else [],
            timestamp=datetime.now(UTC),
            duration_ms=ms_since(state.session.started),
            **cost_of(rounds),
        )
        return redact.replies(record) if self.options.redact else record
