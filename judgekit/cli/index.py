"""`judgekit index`: what is known of each store, and reading it all anew."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgekit import environment
from judgekit.cli.output import AsJson, emit, say, warn

if TYPE_CHECKING:
    from judgekit.retrieval.compiled import Profiles

app = typer.Typer(no_args_is_help=True, help="The index of each store: status and rebuild.")

Roots = Annotated[
    list[str] | None,
    typer.Option("--root", help="A store or folder (repeatable); by default those of the configuration."),
]


@app.command()
def status(
    root: Roots = None,
    as_json: AsJson = False,
) -> int:
    """Show the entries, size and age of each index."""
    from judgekit.retrieval import index

    stores, profiles = _stores(root)
    found = [index.state(store, profiles) for store in stores]
    found = [each | {"updated": _moment(each["updated"])} for each in found]
    if as_json:
        emit(json.dumps({"roots": found}))
    else:
        for each in found:
            _print(each)
    return 0


@app.command()
def rebuild(root: Roots = None) -> int:
    """Build the index of each store again."""
    from judgekit.retrieval import index

    stores, profiles = _stores(root)
    for store in stores:
        started = time.perf_counter()
        opened = index.open_index(store, profiles, anew=True, progress=_progress)
        try:
            for note in opened.notes():
                warn(note)
            kept = opened.path or "in memory only: the cache folder cannot be written"
            took = f"{time.perf_counter() - started:.1f} s"
            say(f"{store}: {opened.kind}, {_entries(opened.size)}, {took}, {kept}")
        finally:
            opened.close()
    return 0


def _print(found: dict[str, Any]) -> None:
    say(found["root"])
    if found["path"] is None:
        say("    no index yet; the first query builds it")
        return
    state = "stale; the next query updates it" if found["stale"] else "up to date"
    entries = f"{_entries(found['entries'])} in {found['files']:,} files"
    say(f"    {found['kind'] or 'unknown kind'}, {entries}; {state}")
    size = f"{found['bytes'] / 1e6:.1f} MB, generation {found['generation']}"
    say(f"    {size}, last update {found['updated'] or 'never'}; {found['path']}")
    if found["pending"]:
        say(f"    {found['pending']:,} files not read yet; the next query continues")
    for problem in found["problems"]:
        say(f"    problem: {problem}")


def _entries(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _stores(roots: list[str] | None) -> tuple[list[str], Profiles]:
    """Return the real folders of the named roots, or of those that the configuration lists and that exist."""
    from judgekit.config import settings
    from judgekit.errors import InputError
    from judgekit.retrieval import search
    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.profiles import compile_profiles
    from judgekit.text import visible

    here = str(Path.cwd())
    home = environment.project_root(here)
    profiles = Profiles(compile_profiles(Path(home)))
    trusted = roots or settings.user_roots() or ()
    base = f"{Path(home).resolve()}{os.sep}"
    found: dict[str, None] = {}
    for root in roots or settings.load(Path(home)).retrieval.roots:
        folder = Path(search.resolve(root, here if roots else home)).resolve()
        if not folder.is_dir():
            if roots:
                raise InputError(
                    f"{visible(root)}: no such folder; name a store or a folder of Markdown files"
                )
        elif search.may_be_searched(root, str(folder), base, trusted):
            found[str(folder)] = None
        else:
            warn(f"{root}: outside the project; only your own configuration may name such a root")
    if not found:
        warn("no store found; name one with --root")
    return list(found), profiles


def _progress(done: int, total: int) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{done:,} of {total:,} files read{end}")
        sys.stderr.flush()
