"""Opens and closes issues about verdicts on GitHub, through its command line program."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import environment, programs
from judgekit.config import settings as configuration
from judgekit.errors import Exit, JudgekitError
from judgekit.gate import issues
from judgekit.git import GitError, Repository
from judgekit.ledger import Ledger, LineFilter, VerdictLine
from judgekit.ledger.labels import triage
from judgekit.text import lines_of, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from judgekit.config.settings import EscalateConfig
    from judgekit.judging.verdict import Verdict
    from judgekit.ledger import Record

SECONDS = 10.0  # for all issues of one run
MOST = 10  # issues of one push
NEWEST = 50  # issues that are looked through; older ones are searched for
_MOST = 16_000_000  # bytes of what gh may print; a thousand issues are a tenth of that
_POLL = 0.02
_SAID = 200  # characters of gh's own words
_IMPROVED = 2  # rounds
_LATER = "retry with judgekit escalate"
_NOT_SIGNED_IN = 4  # gh's exit code
_KEPT = {
    *("PATH", "HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "TMPDIR", "TEMP", "LANG"),
    *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_HOST"),
    *("GH_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),  # where a keyring is that holds gh's token
}
_SET = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_NO_EXTENSION_UPDATE_NOTIFIER": "1",
    "GH_SPINNER_DISABLED": "1",
    "GH_PAGER": "cat",
    "NO_COLOR": "1",
}
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
    """An issue could not be found, opened or updated; the text says why in one line, and what to do."""

    exit_code = Exit.HUMAN_NEEDED


class OpenIssue(NamedTuple):
    """An issue of ours as it stands on GitHub."""

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
        self._program, self._repository, self._until = program, repository, until
        self._environ = {name: value for name, value in environ.items() if name in _KEPT} | _SET
        self._environ["PATH"] = programs.search_path(environ)
        self._newest: list[OpenIssue] | None = None

    def find(self, token: str) -> OpenIssue | None:
        """Return the issue of the task with this token, open or closed; of several the oldest.

        GitHub's search may lag behind by minutes, so the newest issues are listed first.
        """
        if self._newest is None:
            self._newest = self._list("--limit", str(NEWEST))
        same = [issue for issue in self._newest if issue.token == token]
        same = same or [each for each in self._list("--search", f'"{token}" in:body') if each.token == token]
        return min(same, default=None)

    def create(self, wanted: issues.Issue, labels: Sequence[str] = ()) -> str:
        """Open an issue and return its address; where a label cannot be given it has none."""
        words = ["create", "--title", wanted.title, "--body-file", "-"]
        named = [f"--label={label}" for label in labels]
        try:
            output = self.ask(*words, *named, stdin=wanted.body)
        except GhError as error:
            if not named or "label" not in str(error):
                raise
            output = self.ask(*words, stdin=wanted.body)
        return one_line(output.strip().rpartition("\n")[2], _SAID)

    def update(self, standing: OpenIssue, wanted: issues.Issue) -> None:
        """Give an issue a new title and body, and open it again where it was closed."""
        number = str(standing.number)
        if not standing.is_open:
            self.ask("reopen", number)
        self.ask("edit", number, "--title", wanted.title, "--body-file", "-", stdin=wanted.body)

    def _list(self, *words: str) -> list[OpenIssue]:
        output = self.ask("list", "--state", "all", "--json", "number,url,state,body", *words)
        try:
            listed = json.loads(output)
        except (ValueError, RecursionError):
            raise GhError("gh issue list: no JSON in the output; update gh") from None
        open_issues = []
        for each in listed if isinstance(listed, list) else ():
            known = isinstance(each, dict) and isinstance(each.get("number"), int)
            if known and (mark := issues.mark(str(each.get("body") or ""))):
                url = one_line(str(each.get("url") or f"#{each['number']}"), _SAID)
                is_open = str(each.get("state")).upper() == "OPEN"
                open_issues.append(OpenIssue(each["number"], url, is_open, *mark))
        return open_issues

    def ask(self, verb: str, *words: str, stdin: str = "") -> str:
        """Return what `gh issue VERB WORDS` prints, run in the home folder: nothing of a clone is read.

        When it takes longer, or prints too much, it is killed, with all that it started. Raises `GhError`.
        """
        if self._until <= time.monotonic():
            raise GhError("no time left for gh")
        argv = [self._program, "issue", verb, *words, "--repo", self._repository]
        # Files, not pipes: nothing that it leaves running can keep them open, and their size is known.
        with contextlib.ExitStack() as stack:
            given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            given.write(stdin.encode("utf-8", "replace"))
            given.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - gh, found on the user's PATH, and our own words
                    argv,
                    cwd=Path.home(),
                    env=self._environ,
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:  # ValueError: a NUL in a word
                raise GhError(f"gh could not be started ({error})") from None
            try:
                running = True
                while running:
                    running = process.poll() is None
                    if running and time.monotonic() > self._until:
                        raise GhError(f"gh issue {verb}: no response in time")
                    if any(os.fstat(file.fileno()).st_size > _MOST for file in (out, err)):
                        raise GhError(f"gh issue {verb}: printed more than {_MOST:,} bytes")
                    time.sleep(_POLL if running else 0)
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    if sys.platform == "win32":
                        process.kill()
                    else:
                        os.killpg(process.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
            out.seek(0)
            err.seek(0)
            output, errors = (file.read().decode("utf-8", "replace") for file in (out, err))
        if process.returncode == _NOT_SIGNED_IN:
            raise GhError("gh is not signed in; run gh auth login")
        if process.returncode:
            errors = one_line(errors, _SAID) or f"exit code {process.returncode}"
            raise GhError(f"gh issue {verb}: {errors}")
        return output


def of_project(repository: Repository, environ: Mapping[str, str], address: str = "") -> str | None:
    """Return `HOST/OWNER/NAME`: that in `GH_REPO`, else the repository at `address`, else that of `origin`.

    Of a project with one remote that has another name, it is that remote. None where that is not on GitHub.
    """
    named = environ.get("GH_REPO", "").strip()
    if named:
        return named if _NAMED.fullmatch(named) else None
    if not address:
        try:
            remotes = lines_of(os.fsdecode(repository.ask("remote")))
            chosen = "origin" if "origin" in remotes or len(remotes) != 1 else remotes[0]
            raw = repository.ask("remote", "get-url", "--", chosen)
        except GitError:
            return None
        address = raw.decode("utf-8", "replace").rstrip("\n")
    return of_address(address, environ)


def of_address(address: str, environ: Mapping[str, str]) -> str | None:
    """Return `HOST/OWNER/NAME` for a git address on GitHub, None for any other.

    Another host counts only when the user names it in `GH_HOST`: gh sends it a token, and a clone's
    address must not choose who gets that.
    """
    found = _ADDRESS.fullmatch(address.strip())
    if found is None:
        return None
    host = (found["host"] or found["scp"]).lower()
    host = _ALIASES.get(host, host)
    known = {_GITHUB, environ.get("GH_HOST", "").strip().lower() or _GITHUB}
    return f"{host}/{found['owner']}/{found['name']}" if host in known else None


def by_itself(
    verdicts: Sequence[Verdict], folder: Path, settings: EscalateConfig | None = None, address: str = ""
) -> list[str]:
    """Open or update issues as far as the settings want it; return lines for a person, and never raise."""
    lines: list[str] = []
    count = 0
    try:
        if settings is None:
            settings = configuration.load(None).escalate
            if settings.issues != "off":  # else no file of a project need be read
                settings = configuration.load(Path(environment.project_root(str(folder)))).escalate
        if settings.issues != "on":
            return []
        before: Sequence[VerdictLine] = ()
        if settings.rejects and any(verdict.verdict == "improve" for verdict in verdicts):
            records = Ledger.of(folder).records(LineFilter(kinds=[VerdictLine]))
            before = [record for record in records if isinstance(record, VerdictLine)]
        wanted = [verdict for verdict in verdicts if concerns(verdict, before, rejects=settings.rejects)]
        count = len(wanted)
        for what, line in ensure(wanted[:MOST], settings, folder, address):
            count -= 1
            lines += [line] if what != "stands" else []
    except GhError as error:
        return [*lines, f"no issue was opened for {count}: {error}; {_LATER}"]
    except JudgekitError as error:
        return [f"no issue was opened: {error}"]
    except Exception as error:  # noqa: BLE001 - the boundary: an issue must not cost a verdict or a push
        return [f"no issue was opened: internal error: {type(error).__name__}: {error}"]
    if count:
        lines.append(f"no issue was opened for {count} more: {MOST} at a time is the limit; {_LATER}")
    return lines


def concerns(verdict: Verdict, before: Iterable[VerdictLine] = (), *, rejects: bool) -> bool:
    """Whether a verdict is for a person to settle, and none has.

    With `rejects` a rejection is; and `improve` where models came to it in two rounds, of this verdict and of
    those right `before` it on the same task: its author does not get on alone.
    """
    if verdict.human_override is not None:
        return False
    if verdict.verdict != "improve" or not rejects:
        return verdict.verdict == "escalate" or (rejects and verdict.verdict == "reject")
    name, rounds = issues.task_name(verdict.task_id), 0
    same = [line for line in before if issues.task_name(line.task_id) == name and line.id != verdict.id]
    earlier = [line for line in same if line.timestamp <= verdict.timestamp]
    newest = sorted(earlier, key=lambda line: line.timestamp, reverse=True)
    for each in takewhile(lambda line: line.verdict == "improve", [verdict, *newest]):
        outcomes = [one.opinion.get("outcome") for one in each.rounds if one.opinion]
        rounds += max(1, outcomes.count("improve"))
    return rounds >= _IMPROVED


def unsettled(records: Iterable[Record], *, rejects: bool) -> list[VerdictLine]:
    """Return the last verdict of each task that is for a person to settle, newest first."""
    lines = list(records)
    waiting = triage(lines)
    before = [line for line in lines if isinstance(line, VerdictLine)]
    wanted = [line for line in (*waiting.unclear, *waiting.nogo) if concerns(line, before, rejects=rejects)]
    return sorted(wanted, key=lambda line: line.timestamp, reverse=True)


def ensure(
    verdicts: Sequence[Verdict],
    settings: EscalateConfig,
    folder: Path,
    address: str = "",
    seconds: float = SECONDS,
) -> Iterator[tuple[str, str]]:
    """Make sure that each verdict has its issue; yield what was done for it, as a word and a line.

    Issues go to the repository at `address`, else to that of the project in `folder`. `stands`: there is an
    issue about this very content. An issue that a person closed is opened again only when the content, or the
    verdict, changed. Raises `GhError`.
    """
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
        if standing is None:
            what, url = "opened", gh.create(wanted, settings.labels)
        elif standing.state == wanted.state:
            what, url = "stands", standing.url
        else:
            gh.update(standing, wanted)
            what, url = "updated" if standing.is_open else "opened again", standing.url
        yield what, f"issue {what}: {url} ({one_line(issues.task_name(verdict.task_id), 200)})"
