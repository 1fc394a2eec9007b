"""One run of the gate: changed files in, a word for each out: GO, NO-GO or UNDETERMINED.

A changed file is judged as the pushed blob. Files that cannot be judged, and those that a person decided
about, get a verdict without a model.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import operator
import time
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import settings as configuration
from judgekit.errors import ConfigError, InputError
from judgekit.gate import commits, policy, tasks
from judgekit.gate.report import Begin, Held, Report, Row
from judgekit.judging import documents, panel, service
from judgekit.judging.cache import CountingCache
from judgekit.judging.documents import Author, Document
from judgekit.judging.service import JudgeRequest
from judgekit.judging.verdict import Subject
from judgekit.ledger import (
    Ledger,
    LedgerError,
    LineFilter,
    ModeChange,
    OverrideLine,
    PushRecord,
    verdict_line,
)
from judgekit.ledger.export import hand_on
from judgekit.ledger.kpi import standing, window
from judgekit.ledger.records import newest_override, word_of
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway
from judgekit.rubric import loader
from judgekit.text import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from judgekit.config.settings import Config
    from judgekit.gate.commits import ChangedFile, PushedChanges
    from judgekit.gate.remotes import RefUpdate
    from judgekit.git import Repository
    from judgekit.judging.verdict import Verdict
    from judgekit.ledger.records import GateMode
    from judgekit.rubric.loader import LoadedRubric

    Find: TypeAlias = Callable[[Callable[[ChangedFile], bool]], PushedChanges]

MAX_BYTES = 4_000_000  # of one blob: ten times what models are shown of a text
AT_ONCE = 32
_LFS = b"version https://git-lfs.github.com/spec/"


class PushedFile(NamedTuple):
    """A file of a push: as a document, or else the reason why it cannot be judged."""

    change: ChangedFile
    document: Document | None
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.change.path, self.change.blob


def read(change: ChangedFile, data: bytes | None) -> PushedFile:
    """Return a changed file as it is pushed; `data` is None where the blob cannot be had."""
    if data is None:
        return PushedFile(change, None, f"larger than {MAX_BYTES // 1_000_000} MB, or not in this clone")
    if data.startswith(_LFS):
        return PushedFile(change, None, "stored with Git LFS: the push contains only a pointer")
    try:
        file = documents.decode(change.path, data)
    except InputError as error:
        return PushedFile(change, None, str(error).removeprefix(f"{encodable(change.path)}: "))
    # The families of all models that had a hand in what the push makes of the file.
    hands = (change.commit, *change.earlier)
    families = [family for each in hands for family in panel.signed(each.people, each.trailers)]
    author = Author(name=encodable(change.commit.author), family=panel.listed(list(dict.fromkeys(families))))
    task_id = documents.task_id_of(file)
    return PushedFile(change, Document((file,), task_id, author=author, commit=change.commit.oid))


class Run(NamedTuple):
    """How a run is wanted: a `mode` that goes before the configured one, and who hears of each file.

    `on_start` gets what is known when judging begins. `spent` are seconds of the budget that are gone. A run
    that is begun again with the same `id` names its verdicts alike, so that a ledger counts none twice.
    """

    mode: GateMode | None = None
    on_verdict: Callable[[Row], None] = lambda _: None
    on_start: Callable[[Begin], None] = lambda _: None
    spent: float = 0.0
    id: str = ""


def check_push(
    repository: Repository, updates: Sequence[RefUpdate], remote: str, url: str, run: Run
) -> Report:
    """Judge what a push to `remote` brings there.

    Raises `JudgekitError`: nothing was judged then, and the push is to leave, unless it is `Held`.
    """
    push = PushRecord(
        remote=url or remote, ref=", ".join(update.remote_ref for update in updates if not update.deletes)
    )
    rules = policy.commits_of(repository, updates, remote, url)
    find = functools.partial(commits.of_push, repository, updates, remote, url=url)
    return _check(repository, rules, push, find, run)


def check_since(repository: Repository, base: str, run: Run) -> Report:
    """Judge what the commits since `base` change, under the rules as they stand at `base`.

    Raises `UnknownCommit` where there is no such base, any other `JudgekitError` as `check_push` does.
    """
    rules = [commits.commit_id(repository, base)]
    find = functools.partial(commits.since, repository, base, "HEAD")
    return _check(repository, rules, PushRecord(ref=base), find, run)


def _check(repository: Repository, rules: Sequence[str], push: PushRecord, find: Find, run: Run) -> Report:
    settings: Config | None = None
    with ExitStack() as stack:
        try:
            loaded = _load(repository, rules, stack)
            settings, folder = max(loaded, key=_strictness)
            policy.keep(repository, rules, settings.gate.paths, settings.gate.authors)
            chosen = commits.ChangeFilter(*((config.gate.paths, config.gate.authors) for config, _ in loaded))
            return _judged(repository, settings, folder, find(chosen), push, run)
        except Exception as error:
            gate = (settings or configuration.load(None)).gate
            if (run.mode or gate.mode) == "blocking" and gate.undetermined == "block":
                raise Held(str(error)) from error
            raise


def _load(repository: Repository, rules: Sequence[str], stack: ExitStack) -> list[tuple[Config, Path]]:
    """Return the rules at commits, each with its folder; raises `ConfigError` where none can be read."""
    loaded: list[tuple[Config, Path]] = []
    problem: ConfigError | None = None
    for commit in rules or (None,):
        try:
            folder = stack.enter_context(policy.rules(repository, commit))
            loaded.append((configuration.load(folder), folder))
        except ConfigError as error:
            problem = problem or error
    if problem is not None and not loaded:
        raise problem
    return loaded


def _strictness(loaded: tuple[Config, Path]) -> tuple[bool, ...]:
    """Return what orders the rules that may hold: the strictest are the greatest."""
    config, _ = loaded
    return (
        config.gate.mode == "blocking",
        config.gate.undetermined == "block",
        config.judge.independence == "require",
        config.gate.judge_mode == "strict",
    )


def _judged(
    repository: Repository, settings: Config, folder: Path, pushed: PushedChanges, push: PushRecord, run: Run
) -> Report:
    gate = settings.gate
    mode = run.mode or gate.mode
    holds = gate.undetermined == "block"
    rows: list[Row] = []
    notes: list[str] = []
    if pushed.changes:
        ledger = Ledger.of(repository.folder)
        loaded = loader.configured_rubric("gate", gate.rubric, folder)
        if mode == "blocking":
            mode, notes = _standing(ledger, loaded.rubric.ref)
        if loaded.source:
            brought = f"not under the bundled {loaded.rubric.rubric}"
            notes.append(f"judged under {loaded.name}, {brought}")
        push = push.model_copy(update={"mode": mode})
        keeper = _Gatekeeper(settings, folder, loaded, ledger, push, run)
        budget = gate.budget - run.spent
        run.on_start(Begin(count=len(pushed.changes), budget=budget, holds=holds and mode == "blocking"))
        ordered = sorted(pushed.changes, key=operator.attrgetter("path"))
        blobs = repository.blobs((change.blob for change in ordered), MAX_BYTES)
        files = [read(change, data) for change, (_, data) in zip(ordered, blobs, strict=True)]
        notes += keeper.judge(files, time.monotonic() + budget)
        notes += hand_on(settings, ledger)
        rows = [keeper.rows[file.key] for file in files]
    escalate = settings.escalate.model_dump(mode="json")
    return Report(rows, mode, notes, escalate, pushed.unjudged, holds)


def _standing(ledger: Ledger, rubric: str) -> tuple[GateMode, list[str]]:
    """Return the mode that holds: blocking is suspended where labels show that it is not earned."""
    blocking = standing(ledger.records(window()), rubric)
    if not blocking.advisory:
        return "blocking", []
    notes = [f"blocking is suspended until the KPIs recover: {each}" for each in blocking.why]
    if not blocking.told:
        try:
            ledger.add(ModeChange(mode="advisory", why=blocking.why))
        except LedgerError as error:
            notes.append(str(error))
    return "advisory", notes


@dataclass(frozen=True, slots=True)
class _Gatekeeper:
    """Judges the files of one push under a rubric, as far as `folder`, with the project's rules, says.

    Verdicts go to `ledger` as they come, with the `push` they belong to, and a row for each to `rows`.
    """

    settings: Config
    folder: Path
    loaded: LoadedRubric
    ledger: Ledger
    push: PushRecord
    run: Run
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def judge(self, files: Iterable[PushedFile], until: float) -> list[str]:
        """Judge all files, `until` a time at the latest; return a line for each thing a person should know.

        Raises `ConfigError` before a model is asked.
        """
        any_override = self.settings.gate.override_without_terminal
        overrides = list(self.ledger.records(LineFilter(kinds=[OverrideLine])))
        left: list[tuple[PushedFile, Document]] = []
        for pushed in files:
            document, override = pushed.document, None
            if document is not None:
                hashes = [file.sha256 for file in document.files]
                override = newest_override(overrides, document.task_id, hashes, without_terminal=any_override)
            if document is None or override:
                self._settle(pushed, self._unjudged(pushed, pushed.reason, override))
            else:
                left.append((pushed, document))
        notes = running.run(self._judge_all(left, until)) if left else []
        return list(dict.fromkeys(notes))

    async def _judge_all(self, files: Sequence[tuple[PushedFile, Document]], until: float) -> list[str]:
        notes: list[str] = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            request = JudgeRequest(str(self.loaded.path), self.settings.gate.judge_mode)
            judge, who = service.document_judge(gateway, self.folder, request)
            if not judge.can_judge:  # no measurement, so nothing for the ledger
                for pushed, _ in files:
                    self._settle(pushed, self._unjudged(pushed, f"not judged: {who}"))
                return [f"not judged: {who}"]
            free = asyncio.Semaphore(service.max_concurrency(judge, AT_ONCE))

            async def judge_one(pushed: PushedFile, document: Document) -> None:
                async with free:
                    tally = CountingCache(judge.cache) if judge.cache else None
                    left = min(judge.deadline, until - time.monotonic())
                    verdict = await replace(judge, deadline=left, cache=tally).judge(document)
                if self.run.id:
                    name = "\0".join([self.run.id, *pushed.key]).encode("utf-8", "surrogatepass")
                    verdict = verdict.model_copy(update={"id": hashlib.sha256(name).hexdigest()[:32]})
                push = self.push.model_copy(
                    update={"cached": tally is not None and tally.found > 0 and not tally.missed}
                )
                lost = False
                try:
                    self.ledger.add(verdict_line(verdict, text=self.settings.ledger.text, gate=push))
                except LedgerError as error:
                    notes.append(str(error))
                    lost = True
                self._settle(pushed, verdict, lost=lost)

            async with asyncio.TaskGroup() as group:
                for pushed, document in files:
                    group.create_task(judge_one(pushed, document))
        return notes

    def _settle(self, pushed: PushedFile, verdict: Verdict, *, lost: bool = False) -> None:
        commit = pushed.change.commit
        row = self.rows[pushed.key] = Row(
            path=encodable(pushed.change.path),
            word=word_of(verdict.verdict),
            commit=commit.oid,
            author=commit.author.partition(" <")[0],
            lost=lost,
            verdict=verdict.record(),
        )
        self.run.on_verdict(row)

    def _unjudged(self, pushed: PushedFile, reason: str, override: OverrideLine | None = None) -> Verdict:
        """Return what a person decided about a file; of one that could not be read the hash is empty."""
        document, change = pushed.document, pushed.change
        path = encodable(change.path)
        return tasks.without_models(
            self.loaded,
            self.settings.gate.judge_mode,
            document.task_id if document else f"{path}@{change.blob[:16]}",
            [Subject(path=path, sha256=document.sha256 if document else "")],
            document.author if document else Author(name=change.commit.author),
            change.commit.oid,
            override,
            reason,
        )
