"""What monitoring reads of a shared judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

if TYPE_CHECKING:
    from judgekit.verdict import Verdict

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300)


class Metrics:
    """The figures of one server, from its start on."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "judgekit_requests", "Requests answered.", ["route", "status"], registry=self._registry
        )
        self.inside = Gauge("judgekit_requests_inside", "Requests not answered yet.", registry=self._registry)
        self._verdicts = Counter(
            "judgekit_verdicts", "Verdicts given.", ["verdict", "rubric"], registry=self._registry
        )
        self._seconds = Histogram(
            "judgekit_judging_seconds", "Seconds a verdict took.", buckets=_SECONDS, registry=self._registry
        )
        self._rounds = Counter(
            "judgekit_rounds", "Rounds of judging.", ["tier", "failure"], registry=self._registry
        )
        self._cost = Counter(
            "judgekit_cost_usd", "US dollars spent, as far as prices are known.", registry=self._registry
        )

    def count(self, verdict: Verdict) -> None:
        """Count a verdict and what led to it."""
        self._verdicts.labels(verdict.verdict, f"{verdict.rubric.id}@{verdict.rubric.version}").inc()
        self._seconds.observe(verdict.duration_ms / 1000)
        self._cost.inc(verdict.cost_usd or 0)
        for each in verdict.rounds:
            self._rounds.labels(each.tier, each.failure.kind.value if each.failure else "").inc()

    def text(self) -> bytes:
        """Return all of them in Prometheus' text format."""
        return generate_latest(self._registry)
