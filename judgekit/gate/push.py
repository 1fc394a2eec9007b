"""One run of the gate: changed files in, a word for each out: GO, NO-GO or UNDETERMINED.

A changed file is judged as the pushed blob. Files that cannot be judged, and those that a person decided
about, get a verdict without a model.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import settings as configuration
from judgekit.errors import ConfigError, InputError, JudgekitError
from judgekit.gate import commits, fast_path, policy
from judgekit.gate.fast_path import ChangeFilter, people
from judgekit.gate.policy import commits_of
from judgekit.gate.report import Begin, Report, Row
from judgekit.judging import authors, documents, service
from judgekit.judging.cache import CountingCache
from judgekit.judging.service import JudgeRequest
from judgekit.judging.subject import Author, Document
from judgekit.judging.verdict import Override, Subject, Verdict, rubric_ref
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
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from judgekit.config.names import ModeName
    from judgekit.config.settings import Config, EscalateConfig
    from judgekit.gate.commits import ChangedFile
    from judgekit.gate.commits import PushedChanges as Changes
    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository
    from judgekit.judging.score import DocumentJudge
    from judgekit.ledger.records import GateMode, GateWord, Record
    from judgekit.rubric.loader import LoadedRubric


MAX_BYTES = 4_000_000  # of one blob: ten times what models are shown of a text
_LFS = b"version https://git-lfs.github.com/spec/"


class PushedFile(NamedTuple):
    """A file of a push: as a document, or else the reason why it cannot be judged."""

    change: ChangedFile
    document: Document | None
    reason: str = ""

    @property
    def path(self) -> str:
        """The file's path, printable."""
        return encodable(self.change.path)


def read(repository: Repository, changes: Sequence[ChangedFile]) -> Iterator[PushedFile]:
    """Yield each changed file as it is pushed, in the order of its paths."""
    ordered = sorted(changes, key=lambda change: change.path)
    blobs = repository.blobs((change.blob for change in ordered), MAX_BYTES)
    for change, (_, data) in zip(ordered, blobs, strict=True):
        yield _pushed(change, data)


def _family(change: ChangedFile) -> str | None:
    """Return the families of models that had a hand in what a push makes of a file."""
    commits = (change.commit, *change.earlier)
    signed = [authors.signed(people(commit), commit.trailers) for commit in commits]
    return authors.listed(list(dict.fromkeys(family for each in signed for family in each)))


def _pushed(change: ChangedFile, data: bytes | None) -> PushedFile:
    if data is None:
        return PushedFile(change, None, f"larger than {MAX_BYTES // 1_000_000} MB, or not in this clone")
    if data.startswith(_LFS):
        return PushedFile(change, None, "stored with Git LFS: the push holds only a pointer to it")
    try:
        file = documents.decode(change.path, data)
    except InputError as error:
        return PushedFile(change, None, str(error).removeprefix(f"{encodable(change.path)}: "))
    author = Author(name=encodable(change.commit.author), family=_family(change))
    return PushedFile(
        change, Document((file,), documents.task_id_of(file), author=author, commit=change.commit.oid)
    )


def verdict(
    pushed: PushedFile,
    loaded: LoadedRubric,
    mode: ModeName,
    reason: str,
    override: OverrideLine | None = None,
) -> Verdict:
    """Return what a person decided about a file, else `undetermined` for the `reason` given.

    Of a file that could not be read the hash is empty.
    """
    document, commit = pushed.document, pushed.change.commit
    decided = override and Override(
        decision=override.decision, why=override.why, who=override.who, at=override.timestamp
    )
    return Verdict(
        id=uuid.uuid4().hex,
        task_id=document.task_id if document else f"{pushed.path}@{pushed.change.blob[:16]}",
        subjects=[Subject(path=pushed.path, sha256=document.sha256 if document else "")],
        rubric=rubric_ref(loaded),
        mode=mode,
        prompt_sha256=loaded.rubric.prompt.sha256,
        verdict=decided.decision if decided else "undetermined",
        consensus="none",
        degraded=None if decided else reason,
        author=document.author if document else Author(name=commit.author),
        human_override=decided,
        commit=commit.oid,
        timestamp=datetime.now(UTC),
        duration_ms=0,
    )


AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Passed:
    """What the gate says of one file; `lost` where that should be in the ledger and could not be written."""

    pushed: PushedFile
    word: GateWord
    verdict: Verdict
    lost: bool = False

    def row(self) -> Row:
        """Return it as plain objects."""
        commit = self.pushed.change.commit
        author = commit.author.partition(" <")[0]
        return Row(
            path=self.pushed.path,
            word=self.word,
            commit=commit.oid,
            author=author,
            lost=self.lost,
            verdict=self.verdict.record(),
        )


OnVerdict: TypeAlias = "Callable[[Passed], None]"


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """Judges the files of one push under a rubric in a mode, as far as `rules`, a project's folder, say.

    `budget` is in seconds for all files together. Verdicts go to `ledger` as they come, with the `push` they
    belong to. With `keep_text` they keep models' words, and with `any_override` those overrides count that
    were given without a terminal. Verdicts of the same `run` on the same file have the same id.
    """

    rules: Path
    loaded: LoadedRubric
    mode: ModeName
    budget: float
    ledger: Ledger
    push: PushRecord
    keep_text: bool = False
    any_override: bool = False
    run: str = ""

    def judge(
        self, files: Sequence[PushedFile], on_verdict: OnVerdict = lambda _: None
    ) -> tuple[list[Passed], list[str]]:
        """Return a word for each file, in their order, and a line for each thing a person should know.

        `on_verdict` is called as each becomes known. Raises `ConfigError` before a model is asked.
        """
        found: dict[tuple[str, str], Passed] = {}

        def settle(passed: Passed) -> None:
            found[_key(passed.pushed)] = passed
            on_verdict(passed)

        given = list(self.ledger.records(LineFilter(kinds=[OverrideLine])))
        asked: list[tuple[PushedFile, Document]] = []
        for file in files:
            override = self._override(given, file)
            if file.document is None or override:
                settle(self._unjudged(file, file.reason, override))
            else:
                asked.append((file, file.document))
        notes = running.run(self._judge_all(asked, settle)) if asked else []
        return [found[_key(file)] for file in files], list(dict.fromkeys(notes))

    def _override(self, given: Sequence[Record], pushed: PushedFile) -> OverrideLine | None:
        if pushed.document is None:
            return None
        hashes = [file.sha256 for file in pushed.document.files]
        return newest_override(given, pushed.document.task_id, hashes, without_terminal=self.any_override)

    def _unjudged(self, pushed: PushedFile, reason: str, override: OverrideLine | None = None) -> Passed:
        judged = verdict(pushed, self.loaded, self.mode, reason, override)
        return Passed(pushed, word_of(judged.verdict), judged)

    async def _judge_all(self, asked: Sequence[tuple[PushedFile, Document]], settle: OnVerdict) -> list[str]:
        until = time.monotonic() + self.budget
        notes: list[str] = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            judge_request = JudgeRequest(str(self.loaded.path), self.mode)
            judge, who = service.document_judge(gateway, self.rules, judge_request)
            if not judge.can_judge:  # no measurement, so nothing for the ledger
                for pushed, _ in asked:
                    settle(self._unjudged(pushed, f"nothing was judged: {who}"))
                return [f"nothing was judged: {who}"]
            free = asyncio.Semaphore(service.max_concurrency(judge, AT_ONCE))

            async def one(pushed: PushedFile, document: Document) -> None:
                async with free:
                    verdict, kept = await _verdict(judge, document, until)
                verdict = verdict.model_copy(update=self._named(pushed))
                push = self.push.model_copy(update={"cached": kept})
                lost = self._note(verdict, push)
                notes.extend(filter(None, [lost]))
                settle(Passed(pushed, word_of(verdict.verdict), verdict, bool(lost)))

            async with asyncio.TaskGroup() as group:
                for pushed, document in asked:
                    group.create_task(one(pushed, document))
        return notes

    def _named(self, pushed: PushedFile) -> dict[str, str]:
        """Return the id of a file's verdict, where the run may have been begun before."""
        if not self.run:
            return {}
        name = "\0".join([self.run, *_key(pushed)])
        return {"id": hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]}

    def _note(self, verdict: Verdict, push: PushRecord) -> str:
        """Add a verdict to the ledger; return why that could not be done, "" when it was."""
        try:
            self.ledger.add(verdict_line(verdict, text=self.keep_text, gate=push))
        except LedgerError as error:
            return str(error)
        return ""


