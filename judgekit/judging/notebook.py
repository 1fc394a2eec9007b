"""A list of verdicts, with a short form, a table for a notebook, and a data frame."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from judgekit.errors import UsageError
from judgekit.judging.html import table_html
from judgekit.judging.verdict import Verdict
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

_MAX_ROWS = 100  # in a table, because notebooks store their output


class Verdicts(list[Verdict]):
    """A list of verdicts, with a short form for a notebook and a data frame."""

    def __repr__(self) -> str:
        """Summarise the verdicts, such as `<3 verdicts: 2 accept, 1 reject>`."""
        counts = Counter(verdict.verdict for verdict in self)
        words = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        about = f": {words}" if words else ""
        return f"<{format_count(len(self), 'verdict', 'verdicts')}{about}>"

    def _repr_html_(self) -> str:
        rows = []
        for verdict in self[:_MAX_ROWS]:
            row = _summarise(verdict)
            rows.append({**row, "scores": _write_scores(verdict.scores)})
        table = table_html(rows)
        if len(self) > _MAX_ROWS:
            table += f"<p>and {len(self) - _MAX_ROWS} more</p>"
        return f"<p>{escape(repr(self))}</p>{table}"

    def to_dict(self) -> list[dict[str, Any]]:
        """Return each full verdict as JSON types."""
        return [verdict.to_dict() for verdict in self]

    def to_pandas(self) -> pd.DataFrame:
        """Build a data frame with a row per verdict and a column per score.

        Raises `UsageError` if pandas is missing.
        """
        rows = []
        for verdict in self:
            row = _summarise(verdict)
            for name, score in (verdict.scores or {}).items():
                row[f"score.{name}"] = score
            rows.append(row)
        return make_data_frame(rows)


def make_data_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Build a data frame; raises `UsageError` if pandas is missing."""
    try:
        import pandas as pd  # noqa: PLC0415 - the user may not have installed it
    except ImportError:
        raise UsageError("to_pandas needs pandas; run: pip install pandas") from None
    return pd.DataFrame(list(rows))


def _summarise(verdict: Verdict) -> dict[str, Any]:
    """Pick a verdict's values for a row in a notebook's table."""
    # Without a reasoning, show the reasons to trust the verdict less.
    reasoning = verdict.reasoning or verdict.degraded or ""
    return {
        "id": verdict.name,
        "verdict": verdict.verdict,
        "average": verdict.average,
        "reasoning": reasoning,
        "findings": len(verdict.findings),
        "model": verdict.model,
        "cost_usd": verdict.cost_usd,
        "duration_ms": verdict.duration_ms,
    }


def _write_scores(scores: Mapping[str, float] | None) -> str:
    return ", ".join(f"{name} {score:g}" for name, score in (scores or {}).items())
