"""The command `judgekit`, also as `python -m judgekit`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code; the prompt hook skips what other commands import."""
    if sys.argv[1:2] == ["hook"] and sys.argv[2:] not in (["--help"], ["-h"]):
        from judgekit.hooks import claude_code  # noqa: PLC0415 - the only import that the hook pays for

        return claude_code.main()
    from judgekit.cli.app import run  # noqa: PLC0415 - the hook never needs it

    return run()


if __name__ == "__main__":
    sys.exit(main())
