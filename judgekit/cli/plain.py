"""What the command line can do without any package installed: the hook, and searching without a judge.

The Claude Code plugin runs from its own folder on any Python 3.11; this is its `judgekit` until a real
installation comes before it on PATH. Standard library only.
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
from judgekit.errors import Exit, problem_of
from judgekit.programs import ROOT
from judgekit.text import encodable, short_line, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

UNASKED = "No model, and no root outside of the project: an agent may run this unasked."
_INSTALL = f"python3 -m venv ~/.judgekit-venv && ~/.judgekit-venv/bin/pip install '{ROOT}'"


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code, as `judgekit.cli.app.run` would."""
    try:
        if arguments[:1] == ["hook"]:
            from judgekit.hooks.claude_code import main as hook

            return hook(list(arguments[1:]))
        if arguments[:1] == ["search"]:
            return _search(arguments[1:])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads: the exit must not fail again
        return Exit.OUTPUT_LOST
    except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours is said in one line
        _warn(problem_of(error))
        return Exit.INTERNAL
    _warn(f"the plugin has only `search` and `hook`; to install all of judgekit: {_INSTALL}")
    return Exit.BAD_CONFIG


class _Parser(argparse.ArgumentParser):
    """A parser for which a wrong command line is exit code 64 in one line."""

    def error(self, message: str) -> NoReturn:
        _warn(f"{message} (judgekit search --help lists the options)")
        raise SystemExit(int(Exit.USAGE))


def _search(arguments: Sequence[str]) -> int:
    from judgekit.hooks import settings
    from judgekit.retrieval import command

    started = time.perf_counter()
    about = "Search stored memories and documents, best first."
    parser = _Parser(prog="judgekit search", description=about, allow_abbrev=False)
    parser.add_argument("query", help="Words to search for.")
    parser.add_argument(
        "--root", action="append", default=[], help="A store or folder (repeatable)."
    )
    parser.add_argument("--mode", choices=("strict", "lenient"), default="lenient")
    parser.add_argument("--judge", action="store_true", help="Not available: needs a model.")
    parser.add_argument("--no-judge", action="store_true", help=UNASKED)
    parser.add_argument(
        "-n", dest="number", type=int, default=10, help="Maximum number of results."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    asked = parser.parse_args(arguments)
    if wrong := asked.no_judge and beyond_unasked(asked.root, judge=asked.judge):
        _warn(wrong)
        return Exit.USAGE
    roots = [_folder(root) for root in asked.root]
    if "" in roots:
        _warn(
            f"{asked.root[roots.index('')]}: no such folder; name a store or a folder of Markdown files"
        )
        return Exit.BAD_INPUT
    project = environment.project_root()
    configured, notes = settings.load(project)
    options: dict[str, Any] = {
        "project": project,
        "limit": max(1, min(asked.number, 100)),
        "trusted": roots or configured.trusted,
        "profiles": configured.profiles,
        "snippets": True,
        "scorer": configured["scorer"],
    }
    asks = None if roots else configured["command"]
    stores = roots or configured["roots"]
    ranked = command.search(asked.query, asks, stores, configured["deadline"], options)
    if asked.judge and ranked.candidates:
        degraded = "the plugin has no judge"
    else:
        degraded = None
    for note in [*notes, *ranked.notes, *filter(None, [degraded])]:
        _warn(note)
    if asked.json:
        why = "; ".join(filter(None, (ranked.degraded, degraded)))
        found: dict[str, Any] = {
            "query": encodable(asked.query),
            "mode": asked.mode,
            "degraded": why or None,
        }
        found["results"] = [each.shown() for each in ranked.candidates]
        found["duration_ms"] = round((time.perf_counter() - started) * 1000)
        _print(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
        return Exit.ACCEPTED
    for each in ranked.candidates:
        if each.rated:
            confidence = f"{each.confidence_label} {each.confidence:.2f}"
        else:
            confidence = each.confidence_label
        if each.status:
            status = f" ({each.status}: not in force any more)"
        else:
            status = ""
        _print(
            f"{short_line(each.title, 200)}{status}\n    {short_line(each.path, 400)}  ({confidence})"
        )
    if not ranked.candidates:
        _print("nothing found")
    return Exit.ACCEPTED


def beyond_unasked(roots: Sequence[str], *, judge: bool) -> str:
    """Return what forbids `--no-judge`, whatever follows it: agents may run a command by how it begins."""
    if judge:
        return "--judge and --no-judge cannot be combined"
    project = os.path.realpath(environment.project_root())
    for root in roots:
        folder = _folder(root)
        if Path(folder).is_absolute() and not Path(folder).is_relative_to(project):
            return f"--no-judge --root {root}: outside the project; remove --no-judge to search it"
    return ""


def _folder(root: str) -> str:
    if root == "claude:auto":
        return root
    path = Path(root).expanduser()
    if root and path.is_dir():
        return str(path.resolve())
    return ""


def _print(text: str) -> None:
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "replace"))
    sys.stdout.flush()


def _warn(line: str) -> None:
    sys.stderr.write(f"judgekit: {visible(line)}\n".encode("ascii", "backslashreplace").decode())
