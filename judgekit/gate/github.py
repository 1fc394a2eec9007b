"""Says which verdicts concern a person; opens GitHub issues about them and tells a program of the user's."""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import environment, outputs, programs
from judgekit.config import settings as configuration
from judgekit.config.locks import file_lock
from judgekit.errors import Exit, JudgekitError, problem_of
from judgekit.gate import issues
from judgekit.git import GitError, Repository
from judgekit.ledger import Ledger, LineFilter, Record, VerdictLine
from judgekit.ledger.labels import triage
from judgekit.task_ids import task_name
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from judgekit.config.settings import EscalateConfig
    from judgekit.judging.verdict import Verdict

SECONDS = 10.0  # for all issues of one run, and for all that a program is told
MOST = 10  # issues of one push
_MOST_TOLD = 1_000
_SAID = 200  # characters of a program's own words
_IMPROVED = 2  # rounds
_LATER = "retry with judgekit escalate"
_NOT_SIGNED_IN = 4  # gh's exit code
_GITHUB = "github.com"
_ALIASES = {"ssh.github.com": _GITHUB, "www.github.com": _GITHUB}
_NAME = r"[A-Za-z0-9_.][\w.-]*"
_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/\s]*@)?(?P<host>[\w.-]+)(?::\d+)?/|(?:[^@/\s:]+@)?(?P<scp>[\w.-]+):/?)"
    rf"(?P<owner>{_NAME})/(?P<name>{_NAME}?)(?:\.git)?/?",
    re.ASCII,
)
_NAMED = re.compile(rf"(?:[\w.-]+/)?{_NAME}/{_NAME}", re.ASCII)


class GhError(JudgekitError):
    exit_code = Exit.HUMAN_NEEDED


class OpenIssue(NamedTuple):
    number: int
    url: str
    is_open: bool
    token: str
    state: str


