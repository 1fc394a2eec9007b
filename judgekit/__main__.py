"""The command `judgekit`, also as `python -m judgekit`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    # The hooks must start fast, so they don't import the command line.
    if sys.argv[1:2] == ["hook"] and sys.argv[2:] not in (["--help"], ["-h"]):
        from judgekit.hooks import claude_code  # noqa: PLC0415 - the only import that the hook pays for

        if sys.argv[2:]:
            return claude_code.main()
        return claude_code.answer_in_time()

    if sys.argv[1:2] == ["gate"]:
        from judgekit.hooks import pre_push  # noqa: PLC0415 - most pushes end here

        code = pre_push.finish_early(sys.argv[2:])
        if code is not None:
            return code

    from judgekit.cli.app import run  # noqa: PLC0415 - the hook never needs it

    return run()


if __name__ == "__main__":
    sys.exit(main())
