"""The gate at git's door: ref updates on stdin, a run by the engine or in this process, an exit code for git.

Nothing that fails here may hold up a push: a fault of ours is UNDETERMINED, said in a line, and exit code 0.
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
from judgekit.errors import Exit, JudgekitError, problem_of
from judgekit.gate import (
    Begin,
    Omission,
    PushBlocked,
    Report,
    Row,
    Run,
    Skipped,
    commits,
    ending,
    examine,
    policy,
    remotes,
)
from judgekit.gate.commits import RefUpdate, UnknownCommit
from judgekit.git import Repository
from judgekit.hooks import watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.engine import client
    from judgekit.ledger import Record

    Warn: TypeAlias = Callable[[str], None]

SKIP = ("JUDGEKIT_SKIP", "GIT_JUDGE_SKIP")
PREPARATION = 60.0  # seconds until the rules of a push are known
GRACE = 5.0  # seconds that a run may take beside its budget, from where its rules are known
SILENCE = "JUDGEKIT_DISABLE"  # silences every hook: nothing is said, the ledger alone is told


def skipped_by() -> str | None:
    return next((name for name in (*SKIP, SILENCE) if environment.is_on(name)), None)


def ended(words: Sequence[str]) -> int | None:
    """Return the exit code of `judgekit gate WORDS` where this process need not find it out; else None."""
    if "--pre-push" not in words:
        return None
    # A push is judged by a child, which is bounded, and ends early where there is surely nothing to judge.
    child = watchdog.split(PREPARATION)
    if child is not None:
        code, noted = child
        if code is None:
            fault(JudgekitError("out of time"), _warn)
            return noted or Exit.ACCEPTED
        return code
    if words[:1] != ["--pre-push"] or "--format" in words or skipped_by():
        return None
    try:
        updates = _updates()
        pushed = policy.nothing_to_judge(Repository(Path.cwd()), updates, *words[1:3])
    except Exception:  # noqa: BLE001 - the whole run comes upon it again, and says it
        return None
    if pushed is None:
        return None
    if updates:
        _warn(ending([], pushed.skipped.groups(), []))
    return 0


def _warn(line: str) -> None:
    sys.stderr.write(f"judgekit: {line}\n")


def check(
    run: Run,
    remote: str = "",
    url: str = "",
    *,
    base: str | None = None,
    use_engine: bool = True,
    warn: Warn,
) -> Report | None:
    """Judge the commits since `base`, or the push that git describes on stdin; None: the gate is not asked.

    A fault holds nothing up unless the rules do. Raises `UnknownCommit` where `base` is none.
    """
    try:
        updates = _updates() if base is None else []
        variable = skipped_by() if base is None else None
        if variable is not None:
            _skip(variable, url or remote, updates, warn)
            return None
        if base is None and not updates:
            return None
        if base is None and all(update.deletes for update in updates):
            return _deletions(run, updates)
        return _run(run, updates, remote, url, base, use_engine=use_engine, warn=warn)
    except UnknownCommit:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours must not cost the user a push
        fault(error, warn)
        holds = isinstance(error, PushBlocked)
        unexamined = [Omission(name=base or url or remote, reason=problem_of(error))]
    if holds:
        warn("blocked: gate.undetermined is block; to skip the gate once: JUDGEKIT_SKIP=1 git push")
    return Report(
        rows=[],
        mode="blocking" if holds else run.mode or "advisory",
        notes=[],
        escalate={},
        unexamined=unexamined,
        holds=holds,
        fault=True,
    )


def _deletions(run: Run, updates: Sequence[RefUpdate]) -> Report:
    skipped = Skipped()
    for update in updates:
        skipped.add(examine.REF_DELETED, update.remote_ref)
    return Report(
        rows=[],
        mode=run.mode or "advisory",
        notes=[],
        escalate={},
        skipped=skipped.groups(),
        fault=False,
    )


def _run(
    run: Run,
    updates: Sequence[RefUpdate],
    remote: str,
    url: str,
    base: str | None,
    *,
    use_engine: bool,
    warn: Warn,
) -> Report:
    """Run the gate: by the engine, so that a push waits for no import; in this process where that fails."""
    from judgekit.engine import client  # noqa: PLC0415 - a skipped push needs little
    from judgekit.hooks.settings import engine_wanted  # noqa: PLC0415 - the same

    run = run._replace(id=os.urandom(16).hex())
    started = 0.0

    def request() -> bytes:
        import json  # noqa: PLC0415 - where an engine is asked

        nonlocal started
        # A start of the engine is none of the budget, as an import is not.
        started = time.monotonic()
        body = {"updates": updates, "remote": remote, "url": url, "base": base, "mode": run.mode}
        return json.dumps({**client.carried(git=True), **body, "run": run.id}).encode()

    def read(response: client.Response) -> Report:
        from judgekit.engine import answers  # noqa: PLC0415 - where an engine is asked

        try:
            for event in answers.events(response):
                kind = event.pop("event")
                if kind == "begin":
                    run.on_start(Begin(**event))  # type: ignore[typeddict-item]  # as the protocol has it
                elif kind == "passed":
                    run.on_verdict(Row(**event))  # type: ignore[typeddict-item]  # the same
                elif kind == "end":
                    return Report(**event)
        except JudgekitError as error:  # whatever it is, it is found here again, and said
            raise client.EngineOff(str(error)) from None
        raise client.EngineLost("lost the engine: its response ended too early")

    def locally(_: client.NoEngine) -> Report:
        from judgekit.gate import push  # noqa: PLC0415 - pydantic; the engine has it

        here = run._replace(spent=time.monotonic() - started if started else 0.0)
        return push.check(Repository(Path.cwd()), updates, remote, url, base, here)

    return client.call(
        "gate", request, read, locally, use=use_engine and engine_wanted(), warn=warn
    )


@functools.cache  # git says it once; what is wrong with it is found, and said, as often as it is asked
def _stdin() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    return sys.stdin.buffer.read()


def _updates() -> list[RefUpdate]:
    """Return the updates that git describes on stdin, or the one that the pre-commit framework names."""
    updates = commits.parse(os.fsdecode(_stdin()))
    local, remote = (os.environ.get(f"PRE_COMMIT_{name}_BRANCH") for name in ("LOCAL", "REMOTE"))
    if updates or not local or not remote:
        return updates
    # pre-commit names the first ref that brings anything, and no commits where it is a whole history.
    repository = Repository(Path.cwd())
    tip = repository.commit(os.environ.get("PRE_COMMIT_TO_REF") or local)
    if tip is None:
        return []
    before = os.environ.get("PRE_COMMIT_FROM_REF", "")
    # For a new branch this is where it left what the remote has: no ref of the remote, and not its rules.
    known = remotes.read(repository, os.environ.get("PRE_COMMIT_REMOTE_NAME", ""))
    sources = {ref.source for ref in known.own_refs}
    if sources and remote not in sources:
        before = ""
    return [commits.RefUpdate(local, tip, remote, before or "0" * len(tip))]


def _skip(variable: str, remote: str, updates: Sequence[RefUpdate], warn: Warn) -> None:
    from judgekit.ledger import Skip  # noqa: PLC0415 - pydantic

    try:
        who = getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        who = ""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    refs = [update.remote_ref for update in updates]
    lost = _note(Skip(variable=variable, who=who, terminal=terminal, remote=remote, refs=refs))
    if variable != SILENCE:
        said = f"not recorded: {lost}" if lost else "recorded in the ledger"
        warn(f"{variable} is set: this push is not judged ({said})")


def fault(error: Exception, warn: Warn) -> None:
    """Say, and note down, that nothing could be judged, and why."""
    from judgekit.ledger import Fault  # noqa: PLC0415 - pydantic

    problem = problem_of(error)
    warn(f"UNDETERMINED, not judged: {problem}")
    # Figures of a ledger are shown to others: they do not need to know where a home folder is.
    if lost := _note(Fault(problem=problem.replace(str(Path.home()), "~"))):
        warn(lost)


def _note(record: Record) -> str:
    """Add a line to the ledger; return why that could not be done, "" when it was."""
    from judgekit.ledger import Ledger  # noqa: PLC0415 - pydantic

    try:
        Ledger.of(Path.cwd()).add(record)
    except (JudgekitError, OSError) as error:
        return str(error)
    return ""
