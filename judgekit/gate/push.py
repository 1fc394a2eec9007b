"""One run of the gate: changed files in, a word for each out: GO, NO-GO or UNDETERMINED.

A file is judged as pushed. One that cannot be, or that a person decided about, gets a verdict without models.
"""

from __future__ import annotations

import hashlib
import operator
import shlex
import time
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

from judgekit import environment
from judgekit.config import settings as configuration
from judgekit.errors import ConfigError, InputError
from judgekit.gate import (
    Begin,
    Omission,
    PushBlocked,
    Report,
    Row,
    Run,
    commits,
    examine,
    policy,
    remotes,
    tasks,
)
from judgekit.judging import documents, noise, panel, service
from judgekit.judging.documents import Author, Document, File
from judgekit.judging.request import JudgeRequest
from judgekit.ledger import Ledger, LedgerError, ModeChange, PushRecord
from judgekit.ledger.export import hand_on
from judgekit.ledger.kpi import standing, window
from judgekit.ledger.records import newest_override, word_of
from judgekit.ledger.store import DECISIONS
from judgekit.providers import running
from judgekit.providers.concurrency import map_concurrently
from judgekit.providers.gateway import open_gateway
from judgekit.rubric import loader
from judgekit.text import encodable, escaped, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from judgekit.config.settings import Config, GateConfig
    from judgekit.gate.commits import ChangedFile, PushedChanges, RefUpdate
    from judgekit.git import Repository
    from judgekit.judging.verdict import Depth, Verdict

    Depths: TypeAlias = "Callable[[ChangedFile, Document], Depth]"

MAX_BYTES = 4_000_000  # of one blob: ten times what models are shown of a text
AT_ONCE = 32


def read(change: ChangedFile, data: bytes | None, *, is_here: bool = True) -> tuple[Document, str]:
    """Return a changed file as it is pushed, and why it cannot be judged; its hash is empty then.

    Without `data` it is too large, or not in this clone.
    """
    commit = change.commit
    path = encodable(change.path)
    reason = ""
    file = File(path, "", "", 0)
    if data is None and is_here:
        reason = f"larger than {MAX_BYTES // 1_000_000} MB"
    elif data is None:
        name = escaped(shlex.quote(f"{commit.oid[:12]}:{change.path}"))
        reason = f"not in this partial clone; fetch it with: git show {name}"
    elif data.startswith(b"version https://git-lfs.github.com/spec/"):
        reason = "stored with Git LFS: the push contains only a pointer"
    else:
        try:
            file = documents.decode(change.path, data)
        except InputError as error:
            reason = str(error).removeprefix(f"{path}: ")
    # The families of all models that had a hand in what the push makes of the file.
    hands = () if reason else (commit, *change.earlier)
    families = dict.fromkeys(
        family for each in hands for family in panel.signed(each.people, each.trailers)
    )
    author = Author(name=encodable(commit.people[0]), family=", ".join(families) or None)
    task_id = f"{path}@{(change.blob if reason else file.sha256)[:16]}"
    return Document((file,), task_id, author=author, commit=commit.oid), reason


def check(
    repository: Repository,
    updates: Sequence[RefUpdate],
    remote: str,
    url: str,
    base: str | None,
    run: Run,
) -> Report:
    """Judge what changed since `base`, or what a push to `remote` brings; raises `PushBlocked` to stop it."""
    if base is None:
        refs = ", ".join(update.remote_ref for update in updates if not update.deletes)
        push = PushRecord(remote=url or remote, ref=refs)
        rules = policy.commits_of(repository, updates, remote, url)
        known = remotes.known_to(repository, updates, remote, url)
    else:
        push = PushRecord(ref=base)
        rules = [commits.commit_id(repository, base)]
        known = rules
        updates = [commits.RefUpdate("HEAD", commits.commit_id(repository, "HEAD"), "", *rules)]
    loaded: list[tuple[Config, Path]] = []
    problem: ConfigError | None = None
    gate: GateConfig | None = None
    with ExitStack() as stack:
        try:
            for commit in rules or (None,):
                try:
                    folder = stack.enter_context(policy.rules(repository, commit))
                    loaded.append((configuration.load(folder), folder))
                except ConfigError as error:
                    problem = problem or error
            settings, folder = _strictest(loaded, problem)
            gate = settings.gate
            policy.keep(repository, rules, gate.paths, gate.authors)
            wanted = commits.ChangeFilter(
                *((each.gate.paths, each.gate.authors) for each, _ in loaded)
            )
            changes = examine.of_push(repository, updates, known, wanted)
            depths = _depths(settings, partial(commits.lines_changed, repository, updates, known))
            return _judged(repository, settings, folder, changes, push, run, depths)
        except Exception as error:
            gate = gate or configuration.load(None).gate
            if (run.mode or gate.mode) == "blocking" and gate.undetermined == "block":
                raise PushBlocked(str(error)) from error
            raise


