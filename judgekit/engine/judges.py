"""The things an engine keeps between requests: imports, a gateway, and the judges made so far."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from judgekit import environment
from judgekit.config import settings
from judgekit.errors import JudgekitError
from judgekit.judging import service as judging_service
from judgekit.providers import litellm
from judgekit.providers.gateway import borrowed_gateway, open_gateway
from judgekit.providers.pace import Pace
from judgekit.redaction import secret_search
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from judgekit.judging.compare import PairJudge
    from judgekit.judging.documents import ComparisonInput
    from judgekit.judging.orchestrator import Judge, Record
    from judgekit.judging.question import Subject
    from judgekit.judging.ranking import RankingJudge
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.score import DocumentJudge
    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

Value = TypeVar("Value")

MAX_JUDGE_AGE_SECONDS = (
    10.0  # for which a judge can be reused; after that, a local model server may have been started
)
_CONFIG_ENDINGS = (".yaml", ".yml", ".json")
_CONFIG_FOLDERS = ("rubrics", "providers", "calibrations")
# Variables that differ between commands of the same shell, and don't matter here.
_IGNORED_VARIABLES = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES"})
_UNBOUNDED = 1_000_000  # judgings at once, if no provider of a judge limits them
# For flows, which mostly wait for models; the event loop's own threads are for short work.
_threads = ThreadPoolExecutor(64, thread_name_prefix="judgekit-flow")


class NotReady(JudgekitError):  # noqa: N818 - no error of the caller, who judges in its own process
    """Judging's requirements can't be loaded here; the text says why."""

    wire_name = "not_ready"
    status = 503


class Service:
    """A gateway with its connections, and the judges made so far; `stop` is called on a request to leave."""

    def __init__(self, stop: Callable[[float], None] = lambda _: None) -> None:
        """Create a service without any judges yet.

        `stop(seconds)` stops the engine once it has been idle for that long. `stop(0)` stops it now.
        """
        self.stop = stop
        self.started_at = datetime.now(UTC)
        self.ready = asyncio.Event()  # also set if `prepare` failed
        self.failure = ""  # why `prepare` failed
        self.gateway: Gateway = open_gateway({})
        # By cache key: the task that builds a judge, and the time when that task was started.
        self.cached_judges: dict[object, tuple[asyncio.Task[Any], float]] = {}
        # By limit and providers: the `Pace` that limits how many judgings use these providers at once.
        self._paces: dict[tuple[object, ...], Pace] = {}

    async def prepare(self) -> None:
        """Load the library that calls models, set `ready`, then load the rules for secrets. Doesn't raise.

        `ready` is set even after a failure. Then `failure` contains the reason.
        """
        try:
            await litellm.load_in_thread()
        except Exception as error:  # noqa: BLE001 - any failure is reported to waiting clients
            self.failure = shorten_to_line(f"{type(error).__name__}: {error}", 300)
        self.ready.set()
        await self._preload_secret_rules()

    async def _preload_secret_rules(self) -> None:
        """Load the rules for secrets, so that the first request needn't wait for them. Doesn't raise."""
        # The request that needs the rules will report a failure.
        with suppress(Exception):
            await asyncio.to_thread(secret_search.load_format_rules)

    async def wait_until_ready(self) -> None:
        """Wait until everything is loaded. Raises `NotReady` if that failed."""
        await self.ready.wait()
        if self.failure:
            raise NotReady(f"not ready: {self.failure}")

    async def get_judge(self, project: Path | None, request: JudgeRequest) -> DocumentJudge:
        """Return a judge that uses the caller's environment. Raises `ConfigError` or `UsageError`."""
        make = partial(judging_service.build_document_judge, self.gateway, project, request)
        judge, _ = await self._make_or_reuse(make, project, request)
        return judge

    async def get_comparison_judge(
        self, texts: ComparisonInput, project: Path | None, request: JudgeRequest
    ) -> PairJudge | RankingJudge:
        """Return a judge that can compare these texts. It may have been built for other texts.

        Raises `ConfigError` or `UsageError`.
        """
        make = partial(
            judging_service.build_comparison_judge, self.gateway, texts, project, request
        )
        # The judge depends on how many texts there are, with and without copies, but not on their words.
        text_counts = (len(texts.files), len(texts.distinct_letters))
        return await self._make_or_reuse(make, project, request, *text_counts)

    async def _make_or_reuse(
        self,
        make: Callable[[], Value],
        project: Path | None,
        request: JudgeRequest,
        *text_counts: int,
    ) -> Value:
        """Return a judge built by `make`, or reuse a recent one for the same configuration.

        A judge can be reused for `MAX_JUDGE_AGE_SECONDS`, as long as the project, request, text counts,
        environment variables and configuration files are the same.
        """
        # Everything that could change the judge is in the key.
        config = _fingerprint_config(project, request)
        key = (project, request, _list_variables(), config, text_counts)

        now = time.monotonic()
        self._drop_unusable(key, now)
        if key not in self.cached_judges:
            # `make` blocks, because it reads files and asks local servers for their models.
            new_task = asyncio.create_task(asyncio.to_thread(make))
            self.cached_judges[key] = (new_task, now)

        task, _ = self.cached_judges[key]
        # Other callers may be waiting for the task, so it goes on if this caller is cancelled.
        judge: Value = await asyncio.shield(task)
        return judge

    def _drop_unusable(self, key: object, now: float) -> None:
        """Drop all judges that are too old, and also the judge for `key` if building it failed."""
        for cached_key, (task, made_at) in list(self.cached_judges.items()):
            is_old = now - made_at > MAX_JUDGE_AGE_SECONDS
            is_requested = cached_key == key
            if is_old or (is_requested and _has_failed(task)):
                # The cache key contains environment variables, so this also forgets any API keys in them.
                del self.cached_judges[cached_key]

    async def run_judge(self, judge: Judge[Any, Subject, Record], subject: Subject) -> Record:
        """Judge a subject, and return its record, such as a verdict.

        If one of the judge's providers limits the number of concurrent judgings, waits for a turn first.
        """
        limit = judging_service.max_concurrency(judge, _UNBOUNDED)
        if limit == _UNBOUNDED:  # no provider has a limit
            return await judge.judge(subject)

        # A `Pace` lets `limit` judgings run at once. Judges with the same limit and providers share one.
        limit_and_providers = (limit, *sorted(_collect_providers(judge)))
        if limit_and_providers not in self._paces:
            self._paces[limit_and_providers] = Pace(limit)
        pace = self._paces[limit_and_providers]
        async with pace.hold_turn():
            return await judge.judge(subject)


