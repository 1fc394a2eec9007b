"""The commands that start the prompt hook: which is written where, and which ones are ours."""

from __future__ import annotations

import re
import shlex
from typing import Any

from judgekit.hooks import launch
from judgekit.programs import OWN_PYTHON

TIMEOUT = 30  # seconds, after which the client goes on without an answer; its own default for a prompt
# Where an agent stops, `stop.deadline` is 60 at most, and litellm is imported; the others ask no model.
TIMEOUTS = {"PostToolUse": 10, "Stop": 75, "SessionStart": 10}

# For settings that others share: it names no path of this machine and says nothing where judgekit is not
# installed. The exit code is 0 whatever happens: 2, which a stranger's `judgekit` may end with, would erase
# the prompt.
# Nothing of the current folder is started or imported: PATH and Python's variables may name it.
PORTABLE = f'{OWN_PYTHON}; j=$(command -v judgekit); case $j in /*) "$j" hook ;; esac; exit 0'
OLDER = "if command -v judgekit >/dev/null; then judgekit hook; fi; exit 0"

_RUNNERS = {"env", "exec", "nice", "pipx", "poetry", "timeout", "uv", "uvx"}
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?|py")
_LONGEST = 4096  # characters of a command that may be ours
_MOST_WORDS = 100  # of one
_IMPORT = re.compile(r"\b(?:from|import) judgekit\.hooks\b")
_MENTION = re.compile(r"\bjudgekit\b(?:(?!\bjudgekit\b).)*\bhook")


def fastest(python: str | None = None) -> dict[str, Any]:
    """Return the hook that starts fastest with an interpreter of this machine (this one)."""
    program, *arguments = launch.command(python)
    return {"type": "command", "command": program, "args": arguments, "timeout": TIMEOUT}


def portable() -> dict[str, Any]:
    """Return the hook for settings that others share."""
    return {"type": "command", "command": PORTABLE, "timeout": TIMEOUT}


def timed(hook: dict[str, Any], event: str) -> dict[str, Any]:
    """Return a hook with the time that an event takes."""
    return hook | {"timeout": TIMEOUTS[event]} if event in TIMEOUTS else hook


def is_ours(hook: object) -> bool:
    """Whether a hook of the client runs judgekit's prompt hook and nothing else, in whichever form."""
    words = argument_vector(hook)
    if words is None:
        return False
    if _name(words[0]) in _RUNNERS:
        return any(_runs_us(words[position:]) for position in range(1, len(words)))
    return _runs_us(words)


def mentions_us(hook: object) -> bool:
    """Whether a hook that is not ours seems to run judgekit among other things."""
    if is_ours(hook) or not isinstance(hook, dict):
        return False
    arguments = hook.get("args")
    parts = [hook.get("command"), *(arguments if isinstance(arguments, list) else ())]
    return bool(_MENTION.search(" ".join(part for part in parts if isinstance(part, str))))


def argument_vector(hook: object) -> list[str] | None:
    """Return the program and its arguments that a hook starts; None for anything but one plain command.

    The portable form counts as what it starts.
    """
    if not isinstance(hook, dict) or hook.get("type") != "command":
        return None
    command, arguments = hook.get("command"), hook.get("args")
    if not isinstance(command, str) or not command.strip() or len(command) > _LONGEST:
        return None
    if isinstance(arguments, list):
        return [command, *(str(each) for each in arguments)] if len(arguments) < _MOST_WORDS else None
    if command in (PORTABLE, OLDER):
        return ["judgekit", "hook"]
    return _split(command)


def _split(command: str) -> list[str] | None:
    """Return the words of a shell command that is one plain command, else None."""
    if "\n" in command.strip():
        return None
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    try:
        found = list(words)
    except ValueError:
        return None
    if not 0 < len(found) <= _MOST_WORDS or any(set(word) <= set("();<>|&") for word in found):
        return None
    return found


def _runs_us(words: list[str]) -> bool:
    name = _name(words[0])
    if name == "judgekit":
        return words[1:2] == ["hook"]
    if not _PYTHON.fullmatch(name):
        return False
    for option, value, *rest in (words[position:] for position in range(1, len(words) - 1)):
        if option == "-m":
            return (value, *rest[:1]) == ("judgekit", "hook") or value.startswith("judgekit.hooks.")
        if option == "-c":
            return bool(_IMPORT.search(value))
    return False


def _name(word: str) -> str:
    """Return a program's name without its folder and, on Windows, its ending."""
    return re.split(r"[/\\]", word)[-1].lower().removesuffix(".exe")