class Gh:
    """The issues of `HOST/OWNER/NAME`, until a moment of `time.monotonic`; raises `GhError` without gh."""

    def __init__(self, repository: str, until: float, environ: Mapping[str, str]) -> None:
        program = programs.find("gh", environ)
        if program is None:
            raise GhError("gh is not installed; see cli.github.com")
        self._program = program
        self._repository = repository
        self._until = until
        self._environ = programs.known("gh", environ)
        self._newest: list[OpenIssue] | None = None

    def find(self, token: str) -> OpenIssue | None:
        """Return the oldest issue with this token; GitHub's search lags, so the newest are listed first."""
        if self._newest is None:
            self._newest = self._list("--limit", "50")
        same = [issue for issue in self._newest if issue.token == token]
        same = same or [
            each for each in self._list("--search", f'"{token}" in:body') if each.token == token
        ]
        return min(same, default=None)

    def _list(self, *words: str) -> list[OpenIssue]:
        output = self.ask("list", "--state", "all", "--json", "number,url,state,body", *words)
        listed = []
        try:
            for issue in json.loads(output):
                mark = issues.mark(issue["body"] or "")
                if mark:
                    url = short_line(issue["url"], _SAID)
                    listed.append(OpenIssue(issue["number"], url, issue["state"] == "OPEN", *mark))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise GhError("gh issue list: the output is not a list of issues; update gh") from None
        return listed

    def ask(self, verb: str, *words: str, stdin: str = "") -> str:
        """Return what `gh issue VERB WORDS` prints; raises `GhError`, if late too."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise GhError("no time left for gh")
        argv = [self._program, "issue", verb, *words, "--repo", self._repository]
        try:
            code, output, errors = programs.run(argv, self._environ, stdin, seconds=left)
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            raise GhError(f"gh could not be started ({error})") from None
        except programs.Unfinished:
            raise GhError(f"gh issue {verb}: no response in time") from None
        if code == _NOT_SIGNED_IN:
            raise GhError("gh is not signed in; run gh auth login")
        if code:
            raise GhError(f"gh issue {verb}: {short_line(errors, _SAID) or f'exit code {code}'}")
        return output.decode(errors="replace")


def of_project(repository: Repository, environ: Mapping[str, str], address: str = "") -> str | None:
    """Return `HOST/OWNER/NAME` of `GH_REPO`, else of `address`, else of `origin`; None if not on GitHub."""
    if named := environ.get("GH_REPO", "").strip():
        return named if _NAMED.fullmatch(named) else None
    if not address:
        try:
            raw = repository.ask("remote", "get-url", "--", "origin")
        except GitError:
            return None
        address = raw.decode("utf-8", "replace").rstrip("\n")
    return of_address(address, environ)


def of_address(address: str, environ: Mapping[str, str]) -> str | None:
    """Return `HOST/OWNER/NAME` for a git address on GitHub, None for any other.

    Another host counts only when the user names it in `GH_HOST`: a clone must not choose who gets gh's token.
    """
    found = _ADDRESS.fullmatch(address.strip())
    if found is None:
        return None
    host = (found["host"] or found["scp"]).lower()
    host = _ALIASES.get(host, host)
    known = {_GITHUB, environ.get("GH_HOST", "").strip().lower() or _GITHUB}
    if host in known:
        return f"{host}/{found['owner']}/{found['name']}"
    return None


def by_itself(
    verdicts: Sequence[Verdict],
    folder: Path,
    settings: EscalateConfig | None = None,
    address: str = "",
) -> list[str]:
    """Tell the user's program and open issues as the settings want; return lines. Raises nothing."""
    lines: list[str] = []
    count = 0
    try:
        if settings is None:
            settings = configuration.load(None).escalate
            if settings.issues != "off":  # else no file of a project need be read
                settings = configuration.load(Path(environment.project_root(str(folder)))).escalate
        if settings.notify:
            divided = [verdict for verdict in verdicts if concerns(verdict, rejects=False)]
            lines += tell(divided, settings.notify.command, Ledger.of(folder).name)
        if settings.issues != "on":
            return lines
        before: Sequence[VerdictLine] = ()
        if settings.rejects and any(verdict.verdict == "improve" for verdict in verdicts):
            records = Ledger.of(folder).records(LineFilter(kinds=[VerdictLine]))
            before = [record for record in records if isinstance(record, VerdictLine)]
        wanted = [
            verdict for verdict in verdicts if concerns(verdict, before, rejects=settings.rejects)
        ]
        count = len(wanted)
        for what, line in ensure(wanted[:MOST], settings, folder, address):
            count -= 1
            lines += [line] if what != "stands" else []
    except GhError as error:
        return [*lines, f"no issue was opened for {count}: {error}; {_LATER}"]
    except Exception as error:  # noqa: BLE001 - the boundary: an issue must not cost a verdict or a push
        return [*lines, f"no issue was opened: {problem_of(error)}"]
    if count:
        lines.append(
            f"no issue was opened for {count} more: {MOST} at a time is the limit; {_LATER}"
        )
    return lines


def tell(verdicts: Sequence[Verdict], command: Sequence[str], project: str) -> list[str]:
    """Start the command for each verdict that it was not told of, its record on stdin; return what failed."""
    if not verdicts:
        return []
    until = time.monotonic() + SECONDS
    state = Path(environment.NOTIFIED.path()).parent
    environ = programs.known("notify", environment.environ())
    program = programs.find(command[0], environ)
    failed = f"escalate.notify: {command[0]}: "
    if program is None:
        return [f"{failed}not found; name a program on PATH, or its absolute path"]
    try:
        environment.private_folder(str(state))
        for verdict in verdicts:
            issue = issues.of(verdict)
            name = environment.digest(f"{project} {issue.token} {issue.state}")
            if not _begin_telling(state, name):
                continue
            is_told = False
            try:
                record = json.dumps(verdict.record(), ensure_ascii=False) + "\n"
                argv = [program, *command[1:]]
                left = until - time.monotonic()
                code, _, errors = programs.run(argv, environ, record, seconds=left)
                is_told = code == 0
            finally:
                _end_telling(state, name, is_told=is_told)
            if code:
                return [failed + (short_line(errors, _SAID) or f"exit code {code}")]
    except programs.Unfinished:
        return [f"{failed}not done after {SECONDS:g} s"]
    except (OSError, ValueError) as error:
        return [f"{failed}{error}"]
    return []