def _list_variables() -> frozenset[tuple[str, str]]:
    """List the environment variables that could change a judge."""
    variables = set()
    for name, value in environment.environ().items():
        if name not in _IGNORED_VARIABLES:
            variables.add((name, value))
    return frozenset(variables)


def _has_failed(task: asyncio.Task[Any]) -> bool:
    """Whether a task was cancelled or raised an error."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None


def _collect_providers(judge: Judge[Any, Any, Any]) -> set[tuple[str, str]]:
    """Collect the providers of a judge's models, each with its base URL, or "" for the provider's own."""
    providers = set()
    for models in judge.models_by_tier.values():
        for model in models:
            providers.add((model.profile.provider, model.api_base or ""))
    return providers


def _fingerprint_config(project: Path | None, request: JudgeRequest) -> frozenset[object]:
    """Return a value that changes whenever a configuration file of the judge is added, removed or edited."""
    paths = {str(file) for file in settings.list_config_paths(project)}
    rubric = request.rubric
    if rubric is not None and rubric.endswith((".yaml", ".yml")):  # a file, not a rubric id
        paths.add(rubric)

    folders = [environment.config_home()]
    if project:
        folders.append(os.path.join(project, ".judgekit"))
    for folder in folders:
        paths |= _list_config_files(folder)
    return frozenset((path, environment.get_file_stamp(path)) for path in paths)


def _list_config_files(folder: str) -> set[str]:
    """List the configuration files in a folder and in its subfolders, such as `rubrics`."""
    # This runs for every request, so it uses `str`, which is faster than `Path`.
    paths = set()
    for name in _list_names(folder):
        if name.endswith(_CONFIG_ENDINGS):
            paths.add(os.path.join(folder, name))
        elif name in _CONFIG_FOLDERS:
            subfolder = os.path.join(folder, name)
            for file_name in _list_names(subfolder):
                if file_name.endswith(_CONFIG_ENDINGS):
                    paths.add(os.path.join(subfolder, file_name))
    return paths


def _list_names(folder: str) -> list[str]:
    """List the names in a folder, or [] if it can't be read."""
    with suppress(OSError):
        return os.listdir(folder)
    return []


def rss_bytes() -> int:
    """Return this process's resident memory in bytes. On macOS it's the peak, and on Windows 0."""
    # Only Linux has this file.
    with suppress(OSError), open("/proc/self/statm", encoding="ascii", newline="\n") as file:
        _, resident_pages, *_ = file.read().split()
        return int(resident_pages) * os.sysconf("SC_PAGE_SIZE")
    with suppress(ImportError):
        import resource  # noqa: PLC0415 - doesn't exist on Windows

        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_maxrss  # in bytes on macOS
    return 0


class ThreadGateway:
    """Lends an event loop's gateway to code in another thread, until `stop_lending` is called."""

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop) -> None:
        self._gateway = gateway
        self._loop = loop
        self._calls: set[Future[Reply]] = set()
        self._has_stopped_lending = False

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Let the gateway's event loop complete a request, and wait for the reply in this thread's loop."""
        call = asyncio.run_coroutine_threadsafe(
            self._gateway.complete(endpoint, request), self._loop
        )
        self._calls.add(call)
        # `stop_lending` cancels the calls in `_calls`. If it ran before this one was added, cancel it here.
        if self._has_stopped_lending:
            call.cancel()
        try:
            return await asyncio.wrap_future(call)
        finally:
            self._calls.discard(call)

    async def aclose(self) -> None: ...

    def stop_lending(self) -> None:
        """Cancel the borrowing thread's calls, including any that it starts later."""
        self._has_stopped_lending = True
        for call in list(self._calls):
            call.cancel()


async def run_in_thread(gateway: Gateway, work: Callable[[], Value]) -> Value:
    """Run `work` in a thread that calls models through this event loop's `gateway`, and return its result.

    Cancelling the caller cancels the calls, but the thread itself can't be stopped.
    """
    loop = asyncio.get_running_loop()
    thread_gateway = ThreadGateway(gateway, loop)
    # In the thread, `open_gateway` returns `borrowed_gateway`. Set that variable in a copy of the context,
    # because this event loop must keep using its own gateway.
    thread_context = copy_context()
    thread_context.run(borrowed_gateway.set, thread_gateway)
    try:
        return await loop.run_in_executor(_threads, thread_context.run, work)
    finally:
        thread_gateway.stop_lending()  # cancels the calls that are still running
