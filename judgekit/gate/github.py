"""Picks the verdicts that need a person, opens GitHub issues about them, and notifies the user's program."""

from __future__ import annotations

import enum
import json
import operator
import re
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, outputs, programs
from judgekit.config import settings as configuration
from judgekit.config.locks import file_lock
from judgekit.errors import Exit, JudgekitError, describe_error
from judgekit.gate import issues
from judgekit.git import GitError, Repository
from judgekit.ledger import Ledger, LineFilter, Record, VerdictLine
from judgekit.ledger.labels import triage_records
from judgekit.task_ids import task_name
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from judgekit.config.settings import EscalateConfig
    from judgekit.judging.verdict import Verdict

MAX_TOTAL_SECONDS = 10.0  # for all issues of a run, and for all notices to a program
MAX_ISSUES = 10  # per push
_MAX_NOTICES = 1_000
_MAX_MESSAGE_CHARS = 200  # characters quoted of a program's message
_MIN_ROUNDS_FOR_HELP = 2  # from this many on, the author needs help
_RETRY_HINT = "retry with judgekit escalate"
_NOT_SIGNED_IN = 4  # gh's exit code
_GITHUB_HOST = "github.com"
_ALIASES = {"ssh.github.com": _GITHUB_HOST, "www.github.com": _GITHUB_HOST}
_NAME_PATTERN = r"[A-Za-z0-9_.][\w.-]*"
_REMOTE_ADDRESS_PATTERN = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/\s]*@)?(?P<host>[\w.-]+)(?::\d+)?/|(?:[^@/\s:]+@)?(?P<scp>[\w.-]+):/?)"
    rf"(?P<owner>{_NAME_PATTERN})/(?P<name>{_NAME_PATTERN}?)(?:\.git)?/?",
    re.ASCII,
)
_REPOSITORY_PATTERN = re.compile(rf"(?:[\w.-]+/)?{_NAME_PATTERN}/{_NAME_PATTERN}", re.ASCII)


class GhError(JudgekitError):
    exit_code = Exit.HUMAN_NEEDED


class IssueOutcome(enum.StrEnum):
    """The outcome for a verdict's issue."""

    OPENED = "opened"
    UPDATED = "updated"
    REOPENED = "opened again"
    UNCHANGED = "stands"


class ListedIssue(NamedTuple):
    """An issue that judgekit opened, with the `token` and `fingerprint` of its `issues.Issue`."""

    number: int
    url: str
    is_open: bool
    token: str
    fingerprint: str


class Gh:
    """The issues of `HOST/OWNER/NAME`, up to a `time.monotonic` deadline; raises `GhError` without gh."""

    def __init__(self, repository: str, deadline: float, environ: Mapping[str, str]) -> None:
        program = programs.find("gh", environ)
        if program is None:
            raise GhError("gh is not installed; see cli.github.com")
        self._program = program
        self._repository = repository
        self._deadline = deadline
        self._environ = programs.build_environ("gh", environ)
        self._newest_issues: list[ListedIssue] | None = None  # filled on the first use

    def find_issue(self, token: str) -> ListedIssue | None:
        """Find the oldest issue with this token; None if there is none."""
        # GitHub's search is delayed and may miss the newest issues, so look through those first.
        if self._newest_issues is None:
            self._newest_issues = self._list_issues("--limit", "50")
        matches = [issue for issue in self._newest_issues if issue.token == token]
        if not matches:
            results = self._list_issues("--search", f'"{token}" in:body')
            matches = [issue for issue in results if issue.token == token]
        if not matches:
            return None
        return min(matches, key=operator.attrgetter("number"))

    def _list_issues(self, *gh_options: str) -> list[ListedIssue]:
        """List the issues that judgekit opened, filtered by gh's options."""
        output = self.run("list", "--state", "all", "--json", "number,url,state,body", *gh_options)
        listed_issues = []
        try:
            for fields in json.loads(output):
                issue = _read_issue(fields)
                if issue is not None:
                    listed_issues.append(issue)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise GhError("gh issue list: the output is not a list of issues; update gh") from None
        return listed_issues

    def run(self, verb: str, *arguments: str, stdin: str = "") -> str:
        """Run `gh issue VERB ARGUMENTS` and return its output.

        Raises `GhError` if gh can't be started, fails, or doesn't respond in time.
        """
        seconds_left = self._deadline - time.monotonic()
        if seconds_left <= 0:  # earlier runs used up the time
            raise GhError("no time left for gh")

        argv = [self._program, "issue", verb, *arguments, "--repo", self._repository]
        try:
            code, output, errors = programs.run(argv, self._environ, stdin, seconds=seconds_left)
        except (OSError, ValueError) as error:  # ValueError: an argument contains a NUL character
            raise GhError(f"gh could not be started ({error})") from None
        except programs.Unfinished:
            raise GhError(f"gh issue {verb}: no response in time") from None

        if code == _NOT_SIGNED_IN:
            raise GhError("gh is not signed in; run gh auth login")
        if code:
            raise GhError(f"gh issue {verb}: {_describe_exit(code, errors)}")
        return output.decode(errors="replace")


