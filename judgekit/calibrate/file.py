"""A calibration as it is kept: the gates, what they rest on, and what they are bound to."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import AwareDatetime, Field

from judgekit.datafile import Strict
from judgekit.judging.gates import Gate, Gates
from judgekit.judging.manner import USUAL, JuryRule, Manner
from judgekit.rubric import ModeName, Outcome, TierName
from judgekit.verdict import RubricRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.calibrate.choose import Choice, Promise
    from judgekit.calibrate.samples import Walked
    from judgekit.library import LoadedRubric

SCHEMA = "judgekit/calibration@1"
TOGETHER = " + "
"""Between the models of one jury, where they stand as one name."""
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


class Asked(Strict):
    """How the opinions came about, in the words of the configuration: other opinions need other gates."""

    samples: Annotated[int, Field(ge=1)] = 1
    criteria: Literal["together", "each"] = "together"
    jury: JuryRule = "mean"

    def misfit(self, manner: Manner, *, juries: bool) -> str | None:
        """Say in a few words how judging differs now; how a jury agrees matters where there are `juries`."""
        criteria = "each" if manner.each else "together"
        if self.samples != manner.samples:
            return f"samples were {self.samples} and are {manner.samples} now"
        if self.criteria != criteria:
            return f"criteria were judged {self.criteria} and are judged {criteria} now"
        if juries and self.jury != manner.jury:
            return f"juries came to the {self.jury} and come to the {manner.jury} now"
        return None


class Measured(Strict):
    """What rules came to on the labelled cases."""

    decided: int
    errors: int
    by_gate: int = 0
    calls: dict[TierName, int]


USUALLY = Asked()


class Panel(NamedTuple):
    """Who was asked, by tier, and how."""

    models: Mapping[TierName, str]
    asked: Asked = USUALLY


class Calibration(Strict):
    """`judgekit/calibration@1`: fits one rubric file, mode and panel of models, and no other."""

    schema_: Literal["judgekit/calibration@1"] = Field(alias="schema")
    id: str
    made: AwareDatetime
    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    models: dict[TierName, str]
    asked: Asked = USUALLY
    promise: Promised
    gates: list[Shown]
    not_promised: list[NotShown] = []
    cases: int
    labels_sha256: str
    with_gates: Measured
    without: Measured

    def rules(self) -> Gates:
        """Return the gates as the judge applies them."""
        gates = tuple(
            Gate(each.tier, each.outcome, each.least_margin, each.after, each.stands) for each in self.gates
        )
        return Gates(self.id, gates, self.promise.reference)

    def misfit(
        self, loaded: LoadedRubric, models: Mapping[TierName, str], manner: Manner = USUAL
    ) -> str | None:
        """Say in a few words why it does not fit, None where it does; id and mode of the rubric are given."""
        if self.rubric.sha256 != loaded.sha256:
            return f"it was made for another {self.rubric.id} ({self.rubric.version})"
        if self.prompt_sha256 != loaded.rubric.prompt.sha256:
            return "the prompt has changed"
        for tier, model in models.items():
            if self.models.get(tier) != model:
                return f"{tier} was {self.models.get(tier, 'nobody')} and is {model} now"
        gone = sorted(set(self.models) - set(models))
        if gone:
            return f"{', '.join(gone)} is not asked now"
        return self.asked.misfit(manner, juries=any(TOGETHER in each for each in models.values()))

    def text(self) -> str:
        """Return the file's text."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def calibration(
    loaded: LoadedRubric,
    mode: ModeName,
    panel: Panel,
    promise: Promise,
    choice: Choice,
    measured: tuple[Walked, Walked],
    *,
    made: AwareDatetime,
    labels_sha256: str,
) -> Calibration:
    """Return what was learned, bound to what it was learned with; `measured` with the gates and without."""
    rubric = RubricRef(id=loaded.rubric.rubric, version=loaded.rubric.version, sha256=loaded.sha256)
    gates = [
        Shown(**each.gate._asdict(), **each.tally._asdict(), bound=round(each.bound, 6))
        for each in choice.shown
    ]
    refused = [
        NotShown(
            **each.chain._asdict(),
            least_margin=each.least_margin,
            **each.tally._asdict(),
            bound=round(each.bound, 6),
            why=each.why,
            more=each.more,
        )
        for each in choice.refused
    ]
    promised = Promised(rate=promise.rate, confidence=promise.confidence, reference=promise.reference)
    models = dict(panel.models)
    bound_to: list[object] = [rubric.sha256, mode, models, loaded.rubric.prompt.sha256, labels_sha256]
    bound_to += [panel.asked.model_dump()] if panel.asked != USUALLY else []
    content = [*bound_to, promised.model_dump(), [each.model_dump() for each in gates]]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return Calibration(
        schema=SCHEMA,
        id=f"{rubric.id}-{mode}-{digest[:12]}",
        made=made,
        rubric=rubric,
        mode=mode,
        prompt_sha256=loaded.rubric.prompt.sha256,
        models=models,
        asked=panel.asked,
        promise=promised,
        gates=gates,
        not_promised=refused,
        cases=measured[0].cases,
        labels_sha256=labels_sha256,
        with_gates=_measured(measured[0]),
        without=_measured(measured[1]),
    )


def _measured(found: Walked) -> Measured:
    return Measured(
        decided=found.decided, errors=found.errors, by_gate=found.by_gate, calls=dict(found.calls)
    )