def _begin_telling(state: Path, name: str) -> bool:
    """Note that the program is being told something; False where it was told, or another process does it now.

    The note of a process that was killed counts no longer than a program may take.
    """
    with _notes(state) as notes:
        begun = notes.get(name, 0.0)
        if begun is None or abs(time.time() - begun) < 2 * SECONDS:
            return False
        notes[name] = time.time()
    return True


def _end_telling(state: Path, name: str, *, is_told: bool) -> None:
    with _notes(state) as notes:
        notes.pop(name, None)
        if is_told:
            notes[name] = None


@contextmanager
def _notes(state: Path) -> Iterator[dict[str, float | None]]:
    """Give what a program was told (None), and what it is being told (since when), and write the changes.

    A lock is held while this file is read and written, never while the program runs.
    """
    path = state / environment.NOTIFIED.name
    with file_lock(path.with_suffix(".lock"), timeout=SECONDS):
        notes: dict[str, float | None] = {}
        for word in path.read_text().split() if path.exists() else ():
            name, _, begun = word.partition(":")
            if begun:
                notes[name] = float(begun)
            else:
                notes[name] = None
        yield notes
        words = []
        for name, since in notes.items():
            words.append(name if since is None else f"{name}:{since}")
        outputs.write_atomically(str(path), "\n".join(words[-_MOST_TOLD:]), private=True)


def concerns(verdict: Verdict, before: Iterable[VerdictLine] = (), *, rejects: bool) -> bool:
    """Whether a verdict is for a person to settle, and none has; with `rejects` a rejection is.

    So is `improve` where models came to it in two rounds, with those `before`: its author needs help.
    """
    if verdict.human_override is not None:
        return False
    if verdict.verdict != "improve" or not rejects:
        return verdict.verdict == "escalate" or (rejects and verdict.verdict == "reject")
    name = task_name(verdict.task_id)
    rounds = 0
    same = []
    for line in before:
        if task_name(line.task_id) == name and line.id != verdict.id:
            same.append(line)
    earlier = [line for line in same if line.timestamp <= verdict.timestamp]
    newest = sorted(earlier, key=lambda line: line.timestamp, reverse=True)
    for each in takewhile(lambda line: line.verdict == "improve", [verdict, *newest]):
        outcomes = [one.opinion.get("outcome") for one in each.rounds if one.opinion]
        rounds += max(1, outcomes.count("improve"))
    return rounds >= _IMPROVED


def unsettled(records: Iterable[Record], *, rejects: bool) -> list[VerdictLine]:
    lines = list(records)
    waiting = triage(lines)
    before = [line for line in lines if isinstance(line, VerdictLine)]
    wanted = []
    for line in (*waiting.unclear, *waiting.nogo):
        if concerns(line, before, rejects=rejects):
            wanted.append(line)
    return sorted(wanted, key=lambda line: line.timestamp, reverse=True)


def ensure(
    verdicts: Sequence[Verdict],
    settings: EscalateConfig,
    folder: Path,
    address: str = "",
    seconds: float = SECONDS,
) -> Iterator[tuple[str, str]]:
    """Yield what becomes of each verdict's issue, `stands` where there is one already; raises `GhError`."""
    if not verdicts:
        return
    environ = environment.environ()
    repository = of_project(Repository(folder), environ, address)
    if repository is None:
        remedy = "for a host of your own set GH_HOST, or name the repository in GH_REPO"
        raise GhError(f"the project's remote is not on GitHub; {remedy}")
    gh = Gh(repository, time.monotonic() + seconds, environ)
    for verdict in verdicts:
        wanted = issues.of(verdict, text=settings.text)
        standing = gh.find(wanted.token)
        content = "--title", wanted.title, "--body-file", "-"
        if standing is None:
            labels = [f"--label={label}" for label in settings.labels]
            output = gh.ask("create", *content, *labels, stdin=wanted.body)
            what = "opened"
            url = short_line(output.strip().rpartition("\n")[2], _SAID)
        elif standing.state == wanted.state:
            what = "stands"
            url = standing.url
        else:
            number = str(standing.number)
            if not standing.is_open:
                gh.ask("reopen", number)
            gh.ask("edit", number, *content, stdin=wanted.body)
            what = "updated" if standing.is_open else "opened again"
            url = standing.url
        yield what, f"issue {what}: {url} ({short_line(task_name(verdict.task_id), 200)})"