def _read_issue(fields: Mapping[str, Any]) -> ListedIssue | None:
    """Parse an issue from gh's JSON; None if judgekit didn't open the issue."""
    mark = issues.read_mark(fields["body"] or "")
    if mark is None:
        return None

    token, fingerprint = mark
    return ListedIssue(
        number=fields["number"],
        url=shorten_to_line(fields["url"], _MAX_MESSAGE_CHARS),
        is_open=fields["state"] == "OPEN",
        token=token,
        fingerprint=fingerprint,
    )


def _describe_exit(code: int, errors: str) -> str:
    """Return the start of a program's error output, or its exit code if there's none."""
    complaint = shorten_to_line(errors, _MAX_MESSAGE_CHARS)
    return complaint or f"exit code {code}"


def find_github_name(
    repository: Repository, environ: Mapping[str, str], address: str = ""
) -> str | None:
    """Return the repository's `HOST/OWNER/NAME` on GitHub, or None if it isn't there.

    Uses the variable `GH_REPO` if it's set, then `address`, and then the address of the remote `origin`.
    """
    users_choice = environ.get("GH_REPO", "").strip()
    if users_choice:
        return users_choice if _REPOSITORY_PATTERN.fullmatch(users_choice) else None

    if not address:
        try:
            raw = repository.ask("remote", "get-url", "--", "origin")
        except GitError:  # there's no remote `origin`
            return None
        address = raw.decode("utf-8", "replace").rstrip("\n")
    return parse_address(address, environ)


def parse_address(address: str, environ: Mapping[str, str]) -> str | None:
    """Convert a GitHub address to `HOST/OWNER/NAME`; None if the host isn't trusted."""
    match = _REMOTE_ADDRESS_PATTERN.fullmatch(address.strip())
    if match is None:
        return None

    # `https://HOST/OWNER/NAME`, or `HOST:OWNER/NAME` as scp writes it.
    host = (match["host"] or match["scp"]).lower()
    host = _ALIASES.get(host, host)
    # Only trust github.com and the user's `GH_HOST`. Otherwise a clone's configuration could send gh's token
    # to any server.
    users_host = environ.get("GH_HOST", "").strip().lower()
    is_allowed = host in (_GITHUB_HOST, users_host)
    return f"{host}/{match['owner']}/{match['name']}" if is_allowed else None


def notify_and_open_issues(
    verdicts: Sequence[Verdict],
    folder: Path,
    settings: EscalateConfig | None = None,
    address: str = "",
) -> list[str]:
    """Run the user's notification program and open issues, as configured. Returns messages for people.

    `settings` defaults to the configuration of the user and the project, and `address` to the URL of the
    remote `origin`.
    """
    messages: list[str] = []
    try:
        if settings is None:
            settings = _load_settings(folder)

        if settings.notify:
            unsettled = [verdict for verdict in verdicts if needs_person(verdict)]
            messages += notify(unsettled, settings.notify.command, Ledger.of(folder).name)

        if settings.issues == "on":
            # Add the messages one by one, so that the first ones are kept if an error follows.
            for message in _open_issues_up_to_limit(verdicts, settings, folder, address):
                messages.append(message)
    except Exception as error:  # noqa: BLE001 - no error here may cost the caller's verdict or push
        messages.append(f"no issue was opened: {describe_error(error)}")
    return messages


def _load_settings(folder: Path) -> EscalateConfig:
    """Load the project's escalation settings, or only the user's if those turn issues off."""
    users_settings = configuration.load(None).escalate
    if users_settings.issues == "off":  # the project can't turn them on
        return users_settings
    project = Path(environment.find_project_root(str(folder)))
    return configuration.load(project).escalate


