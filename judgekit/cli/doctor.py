"""`judgekit doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

from judgekit.cli.output import say


def doctor() -> int:
    """Check this installation, this project and what can judge; exit code 78 when something is wrong."""
    from judgekit.cli.health import checks

    found = list(checks())
    for each in found:
        say(f"{each.state:<5}  {each.subject}: {each.text}")
    return 78 if any(each.state == "wrong" for each in found) else 0