def _key(pushed: PushedFile) -> tuple[str, str]:
    return pushed.change.path, pushed.change.blob


async def _verdict(judge: DocumentJudge, document: Document, until: float) -> tuple[Verdict, bool]:
    """Return a verdict within what is left of the budget, and whether earlier replies sufficed for it."""
    left = min(judge.deadline, until - time.monotonic())
    tally = CountingCache(judge.cache) if judge.cache else None
    verdict = await replace(judge, deadline=left, cache=tally).judge(document)
    return verdict, tally is not None and tally.sufficed


Find: TypeAlias = "Callable[[Callable[[ChangedFile], bool]], Changes]"


class Outcome(NamedTuple):
    """What a run of the gate came to: a word for each file, the mode that held, and lines for a person.

    `escalate` says which of them become issues, by the same rules as all else. `unjudged` are lines about
    what could not be judged at all; where it `holds`, that and UNDETERMINED keep a blocking gate shut.
    """

    passed: Sequence[Passed]
    mode: GateMode
    notes: Sequence[str]
    escalate: EscalateConfig
    unjudged: Sequence[str] = ()
    holds: bool = False

    @property
    def blocked(self) -> bool:
        """Whether the push must not leave."""
        return self.report().blocked

    def report(self) -> Report:
        """Return it as plain objects."""
        rows = [each.row() for each in self.passed]
        escalate = self.escalate.model_dump(mode="json")
        return Report(rows, self.mode, self.notes, escalate, self.unjudged, self.holds)


class Run(NamedTuple):
    """How a run is wanted: a `mode` that goes before the configured one, and who hears of each file.

    `on_start` gets what is known when judging begins. `spent` are seconds of the budget that are gone. A run
    that is begun again with the same `id` names its verdicts alike, so that a ledger counts none twice.
    """

    mode: GateMode | None = None
    on_verdict: OnVerdict = lambda _: None
    on_start: Callable[[Begin], None] = lambda _: None
    spent: float = 0.0
    id: str = ""


def check_push(
    repository: Repository, updates: Sequence[RefUpdate], remote: str, url: str, run: Run
) -> Outcome:
    """Judge what a push to `remote` brings there.

    Raises `JudgekitError`: nothing was judged then, and the push is to leave.
    """
    refs = ", ".join(update.remote_ref for update in updates if not update.deletes)
    push = PushRecord(remote=url or remote, ref=refs)
    return _check(
        repository,
        commits_of(repository, updates, remote, url),
        push,
        lambda wanted: commits.of_push(repository, updates, remote, wanted, url),
        run,
    )


def check_since(repository: Repository, base: str, run: Run) -> Outcome:
    """Judge what the commits since `base` change, under the rules as they stand at `base`.

    Raises `UnknownCommit` where there is no such base, any other `JudgekitError` as `check_push` does.
    """
    return _check(
        repository,
        [commits.commit_id(repository, base)],
        PushRecord(ref=base),
        lambda wanted: commits.since(repository, base, "HEAD", wanted),
        run,
    )


class Held(JudgekitError):  # noqa: N818 - the push is
    """Nothing could be judged, and the rules let nothing pass that is not judged; the text says why."""