def _strictest(
    loaded: list[tuple[Config, Path]], problem: ConfigError | None
) -> tuple[Config, Path]:
    """Return the strictest of several rules, with their folder; raises the `problem` where there are none."""
    if problem is not None and not loaded:
        raise problem

    def strictness(rules: tuple[Config, Path]) -> tuple[bool, ...]:
        gate = rules[0].gate
        independence = rules[0].judge.independence
        held = gate.mode == "blocking", gate.undetermined == "block"
        return *held, independence == "require", gate.judge_mode == "strict"

    return max(loaded, key=strictness)


def _depths(settings: Config, count: Callable[[], Mapping[str, int]]) -> Depths | None:
    """Return what says how deep a changed file is judged, by the lines that `count` counts; else None."""
    if not settings.gate.depth and settings.gate.review is None:
        return None
    from judgekit.judging import depth  # noqa: PLC0415 - what few configure

    own = configuration.load(None).gate
    lines = cache(count)

    def chosen(change: ChangedFile, document: Document) -> Depth:
        hands = (change.commit, *change.earlier)
        people = {text for each in hands for text in (*each.people, *each.trailers)}
        whole = sum(len(lines_of(file.text)) for file in document.files)
        changed = lines().get(change.path, whole)
        return depth.choose(own, settings.gate, change.path, changed, sorted(people))

    return chosen


def _judged(
    repository: Repository,
    settings: Config,
    folder: Path,
    pushed: PushedChanges,
    push: PushRecord,
    run: Run,
    depths: Depths | None,
) -> Report:
    mode = run.mode or settings.gate.mode
    holds = settings.gate.undetermined == "block"
    escalate = settings.escalate.model_dump(mode="json")
    skipped = pushed.skipped.groups()
    unexamined = [
        Omission(name=encodable(each["name"]), reason=each["reason"]) for each in pushed.unexamined
    ]
    if not pushed.changes:
        return Report(
            rows=[],
            mode=mode,
            notes=pushed.notes,
            escalate=escalate,
            skipped=skipped,
            unexamined=unexamined,
            holds=holds,
        )
    ledger = Ledger.of(repository.folder)
    loaded = loader.configured_rubric("gate", settings.gate.rubric, folder)
    notes = list(pushed.notes)
    if mode == "blocking":
        why, told = standing(ledger.records(window()), loaded.rubric.ref)
    else:
        why = []
        told = False
    if why:  # labels show that blocking is not earned
        mode = "advisory"
        notes += [f"blocking is suspended until the KPIs recover: {each}" for each in why]
        if not told:
            try:
                ledger.add(ModeChange(mode="advisory", why=why))
            except LedgerError as error:
                notes.append(str(error))
    if loaded.source:
        notes.append(f"judged under {loaded.name}, not under the bundled {loaded.rubric.rubric}")
    push = push.model_copy(update={"mode": mode})
    keeper = _Gatekeeper(settings, folder, loaded, ledger, push, run, notes, depths)
    budget = settings.gate.budget - run.spent
    run.on_start(
        Begin(count=len(pushed.changes), budget=budget, holds=holds and mode == "blocking")
    )
    ordered = sorted(pushed.changes, key=operator.attrgetter("path"))
    files = _read_files(repository, ordered)
    running.run(keeper.judge(files, time.monotonic() + budget))
    if settings.server.url is not None:
        notes += hand_on(settings, ledger)
    rows = [keeper.rows[change.path, change.blob] for change in ordered]
    return Report(
        rows=rows,
        mode=mode,
        notes=list(dict.fromkeys(notes)),
        escalate=escalate,
        skipped=skipped,
        unexamined=unexamined,
        holds=holds,
    )


