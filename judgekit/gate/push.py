"""One run of the gate: changed files go in, and each gets a word: GO, NO-GO or UNDETERMINED.

A file is judged as pushed. One that can't be judged, or that a person decided about, gets a verdict without
models.
"""

from __future__ import annotations

import hashlib
import operator
import re
import shlex
import time
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

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
    reviewers,
    tasks,
)
from judgekit.judging import documents, noise, panel, service
from judgekit.judging.documents import Author, Document, File
from judgekit.judging.request import JudgeRequest
from judgekit.ledger import Ledger, LedgerError, ModeChange, OverrideLine, PushRecord
from judgekit.ledger.export import send_to_team
from judgekit.ledger.kpi import find_missed_rates, make_window_filter
from judgekit.ledger.records import convert_to_gate_word, find_newest_override
from judgekit.ledger.store import DECISIONS_FILTER
from judgekit.providers import running
from judgekit.providers.concurrency import map_concurrently
from judgekit.providers.gateway import open_gateway
from judgekit.rubric import loader
from judgekit.text import escape_name, replace_surrogates, split_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from judgekit.config import ModeName
    from judgekit.config.settings import Config, GateConfig
    from judgekit.gate.commits import ChangedFile, PushedChanges, RefUpdate
    from judgekit.git import Repository
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.verdict import Depth, Verdict
    from judgekit.ledger import Record
    from judgekit.ledger.records import GateMode

    DepthChooser: TypeAlias = "Callable[[ChangedFile, Document], Depth]"

MAX_BLOB_BYTES = 4_000_000  # of one blob, ten times the text that models get to see
MAX_CONCURRENT = 32  # files
# Git's stand-in for a file whose content another program stores. A larger file only starts like one.
_POINTER_BYTES = 32_768  # git-annex's limit; Git LFS's files stay below 1,024
_POINTER_PATTERN_BY_STORE = {
    "Git LFS": re.compile(
        rb"version https://(git-lfs|hawser)\.github\.com/spec/v\d+\s(?=(.*\n)*?oid )"
    ),
    # With core.symlinks off, a locked file's link is a plain file too.
    "git-annex": re.compile(rb"((\.\.[/\\])*\.git)?[/\\]annex[/\\]objects[/\\]\S"),
    "git-fat": re.compile(rb"#\$# git-fat [0-9a-f]{40}\s"),
}


class _Scope(NamedTuple):
    """The commits that a run compares."""

    push: PushRecord
    updates: Sequence[RefUpdate]
    rule_commits: list[str]
    """The commits whose rules may apply."""
    remote_commits: list[str]
    """Commits that the remote has, with all their ancestors."""


class _FileToJudge(NamedTuple):
    """A changed file as a document, with the reason why it can't be judged, or ""."""

    change: ChangedFile
    document: Document
    reason: str


class _Rules(NamedTuple):
    """The settings for a push, and the folder with them and the rubrics."""

    settings: Config
    folder: Path

    @property
    def strictness(self) -> tuple[bool, ...]:
        """A sort key that is greater for stricter rules. Earlier items take precedence."""
        gate = self.settings.gate
        return (
            gate.mode == "blocking",
            gate.undetermined == "block",
            self.settings.judge.independence == "require",
            gate.judge_mode == "strict",
        )


def read_changed_file(
    change: ChangedFile, data: bytes | None, *, is_here: bool = True
) -> tuple[Document, str]:
    """Build a document from a changed file's content.

    Returns the document and "". If the file can't be judged, returns an empty document and the reason. `data`
    is None if the file is too large (`is_here`) or missing from this clone (not `is_here`).
    """
    commit = change.commit
    printable_path = replace_surrogates(change.path)
    file, reason = _decode_file(change, printable_path, data, is_here=is_here)

    if reason:
        family = None
        digest = change.blob  # without the content, use git's hash of it
    else:
        family = _name_families(change)
        digest = file.sha256

    author = Author(name=replace_surrogates(commit.people[0]), family=family)
    task_id = f"{printable_path}@{digest[:16]}"
    return Document((file,), task_id, author=author, commit=commit.oid), reason