def _check(repository: Repository, rules: Sequence[str], push: PushRecord, find: Find, run: Run) -> Outcome:
    settings: Config | None = None
    with ExitStack() as stack:
        try:
            loaded = _rules(repository, rules, stack)
            settings, folder = max(loaded, key=lambda each: _strictness(each[0]))
            wanted = [ChangeFilter(config.gate.paths, config.gate.authors) for config, _ in loaded]
            fast_path.keep(repository, rules, settings.gate.paths, settings.gate.authors)
            pushed_changes = find(lambda change: any(change_filter(change) for change_filter in wanted))
            return _judged(repository, folder, settings, pushed_changes, push, run)
        except Exception as error:
            gate = (settings or configuration.load(None)).gate
            if (run.mode or gate.mode) == "blocking" and gate.undetermined == "block":
                raise Held(str(error)) from error
            raise


def _rules(repository: Repository, commits: Sequence[str], stack: ExitStack) -> list[tuple[Config, Path]]:
    """Return the rules at commits, each with its folder; raises `ConfigError` where none can be read."""
    found: list[tuple[Config, Path]] = []
    problem: ConfigError | None = None
    for commit in commits or (None,):
        try:
            folder = stack.enter_context(policy.rules(repository, commit))
            found.append((configuration.load(folder), folder))
        except ConfigError as error:
            problem = problem or error
    if problem is not None and not found:
        raise problem
    return found


def _strictness(rules: Config) -> tuple[bool, ...]:
    """Return what orders the rules that may hold: the strictest are the greatest."""
    gate = rules.gate
    return (
        gate.mode == "blocking",
        gate.undetermined == "block",
        rules.judge.independence == "require",
        gate.judge_mode == "strict",
    )


def _judged(
    repository: Repository,
    folder: Path,
    settings: Config,
    pushed_changes: Changes,
    push: PushRecord,
    run: Run,
) -> Outcome:
    mode = run.mode or settings.gate.mode
    holds = settings.gate.undetermined == "block"
    if not pushed_changes.changes:
        return Outcome([], mode, pushed_changes.notes, settings.escalate, pushed_changes.unjudged, holds)
    ledger = Ledger.of(repository.folder)
    loaded = loader.configured_rubric("gate", settings.gate.rubric, folder)
    mode, said = _standing(ledger, mode, loaded.rubric.ref)
    if loaded.source:
        said.append(f"judged under {loaded.name}, not under the {loaded.rubric.rubric} that judgekit brings")
    keeper = Gatekeeper(
        folder,
        loaded,
        settings.gate.judge_mode,
        settings.gate.budget - run.spent,
        ledger,
        push.model_copy(update={"mode": mode}),
        keep_text=settings.ledger.text,
        any_override=settings.gate.override_without_terminal,
        run=run.id,
    )
    run.on_start(
        Begin(count=len(pushed_changes.changes), budget=keeper.budget, holds=holds and mode == "blocking")
    )
    passed, notes = keeper.judge(list(read(repository, pushed_changes.changes)), run.on_verdict)
    notes += hand_on(settings, ledger)
    return Outcome(
        passed,
        mode,
        [*pushed_changes.notes, *said, *notes],
        settings.escalate,
        pushed_changes.unjudged,
        holds,
    )


def _standing(ledger: Ledger, mode: GateMode, rubric: str) -> tuple[GateMode, list[str]]:
    """Return the mode that holds: blocking is suspended where labels show that it is not earned."""
    if mode == "advisory":
        return mode, []
    blocking_status = standing(ledger.records(window()), rubric)
    if not blocking_status.advisory:
        return mode, []
    said = [f"blocking is suspended until the figures recover: {each}" for each in blocking_status.why]
    if not blocking_status.told:
        try:
            ledger.add(ModeChange(mode="advisory", why=blocking_status.why))
        except LedgerError as error:
            said.append(str(error))
    return "advisory", said
