"""Figures of the team's server for monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from judgekit.judging.verdict import Verdict


METRICS_TYPE = CONTENT_TYPE_LATEST  # of the answer that holds them


class Metrics:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        registry = CollectorRegistry()
        self._registry = registry
        self._requests = Counter(
            "judgekit_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        self._active_requests = Gauge(
            "judgekit_requests_inside", "Requests without a response yet.", registry=registry
        )
        self._verdicts = Counter(
            "judgekit_verdicts", "Verdicts given.", ["verdict", "rubric"], registry=registry
        )
        self._seconds = Histogram(
            "judgekit_judging_seconds",
            "Seconds for a verdict.",
            buckets=(0.1, 0.3, 1, 3, 10, 30, 60, 120, 300),
            registry=registry,
        )
        self._rounds = Counter(
            "judgekit_rounds", "Rounds of judging.", ["tier", "failure"], registry=registry
        )
        self._cost = Counter(
            "judgekit_cost_usd", "US dollars spent, where the price is known.", registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, and count it by route and status."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        status = 0  # stays 0 if there's no response

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)  # only the response's first message has a status
            await send(message)

        with self._active_requests.track_inprogress():
            await self._app(scope, receive, send_and_note_status)

        # Count by route rather than by path, because each unknown path would add a counter.
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, str(status)).inc()

    def text(self) -> bytes:
        """Return the figures in the text format of Prometheus."""
        return generate_latest(self._registry)

    def count(self, verdict: Verdict) -> None:
        """Count a verdict, with its rounds, duration and cost."""
        rubric = f"{verdict.rubric.id}@{verdict.rubric.version}"
        self._verdicts.labels(verdict.verdict, rubric).inc()
        self._seconds.observe(verdict.duration_ms / 1000)
        self._cost.inc(verdict.cost_usd or 0)
        for round_ in verdict.rounds:
            failure = round_.failure.kind.value if round_.failure else ""
            self._rounds.labels(round_.tier, failure).inc()