def _decode_file(
    change: ChangedFile, printable_path: str, data: bytes | None, *, is_here: bool
) -> tuple[File, str]:
    """Decode a file. If it can't be judged, return an empty file and the reason.

    `is_here`: whether this clone has the file's content.
    """
    empty_file = File(printable_path, text="", sha256="", total_chars=0)
    if data is None:
        return empty_file, _explain_unread_content(change, is_here=is_here)

    store = _name_store(data)
    if store:
        return empty_file, f"stored with {store}: the push contains only a pointer"

    try:
        return documents.decode(change.path, data), ""
    except InputError as error:
        # The message starts with the path, but a row shows the path already.
        reason = str(error).removeprefix(f"{printable_path}: ")
        return empty_file, reason


def _explain_unread_content(change: ChangedFile, *, is_here: bool) -> str:
    """Explain why a file's content wasn't read: it's too large, or missing from this clone."""
    if is_here:
        return f"larger than {MAX_BLOB_BYTES // 1_000_000} MB"
    name = escape_name(shlex.quote(f"{change.commit.oid[:12]}:{change.path}"))
    return f"not in this partial clone; fetch it with: git show {name}"


def _name_store(data: bytes) -> str:
    """Name the program that stores a file's real content, such as Git LFS, if `data` only points to it.

    Returns "" for normal files.
    """
    if len(data) >= _POINTER_BYTES:  # pointers are small
        return ""
    for store, pointer_pattern in _POINTER_PATTERN_BY_STORE.items():
        if pointer_pattern.match(data):
            return store
    return ""


def _name_families(change: ChangedFile) -> str | None:
    """Name the model families credited in a file's commits, separated by commas; None without any."""
    families: list[str] = []
    for commit in (change.commit, *change.earlier_commits):
        families += panel.list_writer_families(commit.people, commit.trailers)
    if not families:
        return None
    return ", ".join(dict.fromkeys(families))


def judge_push(
    repository: Repository,
    updates: Sequence[RefUpdate],
    remote: str,
    url: str,
    base: str | None,
    run: Run,
) -> Report:
    """Judge the changes in a push to `remote`, or if `base` is given, those since `base`.

    Raises `PushBlocked` if judging fails and undetermined files block the push.
    """
    # This isn't in the `try`: if git can't find the commits, its error is raised unchanged.
    if base is None:
        scope = _make_scope_of_push(repository, updates, remote, url)
    else:
        scope = _make_scope_since(repository, base)
    in_ci = base is not None and reviewers.is_ci()

    gate: GateConfig | None = None  # it stays None if the rules can't be read
    try:
        # The rules are in temporary folders until the stack is closed. An error about one of their files then
        # gets the path in the commit instead of the temporary one.
        with ExitStack() as stack:
            all_rules = _load_rules(repository, scope.rule_commits, stack)
            strictest = max(all_rules, key=operator.attrgetter("strictness"))
            gate = strictest.settings.gate
            # With this, the next push can find out if it has files to judge without reading the rules.
            policy.store_selection(repository, scope.rule_commits, gate.paths, gate.authors)
            return _judge_scope(repository, scope, all_rules, strictest, run, in_ci=in_ci)
    except Exception as error:
        if _blocks_undetermined(gate, run):
            raise PushBlocked(str(error)) from error
        raise


def _judge_scope(
    repository: Repository,
    scope: _Scope,
    all_rules: Sequence[_Rules],
    strictest: _Rules,
    run: Run,
    *,
    in_ci: bool,
) -> Report:
    """Judge the changes in a scope under the strictest rules.

    A change is judged if at least one of `all_rules` selects it.
    """
    gates = [rules.settings.gate for rules in all_rules]
    selections = [(gate.paths, gate.authors) for gate in gates]
    change_filter = commits.ChangeFilter(*selections)

    upstreams = _list_common_upstreams(gates)
    upstream_commits = remotes.list_upstream_commits(repository, upstreams)
    remote_commits = [*scope.remote_commits, *upstream_commits]
    pushed = examine.examine_push(repository, scope.updates, remote_commits, change_filter)

    # Counting is slow, so it's left to the depth chooser, which may not need it.
    count_lines = partial(
        commits.count_changed_lines, repository, pushed.updates_with_commits, remote_commits
    )
    choose_depth = _make_depth_chooser(strictest.settings, count_lines)
    return _judge_changes(repository, strictest, pushed, scope.push, run, choose_depth, in_ci=in_ci)


