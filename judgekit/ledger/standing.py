"""Whether a gate may block: what promotion asks for, and what takes it back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from judgekit.ledger import kpi
from judgekit.ledger.read import Wanted
from judgekit.ledger.records import Fault, Label, ModeChange, VerdictLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from judgekit.ledger.kpi import Kpi
    from judgekit.ledger.records import Record

WINDOW = timedelta(days=30)  # what is looked at
CALIBRATION = timedelta(days=14)  # what it must reach back, at least


class Standing(NamedTuple):
    """Whether evidence speaks against blocking: `why` has a line for each KPI that is shown to be missed.

    `told` says that the ledger already has the line about this return to advisory.
    """

    advisory: bool
    why: list[str]
    told: bool = False


class Readiness(NamedTuple):
    """Whether a gate may be promoted; `missing` says for each KPI (and for the time) what it lacks."""

    kpis: list[Kpi]
    missing: list[str]
    since: datetime | None

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def window(now: datetime | None = None) -> Wanted:
    """Return what to read for `standing` and `readiness`: the other files of a ledger stay closed."""
    kinds = (VerdictLine, Label, ModeChange, Fault)
    return Wanted(since=(now or datetime.now(UTC)) - WINDOW, kinds=kinds)


def standing(records: Iterable[Record], rubric: str | None = None, now: datetime | None = None) -> Standing:
    """Tell whether blocking must be treated as advisory, from the records of the last `WINDOW`.

    Only evidence since the last promotion counts (who promoted knew the earlier one), of the rubric's version
    `id@version` where it is given. A lack of verdicts or labels is no evidence.
    """
    lines = _recent(records, now or datetime.now(UTC))
    changes = sorted(
        (each for each in lines if isinstance(each, ModeChange)), key=lambda each: each.timestamp
    )
    promoted = max((each.timestamp for each in changes if each.mode == "blocking"), default=None)
    since = [each for each in lines if promoted is None or each.timestamp >= promoted]
    found = kpi.measure(kpi.evidence(_under(since, rubric)))
    why = [said(each) for each in found if each.state == "missed" and not _is_too_good(each)]
    return Standing(bool(why), why, bool(changes) and changes[-1].mode == "advisory")


def readiness(records: Iterable[Record], rubric: str | None = None, now: datetime | None = None) -> Readiness:
    """Tell what a promotion to blocking still lacks, from the records of the last `WINDOW`."""
    now = now or datetime.now(UTC)
    found = kpi.evidence(_under(_recent(records, now), rubric))
    kpis = kpi.measure(found)
    since = min((each.timestamp for each in found.verdicts), default=None)
    missing = [_lack(each) for each in kpis if each.state != "holds"]
    if since is None or now - since < CALIBRATION:
        days = 0 if since is None else (now - since).days
        missing.insert(0, f"time: verdicts reach back {days} days; {CALIBRATION.days} are needed")
    return Readiness(kpis, missing, since)


def said(each: Kpi) -> str:
    """Return a KPI in one line: value, interval, limit."""
    if each.value is None:
        return f"{each.limit.title}: nothing measured yet ({wanted(each)})"
    of = "labelled verdicts" if each.limit.labelled else "verdicts"
    span = (
        f", 95 % interval {' to '.join(number(each, end) for end in each.interval)}" if each.interval else ""
    )
    return f"{each.limit.title} {number(each, each.value)} of {each.total} {of}{span} ({wanted(each)})"


def wanted(each: Kpi) -> str:
    """Return what a KPI must be."""
    low, high = each.limit.low, each.limit.high
    if low is not None and high is not None:
        return f"wanted {number(each, low)} to {number(each, high)}"
    if low is not None:
        return f"wanted above {number(each, low)}"
    return f"wanted below {number(each, high or 0)}"


def _is_too_good(each: Kpi) -> bool:
    """Whether more is GO than wanted: no reason to stop a blocking that had nothing to do."""
    return each.name == "go" and (each.value or 0) > (each.limit.high or 1)


def _lack(each: Kpi) -> str:
    if each.state == "open" and each.limit.labelled:
        word = "NO-GO" if each.name == "wrong_nogo" else "GO"
        return f"{said(each)}: not enough labels of {word} verdicts to be sure; run judgekit label"
    few = each.value is not None and each.total < kpi.LEAST
    return f"{said(each)}: at least {kpi.LEAST} verdicts are needed" if few else said(each)


def _recent(records: Iterable[Record], now: datetime) -> Sequence[Record]:
    return [each for each in records if each.timestamp >= now - WINDOW]


def _under(records: Iterable[Record], rubric: str | None) -> Iterable[Record]:
    for each in records:
        if not isinstance(each, VerdictLine) or rubric is None or _is_of(each, rubric):
            yield each


def _is_of(verdict: VerdictLine, rubric: str) -> bool:
    """Whether a verdict counts for a rubric's version; an older record names none and counts for each."""
    if verdict.imported is not None and not verdict.rubric.version:
        return rubric.startswith(f"{verdict.rubric.id}@")
    return rubric == f"{verdict.rubric.id}@{verdict.rubric.version}"


def number(each: Kpi, value: float) -> str:
    """Return a value of a KPI with its unit."""
    return f"{value:.1f} s" if each.limit.unit == "seconds" else f"{value:.1%}".replace("%", " %")