def _open_issues_up_to_limit(
    verdicts: Sequence[Verdict], settings: EscalateConfig, folder: Path, address: str
) -> Iterator[str]:
    """Open or update up to `MAX_ISSUES` issues. Yields a message about each change, or about an error."""
    unsettled = _select_unsettled(verdicts, settings, folder)
    remaining_count = len(unsettled)

    try:
        for outcome, line in ensure_issues(unsettled[:MAX_ISSUES], settings, folder, address):
            remaining_count -= 1
            if outcome is not IssueOutcome.UNCHANGED:
                yield line
    except GhError as error:
        yield f"no issue was opened for {remaining_count}: {error}; {_RETRY_HINT}"
        return

    if remaining_count:
        limit = f"{MAX_ISSUES} at a time is the limit"
        yield f"no issue was opened for {remaining_count} more: {limit}; {_RETRY_HINT}"


def _select_unsettled(
    verdicts: Sequence[Verdict], settings: EscalateConfig, folder: Path
) -> list[Verdict]:
    """Select the verdicts that a person still has to settle.

    With `settings.rejects`, these include rejections and repeated `improve` verdicts on a task.
    """
    # The ledger is only needed to count repeated `improve` verdicts.
    ledger_verdicts: list[VerdictLine] = []
    has_improve = any(verdict.verdict == "improve" for verdict in verdicts)
    if settings.rejects and has_improve:
        records = Ledger.of(folder).read_records(LineFilter(kinds=[VerdictLine]))
        ledger_verdicts = _select_verdict_lines(records)

    unsettled = []
    for verdict in verdicts:
        if needs_person(verdict, ledger_verdicts, with_rejects=settings.rejects):
            unsettled.append(verdict)
    return unsettled


def _select_verdict_lines(records: Iterable[Record]) -> list[VerdictLine]:
    """Return the verdicts among a ledger's records."""
    return [record for record in records if isinstance(record, VerdictLine)]


def notify(verdicts: Sequence[Verdict], command: Sequence[str], project: str) -> list[str]:
    """Run a command once for each new verdict. Returns an empty list, or a line about a failure."""
    if not verdicts:
        return []
    failure = _send_notices(verdicts, command, project)
    if failure is None:
        return []
    return [f"escalate.notify: {command[0]}: {failure}"]


def _send_notices(verdicts: Sequence[Verdict], command: Sequence[str], project: str) -> str | None:
    """Run the user's command once for each verdict that it hasn't run for yet.

    Stops at the first failure and returns its reason. Returns None if there was no failure.
    """
    deadline = time.monotonic() + MAX_TOTAL_SECONDS  # for all verdicts together
    environ = programs.build_environ("notify", environment.environ())
    program = programs.find(command[0], environ)
    if program is None:
        return "not found; name a program on PATH, or its absolute path"

    argv = [program, *command[1:]]
    notices_folder = Path(environment.NOTIFIED_VERDICTS.path()).parent
    try:
        environment.make_private_folder(str(notices_folder))
        for verdict in verdicts:
            notice_key = _make_notice_key(verdict, project)
            send = partial(_run_program, argv, environ, deadline, verdict)
            failure = _send_once(notices_folder, notice_key, send)
            if failure is not None:
                return failure
    except programs.Unfinished:
        return f"not done after {MAX_TOTAL_SECONDS:g} s"
    # ValueError: an argument contains a NUL character, or the file of sent notices is damaged.
    except (OSError, ValueError) as error:
        return str(error)

    return None


def _make_notice_key(verdict: Verdict, project: str) -> str:
    """Make the key under which a verdict's notice is recorded."""
    issue = issues.build_issue(verdict)
    # The token identifies the task, and the fingerprint the verdict's content.
    return environment.digest(f"{project} {issue.token} {issue.fingerprint}")


def _send_once(folder: Path, notice_key: str, send: Callable[[], str | None]) -> str | None:
    """Send a notice, unless it was sent before or another process is sending it now.

    Returns the reason for a failure, or None.
    """
    if not _claim_notice(folder, notice_key):
        return None

    is_sent = False
    try:
        failure = send()
        is_sent = failure is None
    finally:  # if `send` raises, a later run can try again
        _end_claim(folder, notice_key, is_sent=is_sent)
    return failure


