"""The command `judgekit`, also as `python -m judgekit`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    # Hooks must start fast, so run them without importing the modules of the command line.
    if sys.argv[1:2] == ["hook"] and sys.argv[2:] not in (["--help"], ["-h"]):
        from judgekit.hooks import claude_code  # noqa: PLC0415 - imported lazily to start fast

        if sys.argv[2:]:
            return claude_code.main()
        return claude_code.answer_in_time()

    if sys.argv[1:2] == ["gate"]:
        from judgekit.hooks import pre_push  # noqa: PLC0415 - imported lazily to start fast

        # Most pushes contain nothing to judge, and end here with an exit code.
        exit_code = pre_push.finish_early(sys.argv[2:])
        if exit_code is not None:
            return exit_code

    from judgekit.cli.app import run  # noqa: PLC0415 - imported lazily to start fast

    return run()


if __name__ == "__main__":
    sys.exit(main())
