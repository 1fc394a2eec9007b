"""`judgekit doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

from judgekit.cli.output import say


def doctor() -> int:
    """Check this installation, this project and what can judge; exit code 78 when something is wrong."""
    from judgekit.cli.health import checks

    found = list(checks())
    for check in found:
        say(f"{check.state:<5}  {check.subject}: {check.text}")
    return 78 if any(each.state == "wrong" for each in found) else 0
