"""`judgekit promote`: from advisory to blocking, when the figures allow it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.ledger import Ledgers, damaged, here, places
from judgekit.cli.output import say, warn
from judgekit.errors import ConfigError, Exit, UsageError

if TYPE_CHECKING:
    from judgekit.ledger.kpi import Readiness

_DEPENDENT = (
    "independence: an author's own model family may accept alone; set judge.independence: require, "
    "or promote with --accept-dependence"
)


def promote(
    force: Annotated[
        bool, typer.Option("--force", help="Promote although something is missing; the ledger keeps that.")
    ] = False,
    accept_dependence: Annotated[
        bool,
        typer.Option(
            "--accept-dependence",
            help="Promote without judge.independence: require; the ledger keeps that.",
        ),
    ] = False,
    ledger: Ledgers = None,
) -> int:
    """Make the gate block pushes, once all KPIs hold over at least 14 days; exit code 1 when they do not.

    Writes `gate.mode: blocking` into the project's .judgekit/config.yaml, for the team to commit.
    """
    from judgekit.config import settings, yamlfile
    from judgekit.ledger import ModeChange, labels

    project = _repository()
    path = settings.project_file(project)
    _refuse_links(path)
    dependent = settings.load(project).judge.independence != "require"
    found, rubric = readiness(project, ledger)
    say(f"{rubric}, verdicts of the last {_window_days()} days:")
    _say_what_holds(found)
    missing = [*found.missing, *([_DEPENDENT] if dependent and not accept_dependence else [])]
    for lack in missing:
        warn(f"missing: {lack}")
    if missing and not force:
        warn("not promoted; judgekit kpi shows the figures, --force promotes all the same")
        return Exit.REJECTED
    yamlfile.put(path, "gate", "mode", "blocking")
    say(f"{path}: gate.mode is blocking now; commit it, and it holds for the team")
    change = ModeChange(
        mode="blocking", who=labels.who(project), forced=bool(missing), why=missing, dependent=dependent
    )
    here().add(change)  # last: the ledger must not tell of a promotion that failed
    return 0


def readiness(project: Path, ledger: list[Path] | None = None) -> tuple[Readiness, str]:
    """Return what a promotion of a project's gate lacks, and the rubric's version that this is about."""
    from judgekit.config import settings
    from judgekit.ledger import kpi as standing
    from judgekit.ledger import store
    from judgekit.rubric import loader

    rubric = loader.configured_rubric("gate", settings.load(project).gate.rubric, project).rubric.ref
    records = store.records(places(ledger, None), standing.window(), damaged)
    return standing.readiness(records, rubric), rubric


def _say_what_holds(found: Readiness) -> None:
    """Print the KPIs that hold; the others are named with what they lack."""
    for kpi in found.kpis:
        if kpi.state == "holds":
            say(f"  ok       {kpi}")


def _window_days() -> int:
    from judgekit.ledger import kpi as standing

    return standing.WINDOW.days


def _repository() -> Path:
    """Return the folder that the gate reads the rules of; raises `UsageError` where there is none."""
    from judgekit.git import GitError, Repository

    try:
        told = Repository(Path.cwd()).ask("rev-parse", "--show-toplevel").removesuffix(b"\n")
    except GitError as error:
        raise UsageError(
            f"promote needs a git repository, whose pushes the gate can block ({error})"
        ) from None
    return Path(os.fsdecode(told))


def _refuse_links(path: Path) -> None:
    """Raise `ConfigError` for a file that git would commit as a link: the gate reads none."""
    for each in (path.parent, path):
        if each.is_symlink():
            raise ConfigError("a link, which the gate does not follow; put the file itself there", path=each)
