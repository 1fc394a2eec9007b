"""Which of a client's hooks are ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.hooks import entries, launch

if TYPE_CHECKING:
    from pathlib import Path

CODE = launch.code("/opt/elsewhere/site-packages")


def hook(command: object, *args: object, **more: object) -> dict[str, Any]:
    return {"type": "command", "command": command, **({"args": list(args)} if args else {}), **more}


OURS = [
    entries.fastest(),
    entries.fastest("/usr/bin/python3.13"),
    entries.portable(),
    hook("judgekit", "hook"),
    hook("judgekit hook"),
    hook("/home/you/.local/bin/judgekit", "hook"),
    hook("'/with space/judgekit' hook"),
    hook(r"C:\Tools\judgekit.exe", "hook"),
    hook("python", "-m", "judgekit", "hook"),
    hook("/usr/bin/python3.11", "-P", "-m", "judgekit", "hook"),
    hook("python3 -m judgekit hook"),
    hook("python3", "-m", "judgekit.hooks.claude_code"),
    hook("pypy3", "-I", "-S", "-c", CODE),
    hook(r"C:\Python\pythonw.exe", "-c", CODE),
    hook("exec judgekit hook"),
    hook("/usr/bin/env", "JUDGEKIT_DISABLE=1", "python", "-m", "judgekit", "hook"),
    hook("uv run --project . judgekit hook"),
    hook("judgekit", "hook", timeout=60, statusMessage="thinking"),
]

NOT_OURS: list[object] = [
    hook("judgekit", "search"),
    hook("judgekit"),
    hook("judgekit-other", "hook"),
    hook("my-judgekit hook"),
    hook("echo judgekit hook"),
    hook("echo", "judgekit", "hook"),
    hook("/opt/judgekit/bin/other", "hook"),
    hook("python3", "/home/you/judgekit/other.py", "hook"),
    hook("python3", "-m", "judgekit_other", "hook"),
    hook("python3", "-m", "judgekit", "search"),
    hook("python3", "-m"),
    hook("python3", "-c", "print('judgekit.hooks')"),
    hook("pythonic", "-m", "judgekit", "hook"),
    hook("judgekit hook && notify-send done"),
    hook("log-prompt; judgekit hook"),
    hook("judgekit hook | tee log"),
    hook("judgekit hook\nnotify-send done"),
    hook("judgekit 'hook"),
    hook("judgekit hook", ""),
    hook(""),
    hook("  "),
    hook(None),
    hook(["judgekit", "hook"]),
    {"type": "prompt", "prompt": "judgekit hook"},
    {"command": "judgekit hook"},
    {},
    None,
    "judgekit hook",
    3,
]


@pytest.mark.parametrize("each", OURS, ids=json.dumps)
def test_ours(each: dict[str, Any]) -> None:
    assert entries.is_ours(each)
    assert not entries.mentions_us(each)


@pytest.mark.parametrize("each", NOT_OURS, ids=json.dumps)
def test_not_ours(each: object) -> None:
    assert not entries.is_ours(each)


def test_what_runs_us_among_other_things_is_noticed() -> None:
    seen = [each for each in NOT_OURS if entries.mentions_us(each)]
    assert hook("judgekit hook && notify-send done") in seen
    assert hook("log-prompt; judgekit hook") in seen
    assert hook("judgekit", "search") not in seen
    assert hook("", "-c", 3) not in seen


def test_the_fastest_form_is_the_launcher_with_this_interpreter() -> None:
    fastest = entries.fastest()
    assert [fastest["command"], *fastest["args"]] == launch.command()
    assert fastest["command"] == sys.executable
    assert entries.fastest("/elsewhere/python")["command"] == "/elsewhere/python"


def test_the_portable_form_names_nothing_of_this_machine() -> None:
    text = json.dumps(entries.portable())
    assert sys.executable not in text
    assert launch.ROOT not in text
    assert "args" not in entries.portable(), "only a shell can find out that judgekit is not there"


def run_portable(folder: Path, shell: str, script: str | None) -> subprocess.CompletedProcess[str]:
    if script is not None:
        program = folder / "judgekit"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return subprocess.run(
        [f"/bin/{shell}", "-c", entries.PORTABLE],
        input="the prompt",
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (None, ""),
        ('read -r line || :; echo "$1 got $line"', "hook got the prompt\n"),
        ("exit 2", ""),
        ("exit 1", ""),
        ("kill -9 $$", ""),
    ],
    ids=["missing", "there", "ends with 2", "ends with 1", "killed"],
)
def test_the_portable_form_never_costs_the_prompt(
    tmp_path: Path, shell: str, script: str | None, printed: str
) -> None:
    """Code 2, with which a stranger's `judgekit` would refuse our argument, erases a prompt."""
    if not os.access(f"/bin/{shell}", os.X_OK):
        pytest.skip(f"no /bin/{shell}")
    done = run_portable(tmp_path, shell, script)
    assert (done.returncode, done.stdout) == (0, printed)
    if script is None:
        assert done.stderr == ""
