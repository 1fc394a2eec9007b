"""The gate as git calls it: reads ref updates, judges in the engine or this process, returns an exit code.

A failure here must never hold up a push: our own faults are UNDETERMINED, reported in a line, with exit code
0.
"""

from __future__ import annotations

import functools
import getpass
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from judgekit import environment
from judgekit.errors import Exit, JudgekitError, describe_error
from judgekit.gate import (
    Begin,
    Omission,
    PushBlocked,
    Report,
    Row,
    Run,
    Skipped,
    commits,
    describe_run,
    examine,
    policy,
    remotes,
)
from judgekit.gate.commits import RefUpdate, UnknownCommit
from judgekit.git import Repository
from judgekit.hooks import watchdog
from judgekit.text import escape_ci_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.engine import client
    from judgekit.ledger import Record

    Warn: TypeAlias = Callable[[str], None]

SKIP = ("JUDGEKIT_SKIP", "GIT_JUDGE_SKIP")
PREPARATION_SECONDS = 60.0  # seconds until the rules of a push are known
GRACE_SECONDS = 5.0  # seconds that a run may take beyond its budget, once its rules are known
_RECORDED = "recorded in the ledger"
SILENCE = "JUDGEKIT_DISABLE"  # silences every hook: only the ledger gets a line


def find_skip_variable() -> str | None:
    """Return the name of the variable that skips the gate; None if none is set."""
    for name in (*SKIP, SILENCE):
        if environment.is_on(name):
            return name
    return None


def finish_early(words: Sequence[str]) -> int | None:
    """Try to finish the command `judgekit gate WORDS` quickly, without loading all of it.

    Returns the exit code, or None if the command has to run.
    """
    if "--pre-push" not in words:
        return None

    # Fork: the parent waits here and enforces the time limit, the child continues below.
    ended_child = watchdog.split(PREPARATION_SECONDS)
    if ended_child is not None:  # this is the parent
        code, code_if_late = ended_child  # `code` is None if the child's time was up
        return code if code is not None else _report_late_child(code_if_late)

    # The child runs the whole command if a person calls it, or if a skip must be recorded.
    if not _is_called_by_hook(words) or find_skip_variable():
        return None

    remote_and_url = words[1:3]
    return _accept_if_none_is_judged(remote_and_url)


def _is_called_by_hook(words: Sequence[str]) -> bool:
    """Whether a command's words are those of our hook: `--pre-push REMOTE URL`."""
    has_format = "--format" in words
    return words[0] == "--pre-push" and not has_format


def _report_late_child(code_if_late: int | None) -> int:
    """Warn that a child's time was up, and return the exit code that the child left for this case.

    If it left none, the push is accepted.
    """
    warn_of_fault(JudgekitError("out of time"), _warn)
    return code_if_late or Exit.ACCEPTED


def _accept_if_none_is_judged(remote_and_url: Sequence[str]) -> int | None:
    """Accept a push if there's certainly nothing in it to judge. Otherwise, return None."""
    try:
        updates = _read_updates()
        repository = Repository(Path.cwd())
        skipped_push = policy.find_skips_if_none_judged(repository, updates, *remote_and_url)
    except Exception:  # noqa: BLE001 - the full run will meet and report the same problem
        return None

    if skipped_push is None:  # something is judged
        return None

    if updates:  # about an empty push, there's nothing to say
        skips = skipped_push.skipped.group_by_reason()
        _warn(describe_run(judged=[], skipped=skips, not_examined=[]))
    return Exit.ACCEPTED


def _warn(line: str) -> None:
    """Write a line to stderr, without terminal control characters."""
    sys.stderr.write(escape_ci_commands(f"judgekit: {line}\n"))


def check(
    run: Run,
    remote: str = "",
    url: str = "",
    *,
    base: str | None = None,
    use_engine: bool = True,
    warn: Warn,
) -> Report | None:
    """Judge the commits since `base`. Without a base, judge the push that git describes on stdin.

    Returns None if the gate is skipped or the push is empty. A skip is recorded in the ledger. Raises
    `UnknownCommit` if `base` isn't a commit. Any other error is reported, and blocks the push only if the
    rules demand it.
    """
    try:
        if base is None:
            return _check_push(run, remote, url, use_engine=use_engine, warn=warn)
        no_updates: list[RefUpdate] = []  # nothing is pushed, so no ref is updated
        return _judge(run, no_updates, remote, url, base, use_engine=use_engine, warn=warn)
    except UnknownCommit:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours must not cost the user a push
        name = base or url or remote
        return _report_fault(run, error, name, warn)