def _list_common_upstreams(gates: Iterable[GateConfig]) -> list[str]:
    """List the upstreams that all rules name."""
    upstream_sets = [set(gate.upstream) for gate in gates]
    return sorted(set.intersection(*upstream_sets))


def _blocks_undetermined(gate: GateConfig | None, run: Run) -> bool:
    """Whether undetermined files block the push. Pass None for `gate` if the rules couldn't be read."""
    if gate is None:
        gate = configuration.load(None).gate  # the user's own settings can block pushes as well
    mode = run.mode or gate.mode
    return mode == "blocking" and gate.undetermined == "block"


def _make_scope_of_push(
    repository: Repository, updates: Sequence[RefUpdate], remote: str, url: str
) -> _Scope:
    """Make the scope for judging a push: its ref updates, and the remote's rules and commits."""
    refs = ", ".join(update.remote_ref for update in updates if not update.is_deletion)
    return _Scope(
        push=PushRecord(remote=url or remote, ref=refs),
        updates=updates,
        rule_commits=policy.find_rule_commits(repository, updates, remote, url),
        remote_commits=remotes.list_remote_commits(repository, updates, remote, url),
    )


def _make_scope_since(repository: Repository, base: str) -> _Scope:
    """Make the scope for judging the commits since `base`, under the rules in `base`."""
    base_commit = commits.resolve_commit(repository, base)
    head = commits.resolve_commit(repository, "HEAD")
    # As if HEAD were pushed to a remote that's still at `base`.
    update = commits.RefUpdate(
        local_ref="HEAD", local_oid=head, remote_ref="", remote_oid=base_commit
    )
    return _Scope(
        push=PushRecord(ref=base),
        updates=[update],
        rule_commits=[base_commit],
        remote_commits=[base_commit],
    )


def _load_rules(repository: Repository, oids: Sequence[str], stack: ExitStack) -> list[_Rules]:
    """Load the rules of each commit, or only the user's own rules if there are no commits.

    Unreadable rules are skipped. If all are unreadable, the first `ConfigError` is raised. The rules are in
    temporary folders, which exist until `stack` is closed.
    """
    # For None, the checked-out folder is empty, so only the user's own rules apply.
    rule_commits: Sequence[str | None] = oids or [None]
    readable: list[_Rules] = []
    errors: list[ConfigError] = []

    for commit in rule_commits:
        try:
            folder = stack.enter_context(policy.check_out_rules(repository, commit))
            settings = configuration.load(folder)
        except ConfigError as error:
            errors.append(error)
        else:
            readable.append(_Rules(settings, folder))

    if not readable:
        raise errors[0]
    return readable


def _make_depth_chooser(
    settings: Config, count_lines: Callable[[], Mapping[str, int]]
) -> DepthChooser | None:
    """Build a function that chooses how thoroughly to judge a file. None if that isn't configured.

    `count_lines` returns the number of changed lines by path. It's slow, so it's called at most once.
    """
    has_depths = settings.gate.depth or settings.gate.review is not None
    if not has_depths:
        return None

    from judgekit.judging import depth  # noqa: PLC0415 - only if depths are configured

    users_gate = configuration.load(None).gate  # the user's settings, without the project's
    project_gate = settings.gate
    count_changed_lines_once = cache(count_lines)

    def choose_depth(change: ChangedFile, document: Document) -> Depth:
        """Choose how thoroughly to judge a file, by path, number of changed lines, and authors."""
        changed_lines_by_path = count_changed_lines_once()
        changed_lines = changed_lines_by_path.get(change.path)
        if changed_lines is None:  # git counts no lines for some files, such as binary ones
            changed_lines = _count_all_lines(document)
        authors = _list_signatures(change)
        return depth.choose(users_gate, project_gate, change.path, changed_lines, authors)

    return choose_depth


