"""What an engine does for those who ask: it loads what judging needs, once, and keeps it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from judgekit import assess, redaction
from judgekit.engine.client import PROTOCOL
from judgekit.engine.prepared import Judges
from judgekit.engine.starts import Starts
from judgekit.environment import __version__
from judgekit.gateway import litellm_
from judgekit.gateway.open import open_gateway
from judgekit.gateway.pace import Pace
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.gateway.base import Gateway
    from judgekit.judging.documents import DocumentJudge
    from judgekit.judging.subject import Document
    from judgekit.verdict import Verdict

_UNBOUNDED = 1_000_000
_SAID = 300  # characters of why something could not be loaded


class NotReady(Exception):  # noqa: N818 - no error of who asks: they judge in their own process
    """What judging needs cannot be loaded here; the text says why."""


class Service:
    """One process's long-lived things: the gateway with its connections, and the judges made so far.

    To be made inside the event loop that uses it. `stop` is called when somebody asks the engine to leave,
    with the seconds without a request after which it shall, or zero for now.
    """

    def __init__(self, stop: Callable[[float], None]) -> None:
        self.stop = stop
        self.ready = asyncio.Event()  # or failed
        self.failure = ""
        self.gateway: Gateway = open_gateway({})
        self.judges = Judges(self.gateway)
        self._bearable: dict[tuple[object, ...], Pace] = {}
        self._starts = Starts()
        self._since = datetime.now(UTC)

    async def prepare(self) -> None:
        """Load what every judging needs; `failure` says why it cannot be, and nobody waits any longer."""
        try:
            await litellm_.loaded()
        except Exception as error:  # noqa: BLE001 - the boundary: whatever fails, those who wait are told
            self.failure = one_line(f"{type(error).__name__}: {error}", _SAID)
        self.ready.set()
        with suppress(Exception):  # fails again, and is said, when it is used
            await asyncio.to_thread(redaction.load)  # what a judging needs first

    async def usable(self) -> None:
        """Wait until what judging needs is loaded; raises `NotReady` where it cannot be."""
        await self.ready.wait()
        if self.failure:
            raise NotReady(f"not ready: {self.failure}")

    async def judged(self, judge: DocumentJudge, document: Document) -> Verdict:
        """Return the verdict on a document, judged when its provider bears one more at a time.

        Clients take turns: one that has a thousand documents lets the only one of another go between.
        """
        most = assess.bearable(judge, _UNBOUNDED)
        if most == _UNBOUNDED:
            async with self._starts.one():
                return await judge.judge(document)
        seats = [seat for jury in judge.juries.values() for seat in jury]
        whom = (most, *sorted({(seat.profile.provider, seat.api_base or "") for seat in seats}))
        if whom not in self._bearable:
            self._bearable[whom] = Pace(most)
        async with self._bearable[whom].turn():
            return await judge.judge(document)

    async def aclose(self) -> None:
        """Let go of connections and processes."""
        await self.gateway.aclose()

    def health(self, requests: int, waiting: int, *, leaving: bool) -> dict[str, Any]:
        """Return what `GET /v1/health` says."""
        return {
            "protocol": PROTOCOL,
            "version": __version__,
            "pid": os.getpid(),
            "since": self._since.isoformat(timespec="seconds"),
            "ready": self.ready.is_set() and not self.failure,
            "failure": self.failure or None,
            "leaving": leaving,
            "requests": requests,
            "waiting": waiting,
            "rss_bytes": rss_bytes(),
        }


def rss_bytes() -> int:
    """Return the memory of this process; the most it ever had where the present cannot be known."""
    try:
        with open("/proc/self/statm", encoding="ascii", newline="\n") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, which is what is left