def _run_program(
    argv: Sequence[str], environ: Mapping[str, str], deadline: float, verdict: Verdict
) -> str | None:
    """Run a program with a verdict's record on stdin, until `deadline` (a `time.monotonic` time) at the most.

    Returns the reason for a failure, or None.
    """
    seconds_left = deadline - time.monotonic()
    record = json.dumps(verdict.record(), ensure_ascii=False)
    code, _, errors = programs.run(argv, environ, f"{record}\n", seconds=seconds_left)
    return None if code == 0 else _describe_exit(code, errors)


def _claim_notice(folder: Path, notice_key: str) -> bool:
    """Claim a notice before sending it. Returns False if it was sent, or claimed by another process."""
    with _lock_notices(folder) as claim_times:
        if notice_key in claim_times:
            claimed_at = claim_times[notice_key]
            if claimed_at is None:  # the notice was sent
                return False
            if _may_be_sending(claimed_at):
                return False

        claim_times[notice_key] = time.time()
    return True


def _may_be_sending(claimed_at: float) -> bool:
    """Whether the process that claimed a notice can still be sending it.

    A killed process never ends its claim, so claims expire.
    """
    # A program is stopped after `MAX_TOTAL_SECONDS`, so twice that time leaves a margin. The time since the
    # claim is negative if the clock was set back.
    seconds_apart = abs(time.time() - claimed_at)
    return seconds_apart < 2 * MAX_TOTAL_SECONDS


def _end_claim(folder: Path, notice_key: str, *, is_sent: bool) -> None:
    """End the claim on a notice, and record whether it was sent. If it wasn't, a later run can send it."""
    with _lock_notices(folder) as claim_times:
        # Remove the claim even if the notice was sent, so that its new entry goes to the end of the dict.
        # `_lock_notices` drops surplus entries from the start.
        claim_times.pop(notice_key, None)
        if is_sent:
            claim_times[notice_key] = None  # sent


@contextmanager
def _lock_notices(folder: Path) -> Iterator[dict[str, float | None]]:
    """Lock the file of notices, and yield a dict: for each notice's key, the time when a process claimed it.

    The time is None if the notice was sent. The caller's changes to the dict are saved. Don't run the user's
    program under this lock, since it can take long.
    """
    path = folder / environment.NOTIFIED_VERDICTS.name
    with file_lock(path.with_suffix(".lock"), timeout=MAX_TOTAL_SECONDS):
        old_entries = path.read_text().split() if path.exists() else []
        claim_times = _parse_notices(old_entries)

        yield claim_times

        new_entries = _format_notices(claim_times)
        newest = new_entries[-_MAX_NOTICES:]
        outputs.write_atomically(str(path), "\n".join(newest), private=True)


def _parse_notices(entries: Iterable[str]) -> dict[str, float | None]:
    """Parse the file's entries: KEY for a sent notice, KEY:TIME for a claimed one."""
    claim_times: dict[str, float | None] = {}
    for entry in entries:
        key, _, claimed_at = entry.partition(":")
        claim_times[key] = float(claimed_at) if claimed_at else None
    return claim_times


def _format_notices(claim_times: Mapping[str, float | None]) -> list[str]:
    """Format notices as entries for the file, in the order in which they were added."""
    entries = []
    for key, claimed_at in claim_times.items():
        is_sent = claimed_at is None
        entries.append(key if is_sent else f"{key}:{claimed_at}")
    return entries


def needs_person(
    verdict: Verdict, in_ledger: Iterable[VerdictLine] = (), *, with_rejects: bool = False
) -> bool:
    """Whether a person still has to settle a verdict.

    That's the case for `escalate`. With `with_rejects`, it's also the case for `reject` and for repeated
    `improve` verdicts on a task, which are counted among the ledger's verdicts (`in_ledger`).
    """
    if verdict.human_override is not None:  # a person has settled it
        return False
    if verdict.verdict == "escalate":
        return True
    if not with_rejects:
        return False

    if verdict.verdict == "reject":
        return True
    if verdict.verdict == "improve":
        return _count_improve_rounds(verdict, in_ledger) >= _MIN_ROUNDS_FOR_HELP
    return False


def _count_improve_rounds(verdict: Verdict, lines: Iterable[VerdictLine]) -> int:
    """Count the `improve` rounds in the task's unbroken series of `improve` verdicts up to `verdict`.

    `lines` are the ledger's verdicts, on all tasks.
    """
    earlier_verdicts = _select_earlier_verdicts(verdict, lines)
    earlier_verdicts.sort(key=operator.attrgetter("timestamp"), reverse=True)
    newest_first = (verdict, *earlier_verdicts)

    count = 0
    for task_verdict in newest_first:
        if task_verdict.verdict != "improve":  # the series began after this verdict
            break
        # Even if none of its rounds says `improve`, the verdict counts as one.
        count += max(1, _count_rounds_with_improve(task_verdict))
    return count