def _count_all_lines(document: Document) -> int:
    """Count all lines of a document's files."""
    return sum(len(split_lines(file.text)) for file in document.files)


def _list_signatures(change: ChangedFile) -> list[str]:
    """List who wrote a file's commits. Trailers such as `Generated-by` can name authors as well."""
    signatures: set[str] = set()
    for commit in (change.commit, *change.earlier_commits):
        signatures.update(commit.people, commit.trailers)
    return sorted(signatures)


def _judge_changes(
    repository: Repository,
    rules: _Rules,
    pushed: PushedChanges,
    push: PushRecord,
    run: Run,
    choose_depth: DepthChooser | None,
    *,
    in_ci: bool,
) -> Report:
    """Judge the files in a push, and report on all files, judged or not."""
    settings = rules.settings
    report = _report_on_unjudged(settings, pushed, run)
    if not pushed.changes:
        return report

    ledger = Ledger.of(repository.folder)
    loaded = loader.load_configured_rubric("gate", settings.gate.rubric, rules.folder)
    notes = list(pushed.notes)  # the steps below and the gatekeeper add to these
    mode = _choose_mode(report.mode, ledger, loaded.rubric.ref, notes)
    if loaded.source:
        notes.append(f"judged under {loaded.name}, not under the bundled {loaded.rubric.rubric}")

    # In CI, reviewers' overrides count. Elsewhere, the ledger's do.
    reviewed: reviewers.ReviewedOverrides | None = None
    if in_ci:
        reviewed = reviewers.read_overrides(repository, settings, ledger.name)

    gatekeeper = _Gatekeeper(
        settings=settings,
        folder=rules.folder,
        loaded_rubric=loaded,
        ledger=ledger,
        push=push.model_copy(update={"mode": mode}),
        run_options=run,
        notes=notes,
        choose_depth=choose_depth,
        reviewed_overrides=reviewed,
    )
    # In advisory mode nothing stops a push, whatever `gate.undetermined` says.
    undetermined_blocks = mode == "blocking" and report.holds
    rows = _judge_within_budget(
        repository, gatekeeper, pushed.changes, undetermined_blocks=undetermined_blocks
    )

    if settings.server.url is not None:
        notes += send_to_team(settings, ledger)
    judged_report = report._replace(rows=rows, mode=mode)
    return _complete_report(judged_report, notes, reviewed)


def _report_on_unjudged(settings: Config, pushed: PushedChanges, run: Run) -> Report:
    """Build a report without rows. It lists the files that were skipped or couldn't be examined."""
    unexamined = []
    for omission in pushed.unexamined:
        printable_name = replace_surrogates(omission["name"])
        unexamined.append(Omission(name=printable_name, reason=omission["reason"]))

    return Report(
        rows=[],
        mode=run.mode or settings.gate.mode,
        notes=pushed.notes,
        escalate=settings.escalate.model_dump(mode="json"),
        skipped=pushed.skipped.group_by_reason(),
        unexamined=unexamined,
        holds=settings.gate.undetermined == "block",  # undetermined files then block the push
    )


def _choose_mode(
    configured_mode: GateMode, ledger: Ledger, rubric: str, notes: list[str]
) -> GateMode:
    """Return the configured mode, or "advisory" if past verdicts were wrong too often to block pushes.

    Adds the reasons for such a change to `notes`, and records it in the ledger.
    """
    if configured_mode != "blocking":
        return configured_mode
    reasons, is_recorded = find_missed_rates(ledger.read_records(make_window_filter()), rubric)
    if not reasons:
        return "blocking"

    for reason in reasons:
        notes.append(f"blocking is suspended until the KPIs recover: {reason}")
    if not is_recorded:  # an earlier push can have recorded the change
        try:
            ledger.add(ModeChange(mode="advisory", why=reasons))
        except LedgerError as error:
            notes.append(str(error))

    return "advisory"


