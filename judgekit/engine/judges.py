"""What an engine keeps between requests: the imports of judging, a gateway, and the judges made so far."""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from judgekit import environment
from judgekit.config import settings
from judgekit.engine.client import PROTOCOL
from judgekit.environment import __version__
from judgekit.errors import JudgekitError
from judgekit.judging import secret_search, service
from judgekit.providers import litellm
from judgekit.providers.gateway import before_asking, borrowed, open_gateway
from judgekit.providers.pace import Pace
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from concurrent.futures import Future

    from judgekit.judging.documents import Document
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.service import JudgeRequest
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

Value = TypeVar("Value")

MOST = 64  # judges
SECONDS = (
    10.0  # of a judge: a local server may have come up or gone; files and variables are always looked at
)
LONGEST = 0.02  # seconds for which a work that asks no provider keeps others from beginning
_MOST_FILES = 500  # of one folder, whose changes are seen
# What changes from one command to the next in the same shell, and means nothing here.
_PASSING = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES"})
_UNBOUNDED = 1_000_000
# Of flows, each of which mostly waits for models; the event loop's own threads are for short work.
_threads = ThreadPoolExecutor(64, thread_name_prefix="judgekit-flow")


class NotReady(JudgekitError):  # noqa: N818 - no error of who asks: they judge in their own process
    """What judging needs cannot be loaded here; the text says why."""


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
        variables = frozenset(item for item in environment.environ().items() if item[0] not in _PASSING)
        key = (project, judge_request, variables, stamp(project, judge_request))
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is None or now - kept.made > SECONDS or _failed(kept.judge):
            kept = _Kept(asyncio.create_task(self._make(project, judge_request)), now)
            for old in [each for each, other in self._kept.items() if now - other.made > SECONDS]:
                del self._kept[old]  # with the keys in it
            self._kept[key] = kept
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return await asyncio.shield(kept.judge)  # others may wait for it, too

    async def _make(self, project: Path | None, judge_request: JudgeRequest) -> DocumentJudge:
        # In a thread, with this caller's environment: it reads files and asks local servers for models.
        judge, _ = await asyncio.to_thread(service.document_judge, self._gateway, project, judge_request)
        return judge


def _failed(task: asyncio.Task[DocumentJudge]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def stamp(project: Path | None, judge_request: JudgeRequest) -> frozenset[tuple[str, int, int, int]]:
    """Return what changes whenever a file changes that a judge is made of."""
    paths = [str(file) for file in settings.sources(project)]
    if (rubric := judge_request.rubric) is not None and rubric.endswith((".yaml", ".yml")):
        paths.append(rubric)
    for home in (Path(environment.config_home()), *([project / ".judgekit"] if project else [])):
        for folder in (home, *(home / name for name in ("rubrics", "providers", "calibrations"))):
            with suppress(OSError):
                names = sorted(os.listdir(folder))[:_MOST_FILES]
                paths += [str(folder / name) for name in names if name.endswith((".yaml", ".yml", ".json"))]
    return frozenset(map(_state, paths))


def _state(path: str) -> tuple[str, int, int, int]:
    try:
        state = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, state.st_size, state.st_mtime_ns, state.st_ino


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
        self._paces: dict[tuple[object, ...], Pace] = {}
        self._beginning = asyncio.Lock()
        self._since = datetime.now(UTC)

    async def prepare(self) -> None:
        """Load what every judging needs; `failure` says why it cannot be, and nobody waits any longer."""
        try:
            await litellm.loaded()
        except Exception as error:  # noqa: BLE001 - the boundary: whatever fails, those who wait are told
            self.failure = one_line(f"{type(error).__name__}: {error}", 300)
        self.ready.set()
        with suppress(Exception):  # fails again, and is said, when it is used
            await asyncio.to_thread(secret_search.load)  # what a judging needs first

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
            async with self.beginning():
                return await judge.judge(document)
        endpoints = [endpoint for jury in judge.models_by_tier.values() for endpoint in jury]
        providers = sorted({(endpoint.profile.provider, endpoint.api_base or "") for endpoint in endpoints})
        async with self._paces.setdefault((most, *providers), Pace(most)).turn():
            return await judge.judge(document)

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        """Begin one work after another: the next when this one asks its provider, ends, or takes `LONGEST`.

        An event loop does what it is given at once in small steps of each, so that all are done when the
        last is. Begun one by one, each asks its provider as early as it can.
        """
        await self._beginning.acquire()
        held = [self._beginning]

        def begun() -> None:
            if held:
                held.pop().release()

        timer = asyncio.get_running_loop().call_later(LONGEST, begun)
        before = before_asking.set(begun)
        try:
            yield
        finally:
            before_asking.reset(before)
            timer.cancel()
            begun()

    async def aclose(self) -> None:
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
    with suppress(OSError), open("/proc/self/statm", encoding="ascii", newline="\n") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, which is what is left


class ThreadGateway:
    """The gateway of one event loop for a flow that runs in another thread, with an event loop of its own.

    When it is taken back, what the flow waits for is cancelled, and so the flow itself.
    """

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop) -> None:
        self._gateway, self._loop = gateway, loop
        self._calls: set[Future[Reply]] = set()
        self._is_back = False

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        if self._is_back:
            raise asyncio.CancelledError
        call = asyncio.run_coroutine_threadsafe(self._gateway.complete(endpoint, request), self._loop)
        self._calls.add(call)
        if self._is_back:  # since the line before the last: nobody else would cancel it
            call.cancel()
        try:
            return await asyncio.wrap_future(call)
        finally:
            self._calls.discard(call)

    async def aclose(self) -> None:
        """Leave open what others use."""

    def take_back(self) -> None:
        """Cancel all calls, those to come too."""
        self._is_back = True
        for call in list(self._calls):
            call.cancel()


async def in_thread(gateway: Gateway, work: Callable[[], Value]) -> Value:
    """Return what `work` returns, done in a thread with the caller's context and this gateway.

    When the caller is cancelled, so is what the work waits for.
    """
    loop = asyncio.get_running_loop()
    lent = ThreadGateway(gateway, loop)
    context = copy_context()
    context.run(borrowed.set, lent)
    try:
        return await loop.run_in_executor(_threads, context.run, work)
    finally:
        lent.take_back()