def _select_earlier_verdicts(verdict: Verdict, lines: Iterable[VerdictLine]) -> list[VerdictLine]:
    """Select the verdicts on the same task from before `verdict`."""
    name = task_name(verdict.task_id)
    earlier_verdicts = []
    for line in lines:
        if line.id == verdict.id:  # the verdict itself can be in the ledger already
            continue
        is_same_task = task_name(line.task_id) == name
        is_earlier = line.timestamp <= verdict.timestamp
        if is_same_task and is_earlier:
            earlier_verdicts.append(line)
    return earlier_verdicts


def _count_rounds_with_improve(verdict: Verdict | VerdictLine) -> int:
    """Count a verdict's rounds with the outcome `improve`."""
    opinions = [judged_round.opinion for judged_round in verdict.rounds]
    return sum(1 for opinion in opinions if opinion and opinion.outcome == "improve")


def list_unsettled(records: Iterable[Record], *, with_rejects: bool) -> list[VerdictLine]:
    """List the verdicts that still need a person's decision, newest first.

    Only each task's newest verdict counts. If `with_rejects`, include rejections and repeated `improve`s.
    """
    records = list(records)
    triaged = triage_records(records)  # leaves out older verdicts, and settled ones
    candidates = (*triaged.unclear_verdicts, *triaged.nogo_verdicts)

    all_verdicts = _select_verdict_lines(records)  # repeated `improve`s are counted among these
    unsettled = []
    for line in candidates:
        if needs_person(line, all_verdicts, with_rejects=with_rejects):
            unsettled.append(line)
    return sorted(unsettled, key=operator.attrgetter("timestamp"), reverse=True)


def ensure_issues(
    verdicts: Sequence[Verdict],
    settings: EscalateConfig,
    folder: Path,
    address: str = "",
    seconds: float = MAX_TOTAL_SECONDS,
) -> Iterator[tuple[IssueOutcome, str]]:
    """Open or update an issue for each verdict, within `seconds` in total.

    Yields pairs of the outcome and a log line. Raises `GhError` if the project isn't on GitHub, or if gh
    fails.
    """
    if not verdicts:
        return

    environ = environment.environ()
    repository = find_github_name(Repository(folder), environ, address)
    if repository is None:
        remedy = "for a host of your own set GH_HOST, or name the repository in GH_REPO"
        raise GhError(f"the project's remote is not on GitHub; {remedy}")

    gh = Gh(repository, deadline=time.monotonic() + seconds, environ=environ)
    for verdict in verdicts:
        new_issue = issues.build_issue(verdict, with_text=settings.text)
        outcome, url = _ensure_issue(gh, new_issue, settings.labels)
        task = shorten_to_line(task_name(verdict.task_id), _MAX_MESSAGE_CHARS)
        yield outcome, f"issue {outcome}: {url} ({task})"


def _ensure_issue(
    gh: Gh, new_issue: issues.Issue, labels: Sequence[str]
) -> tuple[IssueOutcome, str]:
    """Open an issue, or update the task's existing one. Returns the outcome and the URL."""
    gh_options = ("--title", new_issue.title, "--body-file", "-")  # `-` reads the body from stdin
    existing_issue = gh.find_issue(new_issue.token)
    if existing_issue is None:
        label_words = [f"--label={label}" for label in labels]
        output = gh.run("create", *gh_options, *label_words, stdin=new_issue.body)
        _, _, url = output.strip().rpartition("\n")  # gh prints the URL on the last line
        return IssueOutcome.OPENED, shorten_to_line(url, _MAX_MESSAGE_CHARS)

    # Equal fingerprints mean that the issue already describes this verdict.
    if existing_issue.fingerprint == new_issue.fingerprint:
        return IssueOutcome.UNCHANGED, existing_issue.url

    number = str(existing_issue.number)
    if not existing_issue.is_open:
        gh.run("reopen", number)
    gh.run("edit", number, *gh_options, stdin=new_issue.body)
    outcome = IssueOutcome.UPDATED if existing_issue.is_open else IssueOutcome.REOPENED
    return outcome, existing_issue.url
