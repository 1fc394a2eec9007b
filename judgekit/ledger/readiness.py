"""Whether a gate may block: what promotion asks for, and what takes it back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from judgekit.ledger import kpi
from judgekit.ledger.rates import LEAST
from judgekit.ledger.records import Fault, GateWord, Label, ModeChange, OverrideLine, VerdictLine
from judgekit.ledger.store import LineFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.ledger import rates
    from judgekit.ledger.kpi import Evidence, Kpi
    from judgekit.ledger.records import Record

WINDOW = timedelta(days=30)  # what is looked at
CALIBRATION = timedelta(days=14)  # what it must reach back, at least


class BlockingStatus(NamedTuple):
    """Whether people's labels speak against blocking: `why` has a line for each rate that is shown missed.

    `told` says that the ledger already has the line about this return to advisory.
    """

    advisory: bool
    why: list[str]
    told: bool = False


class Readiness(NamedTuple):
    """Whether a gate may be promoted; `missing` says for each KPI (and for the time) what it lacks.

    `found` is what was measured, and `labels` how many labels more settle the rates, by word.
    """

    kpis: list[Kpi]
    missing: list[str]
    since: datetime | None
    found: Evidence
    labels: Mapping[GateWord, int]

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def window(now: datetime | None = None) -> LineFilter:
    """Return what to read for `standing` and `readiness`: the other files of a ledger stay closed."""
    kinds = (VerdictLine, Label, OverrideLine, ModeChange, Fault)
    return LineFilter(since=(now or datetime.now(UTC)) - WINDOW, kinds=kinds)


def standing(
    records: Iterable[Record], rubric: str | None = None, now: datetime | None = None
) -> BlockingStatus:
    """Tell whether blocking must be treated as advisory, from the records of the last `WINDOW`.

    Only what people said of verdicts can show that: a share of verdicts, or how long they took, is in the
    hands of whoever pushes. Only evidence since the last promotion counts (who promoted knew the earlier
    one), of the rubric's version `id@version` where it is given. A lack of labels is no evidence.
    """
    lines = _recent(records, now or datetime.now(UTC))
    changes = sorted(
        (line for line in lines if isinstance(line, ModeChange)), key=lambda each: each.timestamp
    )
    promoted = max((change.timestamp for change in changes if change.mode == "blocking"), default=None)
    since = [line for line in lines if promoted is None or line.timestamp >= promoted]
    found = kpi.measure(kpi.evidence(since, rubric))
    why = [said(each) for each in found if each.limit.rate and each.state == "missed"]
    return BlockingStatus(bool(why), why, bool(changes) and changes[-1].mode == "advisory")


def readiness(records: Iterable[Record], rubric: str | None = None, now: datetime | None = None) -> Readiness:
    """Tell what a promotion to blocking still lacks, from the records of the last `WINDOW`."""
    now = now or datetime.now(UTC)
    evidence = kpi.evidence(_recent(records, now), rubric)
    kpis = kpi.measure(evidence)
    since = min((verdict.timestamp for verdict in evidence.verdicts), default=None)
    wanted_labels = kpi.wanted(evidence)
    missing = [_lack(each, wanted_labels.get(each.name)) for each in kpis if each.state != "holds"]
    if since is None or now - since < CALIBRATION:
        days = 0 if since is None else (now - since).days
        missing.insert(0, f"time: verdicts reach back {days} days; {CALIBRATION.days} are needed")
    labels: dict[GateWord, int] = {}
    for wanted_label in wanted_labels.values():
        labels |= {word: max(count, labels.get(word, 0)) for word, count in (wanted_label or {}).items()}
    return Readiness(kpis, missing, since, evidence, labels)


def said(each: Kpi) -> str:
    """Return a KPI in one line: value, interval, limit."""
    if each.value is None and each.interval is None:
        return f"{each.limit.title}: nothing measured yet ({wanted(each)})"
    value = "unknown" if each.value is None else number(each, each.value)
    of = "labelled verdicts" if each.limit.labelled else "verdicts"
    of = f"from {each.total} {of}" if each.limit.rate else f"of {each.total} {of}"
    span = (
        f", 95 % interval {' to '.join(number(each, end) for end in each.interval)}" if each.interval else ""
    )
    return f"{each.limit.title} {value} {of}{span} ({wanted(each)})"


def wanted(each: Kpi) -> str:
    """Return what a measure must be."""
    low, high = each.limit.low, each.limit.high
    if low is not None and high is not None:
        return f"wanted {number(each, low)} to {number(each, high)}"
    if low is not None:
        return f"wanted above {number(each, low)}"
    below = f"wanted below {number(each, high or 0)}"
    return f"{below}, the interval up to {number(each, 2 * (high or 0))}" if each.limit.rate else below


def _lack(each: Kpi, labels: rates.Wanted | None) -> str:
    if each.limit.rate:
        return f"{said(each)}: {_needed(each, labels)}"
    few = each.value is not None and each.total < LEAST
    return f"{said(each)}: at least {LEAST} verdicts are needed" if few else said(each)


def _needed(each: Kpi, labels: rates.Wanted | None) -> str:
    """Say what settles whether a rate holds."""
    if each.state == "missed":
        return "the labels show that it is missed; change the rubric or the models"
    if labels is None:
        return "labels of all these verdicts would not settle it; more verdicts are needed"
    counts = " and ".join(f"{count} more {word} verdicts" for word, count in sorted(labels.items()))
    misses = each.value is not None and not each.limit.holds(each.value)
    told = (
        "the estimate misses it, and to tell whether by chance" if misses else "not enough labels to be sure"
    )
    return f"{told}: label {counts} (judgekit label asks for them first)"


def _recent(records: Iterable[Record], now: datetime) -> Sequence[Record]:
    """Return the records of the last `WINDOW`; one that is dated later than now waits for its time."""
    return [record for record in records if now - WINDOW <= record.timestamp <= now]


def number(each: Kpi, value: float) -> str:
    """Return a value of a KPI with its unit."""
    return f"{value:.1f} s" if each.limit.unit == "seconds" else f"{value:.1%}".replace("%", " %")
