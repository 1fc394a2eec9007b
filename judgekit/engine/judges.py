"""What an engine keeps between requests: the imports of judging, and the judges that were asked for.

Judgements begin one after another, so that the first of many is not as late as the last.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment
from judgekit.config import settings
from judgekit.engine.client import PROTOCOL
from judgekit.environment import __version__
from judgekit.judging import redact, service
from judgekit.providers import litellm
from judgekit.providers.gateway import before_asking, open_gateway
from judgekit.providers.pace import Pace
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.service import JudgeRequest
    from judgekit.judging.subject import Document
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Gateway


MOST = 64
# A local server may have come up or gone since; files and variables are looked at every time.
SECONDS = 10.0
_MOST_FILES = 500
# What changes from one command to the next in the same shell, and means nothing here.
_PASSING = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES"})
Stamp = frozenset[tuple[str, int, int, int]]


class _Kept(NamedTuple):
    judge: asyncio.Task[DocumentJudge]
    made: float


class Judges:
    """Makes judges through one gateway and keeps the latest."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._kept: OrderedDict[object, _Kept] = OrderedDict()

    async def get(self, project: Path | None, judge_request: JudgeRequest) -> DocumentJudge:
        """Return the judge for a request in a project and the current caller's environment.

        Raises `ConfigError` or `UsageError`.
        """
        variables = environment.environ()
        key = (project, judge_request, _meaning(variables), stamp(project, judge_request))
        kept = self._kept.get(key)
        if kept is None or time.monotonic() - kept.made > SECONDS or _failed(kept.judge):
            kept = _Kept(asyncio.create_task(self._make(project, judge_request)), time.monotonic())
            self._forget_old()
            self._kept[key] = kept
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return await asyncio.shield(kept.judge)  # others may wait for it, too

    def _forget_old(self) -> None:
        """Let go of judges, and the keys in them, that will not be used again."""
        now = time.monotonic()
        for key in [key for key, kept in self._kept.items() if now - kept.made > SECONDS]:
            del self._kept[key]

    async def _make(self, project: Path | None, judge_request: JudgeRequest) -> DocumentJudge:
        # In a thread, with this caller's environment: it reads files and asks local servers for models.
        judge, _ = await asyncio.to_thread(service.document_judge, self._gateway, project, judge_request)
        return judge


def stamp(project: Path | None, judge_request: JudgeRequest) -> Stamp:
    """Return what changes whenever a file changes that a judge is made of."""
    folders = [Path(environment.config_home())]
    if project is not None:
        folders.append(project / ".judgekit")
    files = [*settings.sources(project)]
    if judge_request.rubric is not None and judge_request.rubric.endswith((".yaml", ".yml")):
        files.append(Path(judge_request.rubric))
    found: set[tuple[str, int, int, int]] = set()
    for folder in folders:
        found |= _states(folder)
    for file in files:
        found |= {_state(str(file))}
    return frozenset(found)


def _states(folder: Path) -> set[tuple[str, int, int, int]]:
    """Return the states of the YAML and JSON files in a folder and in the folders in it."""
    found: set[tuple[str, int, int, int]] = set()
    for base in (folder, *(folder / name for name in ("rubrics", "providers", "calibrations"))):
        try:
            names = sorted(os.listdir(base))[:_MOST_FILES]
        except OSError:
            continue
        found |= {_state(str(base / name)) for name in names if name.endswith((".yaml", ".yml", ".json"))}
    return found


def _state(path: str) -> tuple[str, int, int, int]:
    try:
        state = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, state.st_size, state.st_mtime_ns, state.st_ino


def _meaning(variables: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in variables.items() if name not in _PASSING)


def _failed(task: asyncio.Task[DocumentJudge]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


LONGEST = 0.02  # seconds for which a work that asks no provider keeps others from beginning


class Starts:
    """The turns to begin: the next one comes when the work before it has asked a provider, or has ended.

    What an event loop is given at once it does in small steps of each, and all are done when the last is.
    Begun one by one, each asks its provider as early as it can, and their answers do not come all at once
    either. To be made inside the event loop that uses it.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for the turn to begin a work, which is what is done inside."""
        await self._turn.acquire()
        given = _Given(self._turn)
        timer = asyncio.get_running_loop().call_later(LONGEST, given.back)
        before = before_asking.set(given.back)
        try:
            yield
        finally:
            before_asking.reset(before)
            timer.cancel()
            given.back()


class _Given:
    """A turn that was given, and can be given back once."""

    def __init__(self, turn: asyncio.Lock) -> None:
        self._turn: asyncio.Lock | None = turn

    def back(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()


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
            await litellm.loaded()
        except Exception as error:  # noqa: BLE001 - the boundary: whatever fails, those who wait are told
            self.failure = one_line(f"{type(error).__name__}: {error}", _SAID)
        self.ready.set()
        with suppress(Exception):  # fails again, and is said, when it is used
            await asyncio.to_thread(redact.load)  # what a judging needs first

    async def usable(self) -> None:
        """Wait until what judging needs is loaded; raises `NotReady` where it cannot be."""
        await self.ready.wait()
        if self.failure:
            raise NotReady(f"not ready: {self.failure}")

    async def judged(self, judge: DocumentJudge, document: Document) -> Verdict:
        """Return the verdict on a document, judged when its provider bears one more at a time.

        Clients take turns: one that has a thousand documents lets the only one of another go between.
        """
        most = service.max_concurrency(judge, _UNBOUNDED)
        if most == _UNBOUNDED:
            async with self._starts.one():
                return await judge.judge(document)
        endpoints = [endpoint for jury in judge.models_by_tier.values() for endpoint in jury]
        whom = (
            most,
            *sorted({(endpoint.profile.provider, endpoint.api_base or "") for endpoint in endpoints}),
        )
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
