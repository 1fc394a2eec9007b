"""The steps of a judging (ask a tier, or end) and the rules that choose between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.config import TIERS, TierName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.config import ModeName, Outcome
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.independence import Independence
    from judgekit.judging.verdict import Consensus, VerdictWord

# Names of escalation rows that are also used elsewhere.
COPIED_ROW = "the best text is there twice"
CUT_TEXTS_ROW = "nobody saw all of the texts"
LEAD_CALIBRATED_ROW = "a calibration lets the lead through"
CALIBRATED_ROW = "a calibration lets it through"
OWN_FAMILY_ROW = "the author's own family alone"
PROMISED_ROW = "a promise of agreement may let it through"

Task: TypeAlias = Literal["document", "candidate", "pair", "ranking"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Go on: ask this tier. In a ranking, ask only about the subjects with these `letters`."""

    tier: TierName
    letters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The end of judging: the verdict, its consensus, the tier that settled it, and the reason.

    `overruled_end` is the end there would be without the last row that applied.
    """

    verdict: VerdictWord
    consensus: Consensus = "none"
    tier: TierName | None = None
    because: str = ""
    overruled_end: End | None = None


Step: TypeAlias = Ask | End
UNASKED = End("undetermined", because="no model was asked")
EQUAL_TEXTS = End("improve", because="the texts are the same")
PER_CANDIDATE_END = End("undetermined", because="each candidate has its own end")


@dataclass(frozen=True, slots=True)
class EscalationRules:
    """The rules for one judging, besides the evidence. One model in several tiers has one voice."""

    outcome_to_confirm: Literal["accept", "reject"]
    """The quick outcome that a second tier must confirm."""
    tiers: tuple[TierName, ...] = TIERS
    task: Task = "document"
    mode: ModeName = "strict"
    models: Mapping[TierName, Collection[str]] = field(default_factory=dict)
    """Each tier's models."""
    deciding_tiers: Collection[TierName] = ()
    """The tiers with only decision models, which give probabilities without reasons."""
    finality: FinalityRules | None = None
    """With it, only those opinions of the first tier are final that it lets through."""
    margin: float = 0.0
    """Without `finality`: an opinion with less isn't final alone if another model can be asked."""
    needs_proof: bool = False
    """Whether decision models accept only with a calibration, or under a promise."""
    is_promised: bool = False
    """Whether the only tier gives a first opinion, which a promise of agreement may make final."""
    needs_reasons: bool = False
    """Whether a rejection owes reasons."""
    independence: Independence = "prefer"
    authors: Mapping[Outcome, Sequence[str]] = field(default_factory=dict)
    """The families that wrote the text an end with this outcome would favour."""
    letters: tuple[str, ...] = ()
    """A ranking's subjects."""
    copied_letters: Collection[str] = ()
    """Those that another subject is a copy of."""
