"""The steps of a judging, to ask a tier or to end; and the rules that govern which one is taken."""

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

# Names of rows of the table of escalation that something else is said of, too.
COPIED = "the best text is there twice"
CUT_TEXTS = "nobody saw all of the texts"
LEAD_CALIBRATED = "a calibration lets the lead through"
CALIBRATED = "a calibration lets it through"
OWN_FAMILY = "the author's own family alone"
PROMISED = "a promise of agreement may let it through"

Task: TypeAlias = Literal["document", "candidate", "pair", "ranking"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Go on: ask this tier, of a ranking `about` these subjects alone."""

    tier: TierName
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The end of judging: the verdict, how much agreement it has, the tier that settled it, and why.

    `overruled` is the end that there would be without the last row that applied.
    """

    verdict: VerdictWord
    consensus: Consensus = "none"
    tier: TierName | None = None
    because: str = ""
    overruled: End | None = None


Step: TypeAlias = Ask | End
UNASKED = End("undetermined", because="no model was asked")
EQUAL_TEXTS = End("improve", because="the texts are the same")
EACH_HAS_ITS_OWN = End("undetermined", because="each candidate has its own end")


@dataclass(frozen=True, slots=True)
class EscalationRules:
    """What governs one judging, beside the evidence. One model in several tiers is one voice."""

    confirm: Literal["accept", "reject"]
    """The quick outcome that a second tier must confirm."""
    tiers: tuple[TierName, ...] = TIERS
    task: Task = "document"
    mode: ModeName = "strict"
    models: Mapping[TierName, Collection[str]] = field(default_factory=dict)
    """The models of each tier."""
    deciding: Collection[TierName] = ()
    """The tiers whose models only decide: they give probabilities, and no reasons."""
    finality: FinalityRules | None = None
    """With it no opinions of the first tier are final but those that it lets through."""
    margin: float = 0.0
    """Without `finality`: an opinion with less is not final alone, if another model can be asked."""
    needs_proof: bool = False
    """Whether decision models accept by a calibration, or under a promise, only."""
    is_promised: bool = False
    """Whether the only tier gives a first opinion, which a promise of agreement may make final."""
    explains: bool = False
    """Whether a rejection owes reasons."""
    independence: Independence = "prefer"
    authors: Mapping[Outcome, Sequence[str]] = field(default_factory=dict)
    """The families that wrote what an end with this outcome would favour."""
    letters: tuple[str, ...] = ()
    """The subjects of a ranking."""
    copied: Collection[str] = ()
    """Those of which there is another copy."""