def _read_files(
    repository: Repository, changes: Sequence[ChangedFile]
) -> list[tuple[ChangedFile, Document, str]]:
    """Return each changed file with its document, and why it cannot be judged."""
    blobs = [data for _, data in repository.blobs((change.blob for change in changes), MAX_BYTES)]
    unread = [change.blob for change, data in zip(changes, blobs, strict=True) if data is None]
    here = set()
    for line in repository.described(unread):
        if not line.endswith(" missing"):
            here.add(line.split(" ")[0])
    files: list[tuple[ChangedFile, Document, str]] = []
    for change, data in zip(changes, blobs, strict=True):
        document, reason = read(change, data, is_here=change.blob in here)
        files.append((change, document, reason))
    return files


@dataclass(frozen=True, slots=True)
class _Gatekeeper:
    """Judges the files of a push: verdicts go to `ledger`, a row of each to `rows`, remarks to `notes`."""

    settings: Config
    folder: Path
    loaded: loader.LoadedRubric
    ledger: Ledger
    push: PushRecord
    run: Run
    notes: list[str]
    depths: Depths | None
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    async def judge(self, files: Sequence[tuple[ChangedFile, Document, str]], until: float) -> None:
        """Judge all files, `until` a time at the latest; raises `ConfigError` before a model is asked."""
        any_override = self.settings.gate.override_without_terminal
        mode = self.settings.gate.judge_mode
        said = list(self.ledger.records(DECISIONS))
        left: list[tuple[ChangedFile, Document]] = []
        for change, document, reason in files:
            task = document.task_id
            hashes = [file.sha256 for file in document.files]
            override = newest_override(said, task, hashes, without_terminal=any_override)
            if reason or override:
                decided = None if reason else override
                self._settle(
                    change, tasks.without_models(self.loaded, mode, document, decided, reason)
                )
            else:
                left.append((change, document))
        if not left:
            return
        async with aclosing(open_gateway(environment.environ())) as gateway:
            wanted = JudgeRequest(rubric=str(self.loaded.path), mode=mode, explain=True)
            judge, models = service.document_judge(gateway, self.folder, wanted)
            if (
                not judge.models_by_tier and not judge.is_remote
            ):  # no measurement, so nothing for the ledger
                self.notes.append(f"not judged: {models}")
                for change, document in left:
                    verdict = tasks.without_models(
                        self.loaded, mode, document, None, self.notes[-1]
                    )
                    self._settle(change, verdict)
                return

            async def judge_one(pair: tuple[ChangedFile, Document]) -> None:
                change, document = pair
                left = until - time.monotonic()
                own = judge.with_settings(timeout=min(judge.settings.timeout, left))
                if self.depths and not self.settings.server.url:
                    from judgekit.judging import review  # noqa: PLC0415 - what few configure

                    depth = self.depths(change, document)
                    own = replace(own, instead=partial(review.at_depth, lambda _: depth))
                verdict = tasks.held_by_findings(await own.judge(document))
                try:
                    if not verdict.depth or verdict.depth.depth == "tiers":
                        verdict = noise.marked(judge, document, verdict)
                except ConfigError as error:
                    self.notes.append(f"noise not known: {error}")
                if self.run.id:
                    name = f"{self.run.id}\0{change.path}\0{change.blob}".encode(
                        "utf-8", "surrogatepass"
                    )
                    verdict = verdict.model_copy(
                        update={"id": hashlib.sha256(name).hexdigest()[:32]}
                    )
                cached = verdict.cost_source == "cache" and not any(
                    each.failure for each in verdict.rounds
                )
                push = self.push.model_copy(update={"cached": cached})
                lost = False
                try:
                    verdict = self.ledger.note(verdict, said, push, text=self.settings.ledger.text)
                except LedgerError as error:
                    self.notes.append(str(error))
                    lost = True
                self._settle(change, verdict, lost=lost)

            limit = service.max_concurrency(judge, AT_ONCE)
            stream = map_concurrently(judge_one, left, limit, in_order=False)
            async with aclosing(stream):
                async for _ in stream:
                    pass

    def _settle(self, change: ChangedFile, verdict: Verdict, *, lost: bool = False) -> None:
        author, _, _ = change.commit.people[0].partition(" <")
        row = Row(
            path=encodable(change.path),
            word=word_of(verdict.verdict),
            commit=change.commit.oid,
            author=author,
            lost=lost,
            verdict=verdict.record(),
        )
        self.rows[change.path, change.blob] = row
        self.run.on_verdict(row)
