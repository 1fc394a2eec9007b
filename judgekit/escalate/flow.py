"""From verdicts to issues: one a task, as well as it goes and never in the way."""

from __future__ import annotations

import time
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import config as configuration
from judgekit import environment, paths
from judgekit.errors import JudgekitError
from judgekit.escalate import issue, remote
from judgekit.escalate.gh import Gh, GhError
from judgekit.git import Repository
from judgekit.ledger import Ledger, VerdictLine, Wanted
from judgekit.ledger.triage import triage
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from judgekit.config import EscalateConfig
    from judgekit.ledger import Record
    from judgekit.verdict import Verdict

SECONDS = 10.0  # for all issues of one run
MOST = 10  # issues of one push
_IMPROVED = 2  # rounds
_LATER = "judgekit escalate tries again"


class Place(NamedTuple):
    """Where issues go: to the repository at `address`, else to that of the project in `folder`."""

    folder: Path
    address: str = ""

    def name(self, environ: Mapping[str, str]) -> str:
        """Return `HOST/OWNER/NAME`; raises `GhError` when the project is not on GitHub."""
        found = remote.of_project(Repository(self.folder), environ, self.address)
        if found is None:
            told = "is not on GitHub; for a host of your own set GH_HOST, or name the repository in GH_REPO"
            raise GhError(f"the project's remote {told}", general=True)
        return found


class Done(NamedTuple):
    """What became of one issue."""

    verdict: Verdict
    what: str
    url: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"issue {self.what}: {self.url} ({one_line(issue.task_name(self.verdict.task_id), 200)})"


def by_itself(verdicts: Iterable[Verdict], place: Place, settings: EscalateConfig | None = None) -> list[str]:
    """Open or update issues as far as `settings` (those in `place`) ask for it; return lines for a person.

    Never raises, and takes no longer than `SECONDS`.
    """
    try:
        return _by_itself(verdicts, place, settings or _configured(place))
    except JudgekitError as error:
        return [f"no issue was opened: {error}"]
    except Exception as error:  # noqa: BLE001 - the boundary: an issue must not cost a verdict or a push
        return [f"no issue was opened: internal error: {type(error).__name__}: {error}"]


def _configured(place: Place) -> EscalateConfig:
    own = configuration.load(None).escalate
    if own.issues == "off":  # whatever a project asks for, so that its files need not be read
        return own
    return configuration.load(Path(paths.project_root(str(place.folder)))).escalate


def _by_itself(verdicts: Iterable[Verdict], place: Place, settings: EscalateConfig) -> list[str]:
    if settings.issues != "on":
        return []
    given = list(verdicts)
    before: Sequence[VerdictLine] = ()
    if settings.rejects and any(each.verdict == "improve" for each in given):
        records = Ledger.of(place.folder).records(Wanted(kinds=[VerdictLine]))
        before = [each for each in records if isinstance(each, VerdictLine)]
    wanted = [each for each in given if concerns(each, before, rejects=settings.rejects)]
    lines: list[str] = []
    done = 0
    try:
        for each in ensure(wanted[:MOST], settings, place):
            done += 1
            if each.what != "stands":
                lines.append(str(each))
    except GhError as error:
        lines.append(f"no issue was opened for {len(wanted) - done}: {error}; {_LATER}")
    else:
        left = len(wanted) - done
        lines += (
            [f"no issue was opened for {left} more: {MOST} are enough at a time; {_LATER}"] if left else []
        )
    return lines


def concerns(verdict: Verdict, before: Iterable[VerdictLine] = (), *, rejects: bool) -> bool:
    """Whether a verdict is for a person to settle, and none has.

    With `rejects` a rejection is; and `improve` where models came to it in two rounds, of this verdict and of
    those right `before` it on the same task: its author does not get on alone.
    """
    if verdict.human_override is not None:
        return False
    if verdict.verdict == "improve":
        return rejects and _improved(verdict, before) >= _IMPROVED
    return verdict.verdict == "escalate" or (rejects and verdict.verdict == "reject")


def _improved(verdict: Verdict, before: Iterable[VerdictLine]) -> int:
    """Return in how many rounds models came to `improve`, back to the task's last verdict of another word."""
    name = issue.task_name(verdict.task_id)
    earlier = [
        each
        for each in before
        if issue.task_name(each.task_id) == name
        and each.timestamp <= verdict.timestamp
        and each.id != verdict.id
    ]
    newest = sorted(earlier, key=lambda each: each.timestamp, reverse=True)
    row = takewhile(lambda each: each.verdict == "improve", [verdict, *newest])
    return sum(map(_improve_rounds, row))


def _improve_rounds(verdict: Verdict) -> int:
    outcomes = [each.opinion.get("outcome") for each in verdict.rounds if each.opinion]
    return max(1, outcomes.count("improve"))


def unsettled(records: Iterable[Record], *, rejects: bool) -> list[VerdictLine]:
    """Return the last verdict of each task that is for a person to settle, newest first."""
    lines = list(records)
    found = triage(lines)
    before = [each for each in lines if isinstance(each, VerdictLine)]
    listed = [*found.unclear, *found.nogo]
    wanted = [each for each in listed if concerns(each, before, rejects=rejects)]
    return sorted(wanted, key=lambda each: each.timestamp, reverse=True)


def ensure(
    verdicts: Sequence[Verdict],
    settings: EscalateConfig,
    place: Place,
    *,
    seconds: float = SECONDS,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Done]:
    """See to it that each verdict has its issue, and yield what was done for it.

    `stands` means that nothing was to do: the issue is there about this very content. An issue that a person
    closed is opened again only when the content, or what models say of it, changed. Raises `GhError`.
    """
    if not verdicts:
        return
    given = environment.environ() if environ is None else environ
    gh = Gh(place.name(given), time.monotonic() + seconds, given)
    for verdict in verdicts:
        wanted = issue.of(verdict, text=settings.text)
        yield _ensure(gh, verdict, wanted, settings.labels)


def _ensure(gh: Gh, verdict: Verdict, wanted: issue.Issue, labels: Sequence[str]) -> Done:
    standing = gh.find(wanted.token)
    if standing is None:
        return Done(verdict, "opened", gh.create(wanted, labels))
    if standing.mark.state == wanted.state:
        return Done(verdict, "stands", standing.url)
    gh.update(standing, wanted)
    return Done(verdict, "updated" if standing.is_open else "opened again", standing.url)
