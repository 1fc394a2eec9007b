"""The command `judgekit`, also as `python -m judgekit`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    arguments = sys.argv[2:]

    # Hooks must start fast, so run them without importing the modules of the command line.
    asks_for_help = arguments in (["--help"], ["-h"])
    if command == "hook" and not asks_for_help:
        return _run_hook(arguments)

    if command == "gate":
        from judgekit.hooks import pre_push  # noqa: PLC0415 - imported lazily to start fast

        # Most pushes contain nothing to judge, and end here with an exit code.
        exit_code = pre_push.finish_early(arguments)
        if exit_code is not None:
            return exit_code

    from judgekit.cli.app import run  # noqa: PLC0415 - imported lazily to start fast

    return run()


def _run_hook(arguments: list[str]) -> int:
    """Run the prompt hook and return its exit code."""
    from judgekit.hooks import claude_code  # noqa: PLC0415 - imported lazily to start fast

    # Only people pass arguments, such as `--stats`, and they can wait. Agents pass none, and need speed.
    if arguments:
        return claude_code.main()
    return claude_code.answer_in_time()


if __name__ == "__main__":
    sys.exit(main())