def _complete_report(
    report: Report, notes: Sequence[str], reviewed: reviewers.ReviewedOverrides | None
) -> Report:
    """Set a report's notes, without duplicates, and its reviewers. `reviewed` is None outside CI."""
    all_notes = list(notes)
    reviewer_tokens: list[str] | None = None
    if reviewed is not None:
        all_notes += reviewed.notes
        # A reviewer is known by the name of a token for the shared judge.
        reviewer_tokens = [reviewer.token for reviewer in reviewed.reviewers]
    distinct_notes = list(dict.fromkeys(all_notes))
    return report._replace(notes=distinct_notes, reviewers=reviewer_tokens)


def _judge_within_budget(
    repository: Repository,
    gatekeeper: _Gatekeeper,
    changes: Iterable[ChangedFile],
    *,
    undetermined_blocks: bool,
) -> list[Row]:
    """Judge the changed files in the seconds that the run has left. Returns their rows, sorted by path.

    The caller's `on_start` is told the budget, and if undetermined files block the push.
    """
    run = gatekeeper.run_options
    budget = gatekeeper.settings.gate.budget - run.spent_seconds
    sorted_changes = sorted(changes, key=operator.attrgetter("path"))
    run.on_start(Begin(count=len(sorted_changes), budget=budget, holds=undetermined_blocks))

    files = _read_files(repository, sorted_changes)  # reading them isn't charged to the budget
    running.run(gatekeeper.judge(files, deadline=time.monotonic() + budget))
    return [gatekeeper.rows[change.path, change.blob] for change in sorted_changes]


def _read_files(repository: Repository, changes: Sequence[ChangedFile]) -> list[_FileToJudge]:
    """Read each changed file, and build its document. A file that can't be judged gets a reason."""
    oids = (change.blob for change in changes)
    contents = [data for _, data in repository.read_blobs(oids, MAX_BLOB_BYTES)]
    blobs_here = _find_blobs_here(repository, changes, contents)

    files = []
    for change, data in zip(changes, contents, strict=True):
        is_here = change.blob in blobs_here
        document, reason = read_changed_file(change, data, is_here=is_here)
        files.append(_FileToJudge(change, document, reason))
    return files


def _find_blobs_here(
    repository: Repository, changes: Sequence[ChangedFile], contents: Sequence[bytes | None]
) -> set[str]:
    """Find the blobs that this clone has, including those that are too large to read."""
    blobs_here: set[str] = set()
    unread_blobs: list[str] = []
    for change, data in zip(changes, contents, strict=True):
        if data is None:  # too large, or missing from this clone
            unread_blobs.append(change.blob)
        else:
            blobs_here.add(change.blob)

    blobs_here.update(_find_existing_blobs(repository, unread_blobs))
    return blobs_here


def _find_existing_blobs(repository: Repository, blobs: list[str]) -> set[str]:
    """Ask git which of these blobs this clone has."""
    existing_blobs = set()
    for line in repository.describe_objects(blobs):  # OID KIND SIZE, or OID missing
        oid, _, description = line.partition(" ")
        if description != "missing":
            existing_blobs.add(oid)
    return existing_blobs


