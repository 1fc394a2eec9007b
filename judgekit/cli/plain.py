"""The part of the command line that works without any package: the hook, and searching without a judge.

The Claude Code plugin runs from its own folder on any Python 3.11, with this as its `judgekit` until a real
installation precedes it on PATH. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from judgekit import environment
from judgekit.errors import Exit, describe_error
from judgekit.programs import ROOT
from judgekit.text import (
    escape_ci_commands,
    escape_for_json,
    remove_invisible,
    replace_surrogates,
    shorten_to_line,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.retrieval.confidence import Candidate

UNASKED_SEARCH_HELP = "No model, and no root outside of the project: an agent may run this unasked."
_INSTALL = f"python3 -m venv ~/.judgekit-venv && ~/.judgekit-venv/bin/pip install '{ROOT}'"


def main(arguments: Sequence[str]) -> int:
    """Run the plugin's `hook` or `search` and return its exit code, like `judgekit.cli.app.run`."""
    command = arguments[0] if arguments else ""
    rest = arguments[1:]
    try:
        if command == "hook":
            from judgekit.hooks.claude_code import main as hook

            return hook(list(rest))
        if command == "search":
            return _search(rest)
    except BrokenPipeError:
        _discard_output()
        return Exit.OUTPUT_LOST
    except Exception as error:  # noqa: BLE001 - the boundary: report our own faults in a line
        _warn(describe_error(error))
        return Exit.INTERNAL

    _warn(f"the plugin has only `search` and `hook`; to install all of judgekit: {_INSTALL}")
    return Exit.BAD_CONFIG


def _discard_output() -> None:
    """Discard what's still to be printed. Otherwise, Python would fail again at exit."""
    null_file = os.open(os.devnull, os.O_WRONLY)
    standard_output = 1
    os.dup2(null_file, standard_output)


class _Parser(argparse.ArgumentParser):
    """A parser that reports a wrong command line in one line, with exit code 64."""

    def error(self, message: str) -> NoReturn:
        _warn(f"{message} (judgekit search --help lists the options)")
        raise SystemExit(int(Exit.USAGE))


def _search(arguments: Sequence[str]) -> int:
    """Search like `judgekit search` without a judge; prints the results and returns the exit code."""
    from judgekit.hooks import settings
    from judgekit.retrieval import command
    from judgekit.retrieval.index_file import describe_empty

    started = time.perf_counter()
    options = _build_parser().parse_args(arguments)
    if options.no_judge:
        problem = explain_refusal(options.root, judge=options.judge)
        if problem:
            _warn(problem)
            return Exit.USAGE

    roots = []
    for root in options.root:
        folder = _resolve_folder(root)
        if not folder:
            _warn(f"{root}: no such folder; name a store or a folder of Markdown files")
            return Exit.BAD_INPUT
        roots.append(folder)

    # Search the stores, or run the user's search program.
    project = environment.find_project_root()
    configured, notes = settings.load(project)
    search_options: dict[str, Any] = {
        "project": project,
        "limit": max(1, min(options.number, 100)),
        "trusted": roots or configured.trusted_roots,
        "profiles": configured.profiles,
        "snippets": True,
        "scorer": configured["scorer"],
    }

    users_command = None if roots else configured["command"]  # the command can't search named roots
    stores = roots or configured["roots"]
    ranked = command.search(
        options.query, users_command, stores, configured["deadline"], search_options
    )

    # Report problems.
    missing_judge = ""
    if options.judge and ranked.candidates:
        missing_judge = "the plugin has no judge"
    notes += [*ranked.notes, *map(describe_empty, ranked.empty_roots)]
    for note in (*notes, missing_judge):
        if note:
            _warn(note)

    if options.json:
        reasons = [reason for reason in (ranked.degraded, missing_judge) if reason]
        record = {
            "query": replace_surrogates(options.query),
            "mode": options.mode,
            "degraded": "; ".join(reasons) or None,
            "results": [candidate.build_result_fields() for candidate in ranked.candidates],
            "duration_ms": round((time.perf_counter() - started) * 1000),
        }

        line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        _print(escape_for_json(line))
        return Exit.ACCEPTED

    for candidate in ranked.candidates:
        _print_candidate(candidate)
    if not ranked.candidates:
        _print("nothing found")
    return Exit.ACCEPTED


def _build_parser() -> _Parser:
    """Build the parser for the plugin's `search`, which works without any packages."""
    description = "Search stored memories and documents, best first."
    parser = _Parser(prog="judgekit search", description=description, allow_abbrev=False)
    parser.add_argument("query", help="Words to search for.")
    parser.add_argument(
        "--root", action="append", default=[], help="A store or folder (repeatable)."
    )
    parser.add_argument("--mode", choices=("strict", "lenient"), default="lenient")
    # --judge exists so that commands for an installed judgekit work here, too. The search then only says that
    # there's no judge.
    parser.add_argument("--judge", action="store_true", help="Not available: needs a model.")
    # An installed judgekit prints the same help.
    parser.add_argument("--no-judge", action="store_true", help=UNASKED_SEARCH_HELP)
    parser.add_argument(
        "-n", dest="number", type=int, default=10, help="Maximum number of results."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    return parser


def _print_candidate(candidate: Candidate) -> None:
    """Print a candidate's title, place and confidence, and its section if known."""
    title = shorten_to_line(candidate.title, 200)
    if candidate.status:
        title = f"{title} ({candidate.status}: not in force any more)"
    # As in `notes.md:12`.
    place = candidate.append_line_number(shorten_to_line(candidate.path, 400))
    confidence = _describe_confidence(candidate)
    _print(escape_ci_commands(f"{title}\n    {place}  ({confidence})"))

    section = shorten_to_line(candidate.name_section(), 200)
    if section:
        _print(escape_ci_commands(f"    in {section}"))


def _describe_confidence(candidate: Candidate) -> str:
    """Describe a candidate's confidence, with the number if it's rated: `high 0.93`."""
    if candidate.has_confidence:
        return f"{candidate.confidence_label} {candidate.confidence:.2f}"
    return candidate.confidence_label


def explain_refusal(roots: Sequence[str], *, judge: bool) -> str:
    """Explain why a search with `--no-judge` is refused; "" if it isn't.

    `judge` is whether --judge is given, too.
    """
    if judge:
        return "--judge and --no-judge cannot be combined"

    # Users may allow an agent to run any command that starts with `judgekit search --no-judge` without
    # asking them. So such a command mustn't read outside the project.
    project = os.path.realpath(environment.find_project_root())
    for root in roots:
        if _is_outside(root, project):
            return f"--no-judge --root {root}: outside the project; remove --no-judge to search it"
    return ""


def _is_outside(root: str, project: str) -> bool:
    """Whether a root is an existing folder outside the project."""
    folder = Path(_resolve_folder(root))
    is_found = folder.is_absolute()  # not so: a missing folder, and `claude:auto`
    return is_found and not folder.is_relative_to(project)


def _resolve_folder(root: str) -> str:
    """Return a folder's real path; "" if it doesn't exist. `claude:auto` is returned unchanged."""
    # `claude:auto` stands for the folder where Claude Code keeps the project's memories.
    if root == "claude:auto":
        return root
    if not root:  # `Path` would take it for the current folder
        return ""
    path = Path(root).expanduser()
    return str(path.resolve()) if path.is_dir() else ""


def _print(text: str) -> None:
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "replace"))
    sys.stdout.flush()


def _warn(line: str) -> None:
    text = escape_ci_commands(f"judgekit: {remove_invisible(line)}\n")
    sys.stderr.write(text.encode("ascii", "backslashreplace").decode())