def _check_push(run: Run, remote: str, url: str, *, use_engine: bool, warn: Warn) -> Report | None:
    """Judge the push that git describes on stdin.

    Returns None if the gate is skipped or the push is empty.
    """
    updates = _read_updates()
    variable = find_skip_variable()
    if variable is not None:
        _record_skip(variable, url or remote, updates, warn)
        return None
    if not updates:
        return None

    only_deletes = all(update.is_deletion for update in updates)
    if only_deletes:
        return _report_deletions(run, updates)
    return _judge(run, updates, remote, url, base=None, use_engine=use_engine, warn=warn)


def _report_fault(run: Run, error: Exception, name: str, warn: Warn) -> Report:
    """Warn about a failure, and build a report without verdicts.

    `name` says what wasn't examined: the base of the commits, or the remote that they're pushed to.
    """
    warn_of_fault(error, warn)
    mode = run.mode or "advisory"
    is_blocked = isinstance(error, PushBlocked)  # the rules block a push that can't be judged
    if is_blocked:
        mode = "blocking"
        warn("blocked: gate.undetermined is block; to skip the gate once: JUDGEKIT_SKIP=1 git push")

    return Report(
        rows=[],
        mode=mode,
        notes=[],
        escalate={},
        unexamined=[Omission(name=name, reason=describe_error(error))],
        holds=is_blocked,
        fault=True,
    )


def _report_deletions(run: Run, updates: Sequence[RefUpdate]) -> Report:
    """Report a push that only deletes refs, so that there's nothing to judge."""
    skipped = Skipped()
    for update in updates:
        skipped.add(examine.REF_DELETED, update.remote_ref)
    return Report(
        rows=[],
        mode=run.mode or "advisory",
        notes=[],
        escalate={},
        skipped=skipped.group_by_reason(),
        fault=False,
    )


def _judge(
    run: Run,
    updates: Sequence[RefUpdate],
    remote: str,
    url: str,
    base: str | None,
    *,
    use_engine: bool,
    warn: Warn,
) -> Report:
    """Let the engine judge a push, because it has everything imported. If it can't, judge in this process."""
    from judgekit.engine import client  # noqa: PLC0415 - a skipped push needs little
    from judgekit.hooks.settings import is_engine_wanted  # noqa: PLC0415 - a skipped push needs little

    # If the engine fails halfway, this process judges the same files again. With the same run id, their
    # verdicts get the same ids, so none is counted twice.
    run = run._replace(id=os.urandom(16).hex())

    # The time budget of the run starts with the request, because starting an engine shouldn't use it up.
    asked_at: float | None = None

    def write_request() -> bytes:
        """Build the request, and note the time."""
        nonlocal asked_at
        asked_at = time.monotonic()
        return _build_request(run, updates, remote, url, base)

    def judge_here(_: client.NoEngine) -> Report:
        """Judge in this process, with the budget that the engine left."""
        # Without a time, the engine was never asked.
        spent = 0.0 if asked_at is None else time.monotonic() - asked_at
        return _judge_in_process(run._replace(spent_seconds=spent), updates, remote, url, base)

    return client.call(
        "gate",
        write_request,
        lambda response: _read_report(response, run),
        judge_here,
        use=use_engine and is_engine_wanted(),
        warn=warn,
    )


def _build_request(
    run: Run, updates: Sequence[RefUpdate], remote: str, url: str, base: str | None
) -> bytes:
    """Build the JSON request that asks the engine to judge a push."""
    import json  # noqa: PLC0415 - only needed to ask an engine

    from judgekit.engine import client  # noqa: PLC0415 - only needed to ask an engine

    request = {
        **client.build_caller_fields(git=True),
        "updates": updates,
        "remote": remote,
        "url": url,
        "base": base,
        "mode": run.mode,
        "run": run.id,
    }
    return json.dumps(request).encode()


def _judge_in_process(
    run: Run, updates: Sequence[RefUpdate], remote: str, url: str, base: str | None
) -> Report:
    """Judge a push without an engine."""
    from judgekit.gate import push  # noqa: PLC0415 - not needed with an engine

    repository = Repository(Path.cwd())
    return push.judge_push(repository, updates, remote, url, base, run)


def _read_report(response: client.Response, run: Run) -> Report:
    """Pass the engine's events to `run`, and return the report, which is the last event.

    Raises `EngineOff` if the engine reports an error, and `EngineLost` if the report is missing.
    """
    from judgekit.engine import answers, client  # noqa: PLC0415 - only needed to ask an engine

    try:
        for event in answers.read_events(response):
            kind = event.pop("event")
            if kind == "begin":
                run.on_start(Begin(**event))  # type: ignore[typeddict-item]  # the engine sends its fields
            elif kind == "passed":  # a file's verdict is in the ledger
                run.on_verdict(Row(**event))  # type: ignore[typeddict-item]  # the same
            elif kind == "end":
                return Report(**event)
    except JudgekitError as error:
        # `EngineOff` makes the caller judge in this process, which will report the same problem.
        raise client.EngineOff(str(error)) from None

    raise client.EngineLost("lost the engine: its response ended too early")


