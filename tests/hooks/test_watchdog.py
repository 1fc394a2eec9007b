"""A hook and a push end at their limit, even in a call of C that never comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from git_repo import beside_origin

from judgekit import programs
from judgekit.hooks import entries

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

# Holds the interpreter in one call of C, as a hostile text may: no thread and no handler of Python runs then.
STUCK = "(lambda *_, **__: 10 ** (10 ** 9))"
HOOK = f"""
import sys
sys.path.insert(0, {programs.ROOT!r})
from judgekit.hooks import claude_code
del sys.path[0]
claude_code.SECONDS = {{seconds}}
claude_code.is_silent = {STUCK}
claude_code.run()
"""
GATE = f"""
import sys
from judgekit import __main__
from judgekit.gate import {{module}}
from judgekit.hooks import pre_push
pre_push.PREPARATION, pre_push.GRACE = {{preparation}}, 1.0
{{module}}.{{name}} = {STUCK}
words = "judgekit gate --pre-push origin ../origin.git --blocked-code 85 --no-engine"
sys.argv = words.split()
sys.exit(__main__.main())
"""


def test_a_hook_that_is_stuck_ends_well() -> None:
    """Stuck in a call that takes minutes alone, or before a client that never ends its input."""
    command = [sys.executable, *entries.OPTIONS, HOOK.format(seconds=0.5)]
    sent = json.dumps(
        {"hook_event_name": "UserPromptSubmit", "prompt": "How do we refresh the JWT?"}
    ).encode()
    reading, writing = os.pipe()
    try:
        options: list[dict[str, Any]] = [{"input": sent}, {"stdin": reading}]
        for stdin in options:
            begun = time.monotonic()
            done: Any = subprocess.run(command, **stdin, capture_output=True, check=False, timeout=60)
            assert (done.returncode, done.stdout) == (0, b"")
            assert done.stderr == b"judgekit: the hook ran out of time; nothing added to the prompt\n"
            assert time.monotonic() - begun < 30
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("module", "name", "preparation", "config", "code"),
    [
        ("commits", "parse", 0.5, "{}", 0),
        ("push", "read", 60, "{gate: {budget: 1, mode: blocking}}", 0),
        ("push", "read", 60, "{gate: {budget: 1, undetermined: block}}", 0),
        ("push", "read", 60, "{gate: {budget: 1, mode: blocking, undetermined: block}}", 85),
    ],
)
def test_a_push_that_is_stuck_goes_on(
    tmp_path: Path, module: str, name: str, preparation: float, config: str, code: int
) -> None:
    work = beside_origin(tmp_path)
    work.write(".judgekit/config.yaml", f"{config}\n")
    head = work.commit("first", a_md="text\n")
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", GATE.format(module=module, name=name, preparation=preparation)],
        input=f"refs/heads/main {head} refs/heads/main {'0' * 40}\n".encode(),
        cwd=work.folder,
        capture_output=True,
        check=False,
        timeout=120,
    )
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert said.count("judgekit: UNDETERMINED, not judged: out of time") == 1
    assert time.monotonic() - begun < 60
