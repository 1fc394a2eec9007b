"""One run of the gate: a push, or the commits since a base, from git to a word for each changed file."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import config as configuration
from judgekit import library
from judgekit.errors import ConfigError, JudgekitError
from judgekit.gate import commits, files, glance, policy
from judgekit.gate.flow import Gatekeeper
from judgekit.gate.report import Begin, Report
from judgekit.gate.rules_commit import commits_of
from judgekit.gate.selection import Wanted
from judgekit.ledger import Gate, Ledger, LedgerError, ModeChange
from judgekit.ledger.forward import hand_on
from judgekit.ledger.standing import standing, window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from judgekit.config import Config, EscalateConfig
    from judgekit.gate.commits import Change
    from judgekit.gate.commits import Pushed as Changes
    from judgekit.gate.flow import Hears, Passed
    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository
    from judgekit.ledger.records import GateMode

Find: TypeAlias = "Callable[[Callable[[Change], bool]], Changes]"


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

    `begins` is told what is known when judging begins. `spent` are seconds of the budget that are gone. A run
    that is begun again with the same `id` names its verdicts alike, so that a ledger counts none twice.
    """

    mode: GateMode | None = None
    hears: Hears = lambda _: None
    begins: Callable[[Begin], None] = lambda _: None
    spent: float = 0.0
    id: str = ""


def check_push(
    repository: Repository, updates: Sequence[RefUpdate], remote: str, url: str, run: Run
) -> Outcome:
    """Judge what a push to `remote` brings there.

    Raises `JudgekitError`: nothing was judged then, and the push is to leave.
    """
    refs = ", ".join(each.remote_ref for each in updates if not each.deletes)
    push = Gate(remote=url or remote, ref=refs)
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
        [commits.known(repository, base)],
        Gate(ref=base),
        lambda wanted: commits.since(repository, base, "HEAD", wanted),
        run,
    )


class Held(JudgekitError):  # noqa: N818 - the push is
    """Nothing could be judged, and the rules let nothing pass that is not judged; the text says why."""


def _check(repository: Repository, rules: Sequence[str], push: Gate, find: Find, run: Run) -> Outcome:
    settings: Config | None = None
    with ExitStack() as stack:
        try:
            loaded = _rules(repository, rules, stack)
            settings, folder = max(loaded, key=lambda each: _strictness(each[0]))
            wanted = [Wanted(each.gate.paths, each.gate.authors) for each, _ in loaded]
            glance.keep(repository, rules, settings.gate.paths, settings.gate.authors)
            found = find(lambda change: any(each(change) for each in wanted))
            return _judged(repository, folder, settings, found, push, run)
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
    repository: Repository, folder: Path, settings: Config, found: Changes, push: Gate, run: Run
) -> Outcome:
    mode = run.mode or settings.gate.mode
    holds = settings.gate.undetermined == "block"
    if not found.changes:
        return Outcome([], mode, found.notes, settings.escalate, found.unjudged, holds)
    ledger = Ledger.of(repository.folder)
    loaded = library.configured_rubric("gate", settings.gate.rubric, folder)
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
    run.begins(Begin(count=len(found.changes), budget=keeper.budget, holds=holds and mode == "blocking"))
    passed, notes = keeper.judge(list(files.read(repository, found.changes)), run.hears)
    notes += hand_on(settings, ledger)
    return Outcome(passed, mode, [*found.notes, *said, *notes], settings.escalate, found.unjudged, holds)


def _standing(ledger: Ledger, mode: GateMode, rubric: str) -> tuple[GateMode, list[str]]:
    """Return the mode that holds: blocking is suspended where labels show that it is not earned."""
    if mode == "advisory":
        return mode, []
    found = standing(ledger.records(window()), rubric)
    if not found.advisory:
        return mode, []
    said = [f"blocking is suspended until the figures recover: {each}" for each in found.why]
    if not found.told:
        try:
            ledger.add(ModeChange(mode="advisory", why=found.why))
        except LedgerError as error:
            said.append(str(error))
    return "advisory", said