@functools.cache  # stdin can only be read once, and is needed twice
def _read_stdin() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    return sys.stdin.buffer.read()


def _read_updates() -> list[RefUpdate]:
    """Read the ref updates on stdin. If there are none, use the one that pre-commit puts in variables."""
    updates = commits.parse_updates(os.fsdecode(_read_stdin()))
    if updates:
        return updates
    update = _read_update_of_pre_commit()
    return [] if update is None else [update]


def _read_update_of_pre_commit() -> RefUpdate | None:
    """Read the pushed ref's update from the variables that the pre-commit framework sets.

    If several refs are pushed, it's the first that brings new commits. Returns None if the variables aren't
    set, or if the commit doesn't exist.
    """
    local_ref = os.environ.get("PRE_COMMIT_LOCAL_BRANCH")
    remote_ref = os.environ.get("PRE_COMMIT_REMOTE_BRANCH")
    if not local_ref or not remote_ref:
        return None

    # If the whole history is new to the remote, pre-commit gives no commit, so use the branch's.
    repository = Repository(Path.cwd())
    pushed_commit = os.environ.get("PRE_COMMIT_TO_REF") or local_ref
    tip = repository.resolve_commit(pushed_commit)
    if tip is None:
        return None

    # In git, an id of zeros means that the remote doesn't have the ref.
    no_commit = "0" * len(tip)
    old_oid = _read_old_oid(repository, remote_ref) or no_commit
    return RefUpdate(local_ref, tip, remote_ref, old_oid)


def _read_old_oid(repository: Repository, remote_ref: str) -> str:
    """Read the commit that a remote's ref has before the push; "" for a new ref."""
    remote = remotes.read_remotes(repository, os.environ.get("PRE_COMMIT_REMOTE_NAME", ""))
    # `source` is the ref's name on the remote.
    known_refs = {ref.source for ref in remote.pushed_refs}
    # If this clone knows no refs of the remote, it can't tell whether the ref is new, so trust pre-commit.
    is_new_ref = len(known_refs) > 0 and remote_ref not in known_refs
    if is_new_ref:
        # Don't use pre-commit's variable: for a new ref, it has the commit where the branch forked.
        return ""
    return os.environ.get("PRE_COMMIT_FROM_REF", "")


def _record_skip(variable: str, remote: str, updates: Sequence[RefUpdate], warn: Warn) -> None:
    """Record in the ledger that the gate was skipped, by whom and by which variable. Warns about it."""
    from judgekit.ledger import Skip  # noqa: PLC0415 - pydantic

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the user has no name
        user = ""

    has_terminal = sys.stderr is not None and sys.stderr.isatty()
    refs = [update.remote_ref for update in updates]
    skip = Skip(variable=variable, who=user, terminal=has_terminal, remote=remote, refs=refs)
    outcome = _add_to_ledger(skip)
    if variable == SILENCE:  # this variable also silences warnings
        return

    warn(f"{variable} is set: this push is not judged ({outcome})")


def warn_of_fault(error: Exception, warn: Warn) -> None:
    """Warn that nothing could be judged, and record that in the ledger."""
    from judgekit.ledger import Fault  # noqa: PLC0415 - pydantic

    problem = describe_error(error)
    warn(f"UNDETERMINED, not judged: {problem}")
    # Others may see the ledger's problems, so hide the path of the home folder.
    outcome = _add_to_ledger(Fault(problem=problem.replace(str(Path.home()), "~")))
    if outcome != _RECORDED:  # not recorded, or there's a problem with the team's server
        warn(outcome)


def _add_to_ledger(record: Record) -> str:
    """Add a record to the ledger, and send new ledger lines to the team's server.

    Returns a message: "recorded in the ledger", followed by problems with the server, or "not recorded" with
    the reason.
    """
    from judgekit.config import settings  # noqa: PLC0415 - pydantic
    from judgekit.ledger import Ledger  # noqa: PLC0415 - pydantic
    from judgekit.ledger.export import send_to_team  # noqa: PLC0415 - pydantic

    try:
        ledger = Ledger.of(Path.cwd())
        ledger.add(record)
        remarks = send_to_team(settings.load(None), ledger)
    except (JudgekitError, OSError) as error:
        return f"not recorded: {error}"
    return "; ".join([_RECORDED, *remarks])
