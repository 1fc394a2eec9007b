"""A calibration as it is kept: the gates, what they rest on, and what they are bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AwareDatetime, Field

from judgekit.calibrate import bound
from judgekit.calibrate.bound import USUALLY, Asked, Readings, Was
from judgekit.datafile import Strict
from judgekit.judging.gates import Gate, Gates
from judgekit.names import ModeName, Outcome, TierName
from judgekit.verdict import RubricRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.calibrate.bound import Panel
    from judgekit.library import LoadedRubric

SCHEMA = "judgekit/calibration@1"
Share = Annotated[float, Field(ge=0, le=1)]


class Promised(Strict):
    """At most this rate of errors against the labels, or above those of the tier `reference`."""

    rate: Annotated[float, Field(gt=0, lt=1)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    reference: TierName | None = None


class Shown(Strict):
    """A gate, and what shows that it keeps the promise."""

    tier: TierName
    outcome: Outcome
    after: Outcome | None = None
    least_margin: float = 0.0
    stands: TierName | None = Field(
        default=None, description="instead: the wins of this tier that `tier` answers with a tie"
    )
    labels: int
    errors: int
    gains: int = 0
    bound: float


class NotShown(Strict):
    """A class of opinions for which the promise cannot be given; `more` labels of it would do, if any."""

    tier: TierName
    outcome: Outcome
    after: Outcome | None = None
    least_margin: float
    stands: TierName | None = None
    labels: int
    errors: int
    gains: int = 0
    bound: float
    why: Literal["too few labels", "too many errors"]
    more: int | None = None


class Measured(Strict):
    """What rules came to on the labelled cases."""

    decided: int
    errors: int
    by_gate: int = 0
    calls: dict[TierName, int]


class Subjects(Strict):
    """How many subjects the labelled comparisons had: at least, at most, and all together."""

    least: int
    most: int
    all: int


class Calibration(Strict):
    """`judgekit/calibration@1`: fits one rubric file, mode and panel of models, and no other.

    What is not there was not noted when it was made: `read` says how the opinions of each model were read,
    `asking` is a hash of how its profile asks it, `wording_sha256` one of judgekit's own words to models and
    of the numbers by which it reads their answers.
    `read_otherwise` counts opinions that were read in another way, of which nothing was learned. Where it has
    `subjects` it was learned of comparisons in which each of several subjects is scored: an acceptance is a
    lead of the best.
    """

    schema_: Literal["judgekit/calibration@1"] = Field(alias="schema")
    id: str
    made: AwareDatetime
    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    wording_sha256: str | None = None
    models: dict[TierName, str]
    asked: Asked = USUALLY
    read: Readings = {}
    asking: dict[TierName, dict[str, str]] = {}
    subjects: Subjects | None = None
    promise: Promised
    gates: list[Shown]
    not_promised: list[NotShown] = []
    read_otherwise: dict[TierName, int] = {}
    cases: int
    labels_sha256: str
    with_gates: Measured
    without: Measured

    def rules(self) -> Gates:
        """Return the gates as the judge applies them."""
        gates = tuple(
            Gate(each.tier, each.outcome, each.least_margin, each.after, each.stands) for each in self.gates
        )
        read = frozenset(
            (tier, model, how) for tier, models in self.read.items() for model, how in models.items()
        )
        return Gates(self.id, gates, self.promise.reference, read)

    def misfit(self, loaded: LoadedRubric, now: Panel, subjects: int = 0) -> str | None:
        """Say in a few words why it does not fit, None where it does; id and mode of the rubric are given.

        `subjects` is how many are compared, where that is what it is for.
        """
        if self.rubric.sha256 != loaded.sha256:
            return f"it was made for another {self.rubric.id} ({self.rubric.version})"
        if self.prompt_sha256 != loaded.rubric.prompt.sha256:
            return "the prompt has changed"
        if self.wording_sha256 not in (None, bound.wording(loaded.rubric, self.mode)):
            return "what judgekit itself says to models, or how it reads their answers, has changed"
        known = self.subjects
        if known and not known.least <= subjects <= known.most:
            count = f"{known.least} to {known.most}" if known.least < known.most else known.most
            return f"it was made for {count} texts, and there are {subjects}"
        was = Was(self.asked, self.read, self.asking)
        return self._other_models(now.models) or bound.misfit(
            was, now, loaded.rubric, ranked=known is not None
        )

    def _other_models(self, models: Mapping[TierName, str]) -> str | None:
        for tier, model in models.items():
            was = self.models.get(tier, "nobody")
            if bound.together(was.split(bound.TOGETHER)) != model:
                return f"{tier} was {was} and is {model} now"
        gone = sorted(set(self.models) - set(models))
        return f"{', '.join(gone)} is not asked now" if gone else None

    def text(self) -> str:
        """Return the file's text."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
