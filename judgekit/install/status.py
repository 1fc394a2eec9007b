"""Whether the prompt hook is set up in Claude Code's settings, and whether it answers."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import programs
from judgekit.install import claude_code, entries, forms, surroundings
from judgekit.install.scopes import SCOPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.install.scopes import Scope

DEADLINE = 10.0  # seconds: a prompt for which no model is asked
_PROMPT = "What does the doctor ask the prompt hook?"
_MEMORY = "The doctor asks the prompt hook a question"


class Finding(NamedTuple):
    """What is known of the hook in one scope.

    `problem` is None where it answers or was not `asked`; `missing` are the events it is not called on.
    """

    scope: Scope
    path: Path
    form: str
    portable: bool
    asked: bool
    missing: tuple[str, ...]
    problem: str | None


def findings(project: Path) -> Iterator[Finding]:
    """Yield one finding for every scope in which the hook is set up; each is asked once, for 10 s at most."""
    for scope in SCOPES:
        found = surroundings.installed(scope, project)
        if found:
            yield _finding(scope, project, found)


def _finding(scope: Scope, project: Path, found: list[entries.Entry]) -> Finding:
    hook = next((each.hook for each in found if each.event == "UserPromptSubmit"), found[0].hook)
    covered = {each.event for each in found}
    asked = scope == "user" or hook in (forms.portable(), forms.fastest())
    return Finding(
        scope,
        claude_code.settings_file(scope, project),
        form(hook),
        hook == forms.portable(),
        asked,
        tuple(event for event in entries.EVENTS if event not in covered),
        (problem(hook) if asked else _gone(hook)),
    )


def form(hook: dict[str, Any]) -> str:
    """Return in a few words how a hook of ours is started."""
    words = forms.argument_vector(hook) or []
    if hook.get("command") == forms.PORTABLE:
        return "the portable form"
    if hook.get("command") == forms.OLDER:
        return "an older form, which PATH and PYTHONPATH can mislead; judgekit install claude-code renews it"
    if hook == forms.fastest():
        return f"the fastest form, {words[0]}"
    if words[1:3] == forms.fastest()["args"][:2]:
        return f"the fastest form of another installation, {words[0]}"
    return f"another form, {' '.join(words)}"


def problem(hook: dict[str, Any], deadline: float = DEADLINE) -> str | None:
    """Run a hook of ours on a tiny store, `deadline` seconds at most; return what is wrong, None if nothing.

    It sees no configuration of the user, and leaves no trace.
    """
    gone = _gone(hook)
    if gone:
        return gone
    with tempfile.TemporaryDirectory(prefix="judgekit-doctor-", ignore_cleanup_errors=True) as folder:
        _write_store(Path(folder))
        try:
            done = subprocess.run(  # noqa: S603 - what the user's own settings run on every prompt
                _started(hook),
                input=json.dumps(
                    {"hook_event_name": "UserPromptSubmit", "prompt": _PROMPT, "cwd": folder}
                ).encode(),
                cwd=folder,
                env=_environment(folder),
                capture_output=True,
                timeout=deadline,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it does not answer within {deadline:g} s"
        except OSError as error:
            return f"it cannot be started ({error.strerror})"
    if done.returncode:
        return f"it ends with code {done.returncode}: {_last_line(done.stderr)}"
    return None if b"<memory-" in done.stdout else f"it does not answer: {_last_line(done.stderr)}"


def _gone(hook: dict[str, Any]) -> str | None:
    words = forms.argument_vector(hook) or [""]
    if Path(words[0]).is_absolute():
        return None if Path(words[0]).is_file() else f"its program {words[0]} is gone"
    return (
        None if programs.find(words[0], os.environ) else f"its program {words[0]} is not on this shell's PATH"
    )


def _started(hook: dict[str, Any]) -> list[str]:
    """Return what the client starts for a hook: the program itself, or a shell where there is no `args`."""
    if "args" in hook:
        return forms.argument_vector(hook) or []
    return [programs.find("sh", os.environ) or "/bin/sh", "-c", str(hook["command"])]


def _environment(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JUDGEKIT_")}
    return {**kept, "JUDGEKIT_HOME": str(Path(folder, "home"))}


def _write_store(project: Path) -> None:
    store = project / ".claude" / "memory"
    (store / "decisions").mkdir(parents=True)
    memory = {
        "schema_version": "1.0",
        "category": "decision",
        "id": "doctor",
        "title": _MEMORY,
        "record_status": "active",
        "tags": ["doctor"],
        "content": {"decision": _MEMORY},
    }
    (store / "decisions" / "doctor.json").write_text(json.dumps(memory), encoding="utf-8")
    line = f"- [DECISION] {_MEMORY} -> .claude/memory/decisions/doctor.json #tags:doctor\n"
    (store / "index.md").write_text(line, encoding="utf-8")


def _last_line(said: bytes) -> str:
    return said.decode(errors="replace").strip().rpartition("\n")[2] or "it says nothing"