@dataclass(frozen=True, slots=True)
class _Gatekeeper:
    """Judges the files in a push: verdicts go to `ledger`, their rows to `rows`, remarks to `notes`."""

    settings: Config
    folder: Path
    loaded_rubric: loader.LoadedRubric
    ledger: Ledger
    push: PushRecord
    run_options: Run
    notes: list[str]
    choose_depth: DepthChooser | None
    # Only set in CI, where the ledger's overrides don't count.
    reviewed_overrides: reviewers.ReviewedOverrides | None
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    @property
    def mode(self) -> ModeName:
        return self.settings.gate.judge_mode

    async def judge(self, files: Sequence[_FileToJudge], *, deadline: float) -> None:
        """Judge each file and add its row to `rows`. Models have until `deadline`, a `time.monotonic` time.

        An invalid configuration raises `ConfigError` before any model is called.
        """
        decisions = list(self.ledger.read_records(DECISIONS_FILTER))  # people's decisions on files
        undecided: list[tuple[ChangedFile, Document]] = []

        for file in files:
            is_decided = self._decide_without_models(
                file.change, file.document, file.reason, decisions
            )
            if not is_decided:
                undecided.append((file.change, file.document))

        if undecided:
            await self._judge_with_models(undecided, decisions, deadline)

    def _decide_without_models(
        self, change: ChangedFile, document: Document, obstacle: str, decisions: Sequence[Record]
    ) -> bool:
        """Add a file's row if it needs no model. Returns True if it did.

        A file needs no model if it can't be judged, or if a person overrode its verdict. `obstacle` is why it
        can't be judged, or "".
        """
        override = None
        if not obstacle:  # only a file that can be judged can have an override
            override = self._find_override(change, document, decisions)
            if override is None:
                return False

        verdict = tasks.decide_without_models(
            self.loaded_rubric, self.mode, document, override, obstacle
        )
        self._add_row(change, verdict)
        return True

    def _find_override(
        self, change: ChangedFile, document: Document, decisions: Sequence[Record]
    ) -> OverrideLine | None:
        """Find the override that counts for a file, or None."""
        # A program can give an override too, but without a terminal. It only counts if the user permits that.
        without_terminal = self.settings.gate.override_without_terminal
        if self.reviewed_overrides is not None:  # in CI, only reviewers' overrides count
            return self.reviewed_overrides.find(document, change, without_terminal=without_terminal)

        hashes = [file.sha256 for file in document.files]
        return find_newest_override(
            decisions, document.task_id, hashes, without_terminal=without_terminal
        )

    async def _judge_with_models(
        self,
        undecided: Sequence[tuple[ChangedFile, Document]],
        decisions: Sequence[Record],
        deadline: float,
    ) -> None:
        """Judge files concurrently. Without a model, all files become undetermined."""
        async with aclosing(open_gateway(environment.environ())) as gateway:
            request = JudgeRequest(
                rubric=str(self.loaded_rubric.path), mode=self.mode, explain=True
            )
            judge, no_model_reason = service.build_document_judge(gateway, self.folder, request)
            # A remote judge asks its own models.
            has_model = judge.models_by_tier or judge.is_remote
            if not has_model:
                self._add_undetermined_rows(undecided, f"not judged: {no_model_reason}")
                return

            async def judge_and_record(pair: tuple[ChangedFile, Document]) -> None:
                """Judge a file, and add its verdict to the ledger and to `rows`."""
                change, document = pair
                verdict = await self._judge_file(judge, change, document, deadline)
                self._record_verdict(change, verdict, decisions)

            limit = service.max_concurrency(judge, MAX_CONCURRENT)
            stream = map_concurrently(judge_and_record, undecided, limit, in_order=False)
            async with aclosing(stream):
                async for _ in stream:  # `judge_and_record` has added the row
                    pass

    def _add_undetermined_rows(
        self, files: Sequence[tuple[ChangedFile, Document]], reason: str
    ) -> None:
        """Add an undetermined row for each file. `reason` says why no model can judge them."""
        self.notes.append(reason)
        for change, document in files:
            verdict = tasks.decide_without_models(
                self.loaded_rubric, self.mode, document, override=None, reason=reason
            )
            # Nothing was judged, so the verdict isn't recorded in the ledger.
            self._add_row(change, verdict)

    async def _judge_file(
        self, judge: DocumentJudge, change: ChangedFile, document: Document, deadline: float
    ) -> Verdict:
        """Judge a file. Mark the verdict as noise if another run could well decide differently."""
        seconds_left = deadline - time.monotonic()
        timeout = min(judge.settings.timeout, seconds_left)
        limited_judge = judge.with_settings(timeout=timeout)
        file_judge = self._set_depth_for_file(limited_judge, change, document)

        verdict = await file_judge.judge(document)
        # Without findings, a rejection doesn't say what to change.
        verdict = tasks.require_findings(verdict)
        # Noise was measured for the configured judge, without this file's timeout and depth.
        verdict = self._mark_noise(judge, document, verdict)
        return self._set_stable_id(verdict, change)

    def _set_depth_for_file(
        self, judge: DocumentJudge, change: ChangedFile, document: Document
    ) -> DocumentJudge:
        """Return the judge, set to the depth chosen for this file, if depths are configured."""
        # A shared judge, on the team's server, chooses the depth itself.
        uses_shared_judge = bool(self.settings.server.url)
        if uses_shared_judge or self.choose_depth is None:
            return judge
        return _set_depth(judge, self.choose_depth(change, document))

    def _mark_noise(self, judge: DocumentJudge, document: Document, verdict: Verdict) -> Verdict:
        """Mark a verdict as noise if another run could well decide differently.

        Noise is only measured at the depth "tiers", so verdicts from other depths stay as they are.
        """
        # A verdict only records its depth if depths are configured. The default depth is "tiers".
        recorded = verdict.depth
        used_depth = recorded.depth if recorded else "tiers"
        if used_depth != "tiers":
            return verdict

        try:
            return noise.mark_noise(judge, document, verdict)
        except ConfigError as error:
            self.notes.append(f"noise not known: {error}")
            return verdict

    def _set_stable_id(self, verdict: Verdict, change: ChangedFile) -> Verdict:
        """Make a verdict's id from the run's id and the file, so that a restarted run gives the same id.

        If the run has no id, the verdict keeps its own.
        """
        if not self.run_options.id:
            return verdict
        name = f"{self.run_options.id}\0{change.path}\0{change.blob}"
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        return verdict.model_copy(update={"id": digest[:32]})

    def _record_verdict(
        self, change: ChangedFile, verdict: Verdict, decisions: Sequence[Record]
    ) -> None:
        """Add a verdict to the ledger, and its row to `rows`.

        If the ledger can't be written, the row is marked as lost, and a note says why.
        """
        is_lost = False
        push_record = self.push.model_copy(update={"cached": _is_from_cache(verdict)})
        try:
            verdict = self.ledger.add_verdict(
                verdict, decisions, push_record, text=self.settings.ledger.text
            )
        except LedgerError as error:
            self.notes.append(str(error))
            is_lost = True
        self._add_row(change, verdict, is_lost=is_lost)

    def _add_row(self, change: ChangedFile, verdict: Verdict, *, is_lost: bool = False) -> None:
        """Add a file's row to `rows`, and pass it to the caller's `on_verdict`.

        `is_lost` means that the verdict couldn't be written to the ledger.
        """
        # The first person is the commit's author, as in "Ada <ada@example.org>".
        author, _, _ = change.commit.people[0].partition(" <")
        row = Row(
            path=replace_surrogates(change.path),
            word=convert_to_gate_word(verdict.verdict),
            commit=change.commit.oid,
            author=author,
            lost=is_lost,
            verdict=verdict.record(),
        )

        self.rows[change.path, change.blob] = row
        self.run_options.on_verdict(row)


def _set_depth(judge: DocumentJudge, depth: Depth) -> DocumentJudge:
    """Return a judge that judges each document at this depth."""
    from judgekit.judging import review  # noqa: PLC0415 - only if depths are configured

    def choose_depth(_document: Document) -> Depth:
        """Choose the same depth for every document."""
        return depth

    judge_at_depth = partial(review.judge_at_depth, choose_depth)
    return replace(judge, judge_instead=judge_at_depth)  # instead of the usual judging


def _is_from_cache(verdict: Verdict) -> bool:
    """Whether no model was called for a verdict, since all replies were in the cache."""
    # Failures are never cached, so a failed round shows that a model was called.
    has_failures = any(judged_round.failure for judged_round in verdict.rounds)
    if has_failures:
        return False
    return verdict.cost_source == "cache"
