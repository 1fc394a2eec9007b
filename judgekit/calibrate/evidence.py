"""Whether the gates of a calibration follow from the counts that stand in its file.

The labels are not in the file, so the whole test cannot be repeated. But every chosen gate passed its test at
an even share of the error that all gates may have, or at less. With fewer labels or more errors than that
share allows, no labels can have led to the gate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from judgekit.calibrate.binomial import lower, upper
from judgekit.names import TIERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.calibrate.file import Calibration, Measured, NotShown, Shown
    from judgekit.names import TierName

_MOST = 1_000_000  # labels; nobody gives more, and a bound on more takes long
_ROUNDED = 1e-6  # bounds are written with six digits


@dataclass(frozen=True, slots=True)
class Promise:
    """What every gate must hold with `confidence`: a rate of at most `rate`.

    Without a `reference` it is the rate of opinions that differ from the label. With one it is by how much
    more often these opinions differ from it than those of the tier `reference` on the same subjects, whose
    own opinion is then the last word.
    """

    rate: float = 0.05
    confidence: float = 0.95
    reference: TierName | None = None


class Tally(NamedTuple):
    """Over a gate's labels: `errors` against it and, with a reference, `gains` where only that one erred."""

    labels: int
    errors: int
    gains: int = 0

    @property
    def rate(self) -> float:
        """The share that counts against the promise."""
        return (self.errors - self.gains) / self.labels if self.labels else 0.0


class Flaw(NamedTuple):
    """The key of a file that does not follow from the others, and what was expected."""

    key: str
    told: str


def bound(tally: Tally, level: float, promise: Promise) -> float:
    """Return what the rate exceeds with a probability of at most `level`.

    With a reference it is the rate of losses less that of gains, each bounded at half the level.
    """
    if promise.reference is None:
        return upper(tally.errors, tally.labels, level)
    losses = upper(tally.errors, tally.labels, level / 2)
    return losses - lower(tally.gains, tally.labels, level / 2)


def first_flaw(known: Calibration) -> Flaw | None:
    """Return the first thing in a calibration that its counts do not bear out, None if they bear out all."""
    return next(_flaws(known), None)


def _flaws(known: Calibration) -> Iterator[Flaw]:
    tiers = [tier for tier in TIERS if tier in known.models]
    last = known.promise.reference
    if not 0 <= known.cases <= _MOST:
        yield Flaw("cases", f"expected 0 to {_MOST}, got {known.cases}")
    if last is not None and last not in tiers[1:]:
        yield Flaw("promise.reference", f"expected a tier after the first one, got {last}")
    for at, each in enumerate(known.gates):
        yield from _counted(f"gates.{at}", each, known)
        yield from _placed(f"gates.{at}", each, known, tiers)
        yield from _held(f"gates.{at}", each, known)
    for at, refused in enumerate(known.not_promised):
        yield from _counted(f"not_promised.{at}", refused, known)
    for name, measured in (("with_gates", known.with_gates), ("without", known.without)):
        yield from _measured(name, measured, known.cases)


def _counted(where: str, each: Shown | NotShown, known: Calibration) -> Iterator[Flaw]:
    if not 0 <= each.labels <= known.cases:
        yield Flaw(f"{where}.labels", f"expected 0 to {known.cases} (all cases), got {each.labels}")
    if not 0 <= each.errors <= each.labels:
        yield Flaw(f"{where}.errors", f"expected 0 to {each.labels}, got {each.errors}")
    most = each.labels - each.errors if known.promise.reference else 0
    if not 0 <= each.gains <= most:
        yield Flaw(f"{where}.gains", f"expected 0 to {most}, got {each.gains}")
    if not isfinite(each.least_margin):
        yield Flaw(f"{where}.least_margin", f"expected a number, got {each.least_margin}")


def _placed(where: str, each: Shown, known: Calibration, tiers: Sequence[TierName]) -> Iterator[Flaw]:
    end = tiers.index(known.promise.reference) if known.promise.reference in tiers else len(tiers) - 1
    may = tiers[1:2] if each.stands else tiers[:end]
    if each.tier not in may:
        yield Flaw(f"{where}.tier", f"expected {' or '.join(may) or 'none'}, got {each.tier}")
    elif each.stands and (each.stands, each.outcome, each.after) != (tiers[0], "improve", "accept"):
        yield Flaw(f"{where}.stands", f"expected a win of {tiers[0]} against a tie of {each.tier}")
    elif each.after is not None and each.tier == tiers[0]:
        yield Flaw(f"{where}.after", f"expected none, because {each.tier} is the first tier")
    same = [(one.tier, one.outcome, one.after, one.stands) for one in known.gates]
    if same.count((each.tier, each.outcome, each.after, each.stands)) > 1:
        yield Flaw(where, "expected one gate for each class of opinions, got several")
    # The classes of one tier have no opinion in common.
    labels = Counter[str]()
    for one in known.gates:
        labels[one.tier] += 0 if one.stands else one.labels
    if labels[each.tier] > known.cases:
        told = f"expected {known.cases} at most in all gates of {each.tier}, got {labels[each.tier]}"
        yield Flaw(f"{where}.labels", told)


def _held(where: str, each: Shown, known: Calibration) -> Iterator[Flaw]:
    promise = Promise(known.promise.rate, known.promise.confidence, known.promise.reference)
    share = (1 - promise.confidence) / len(known.gates)
    least = bound(Tally(each.labels, each.errors, each.gains), share, promise)
    if least > promise.rate:
        seen = f"{each.errors} wrong of {each.labels}"
        told = f"{seen} is no evidence for at most {promise.rate:g}: it may be up to {least:.3g}"
        yield Flaw(f"{where}.labels", told)
    if not least - _ROUNDED <= each.bound <= promise.rate + _ROUNDED:
        yield Flaw(f"{where}.bound", f"expected {least:.6f} to {promise.rate:g}, got {each.bound:g}")


def _measured(where: str, each: Measured, cases: int) -> Iterator[Flaw]:
    limits = {"decided": (each.decided, cases), "errors": (each.errors, each.decided)}
    for name, (count, most) in {**limits, "by_gate": (each.by_gate, each.decided)}.items():
        if not 0 <= count <= most:
            yield Flaw(f"{where}.{name}", f"expected 0 to {most}, got {count}")
    for tier, count in each.calls.items():
        if count < 0:
            yield Flaw(f"{where}.calls.{tier}", f"expected no less than 0, got {count}")
