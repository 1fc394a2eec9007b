"""A variable that looks like one of ours and is none is named, once, and never by a hook."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import judgekit
from judgekit import environment
from judgekit.config import settings

if TYPE_CHECKING:
    from outcome import Run


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("JUDGEKIT_API_BASSE", "JUDGEKIT_API_BASE"),
        ("JUDGEKIT_JUDGE_DEADLIN", "JUDGEKIT_JUDGE_DEADLINE"),
        ("JUDGEKIT_MODLE", "JUDGEKIT_MODEL"),
        ("JUDGEKIT_ZQX", None),
    ],
)
def test_an_unknown_variable_is_told_once_with_what_may_be_meant(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str | None
) -> None:
    monkeypatch.setenv(name, "x")
    monkeypatch.setenv("JUDGEKIT_JUDGE_INDEPENDENCE", "prefer")
    done = judgekit("search", "token")
    assert done.code == 0
    ends = f"; did you mean {meant}?" if meant else ""
    assert done.err == f"judgekit: {name}: judgekit has no such variable, so it has no effect{ends}\n"


def test_what_a_profile_of_the_users_own_names_is_known(
    judgekit: Run, project: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = isolated / "judgekit" / "providers"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "provider: mine\ntitle: Mine\nkind: litellm\nprefix: mine/\ndetect: {env: [[JUDGEKIT_MINE_KEY]]}\n"
        "key: [JUDGEKIT_MINE_KEY]\noutput: text\n"
    )
    monkeypatch.setenv("JUDGEKIT_MINE_KEY", "x")
    assert judgekit("search", "token").err == ""


def test_the_hook_says_nothing_of_variables(project: Path) -> None:
    payload = json.dumps({"hook_event_name": "UserPromptSubmit", "prompt": "How do we refresh the token?"})
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", "hook"],
        input=payload.encode(),
        env={**os.environ, "JUDGEKIT_API_BASSE": "x"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, b"BASSE" in done.stdout + done.stderr) == (0, False)


def test_every_variable_that_the_code_or_the_docs_name_is_known() -> None:
    package = Path(judgekit.__file__).parent
    root = package.parent
    files = [*package.rglob("*.py"), *(root / "docs").rglob("*.md"), *(root / "providers").glob("*.yaml")]
    named = {
        name
        for path in files
        for name in re.findall(r"JUDGEKIT_[A-Z_]*[A-Z](?![A-Z_<])", path.read_text(encoding="utf-8"))
    }
    known = {*environment.NAMES, *settings.variable_names()}
    assert {each for each in named if not each.startswith("JUDGEKIT_TEST_")} <= known
