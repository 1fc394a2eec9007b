"""`judgekit search`: ranked memories or documents, judged on request; `index`: the state of their indexes."""

from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli import options, plain
from judgekit.cli.output import emit, note, say, warn
from judgekit.engine import answers, client
from judgekit.errors import InputError, UsageError
from judgekit.hooks.settings import engine_wanted
from judgekit.retrieval.compiled import Profiles
from judgekit.text import counted


def search(
    query: Annotated[str, Argument(help="Words to search for.")],
    root: Annotated[list[str] | None, Option(help="A store or folder (repeatable).")] = None,
    mode: options.ModeOption = None,
    judge: Annotated[
        bool, Option("--judge", help="Let models decide which results to keep.")
    ] = False,
    no_judge: Annotated[bool, Option("--no-judge", help=plain.UNASKED)] = False,
    number: Annotated[int, Option("-n", min=1, max=100, help="Maximum number of results.")] = 10,
    as_json: options.AsJson = False,
    no_engine: options.NoEngine = False,
    model: options.ModelOption = None,
    _out: options.OutOption = None,
) -> None:
    """Search stored memories and documents, best first."""
    if no_judge and (wrong := plain.beyond_unasked(root or (), judge=judge)):
        raise UsageError(wrong)
    if model and not judge:
        raise UsageError("--model is for --judge; add --judge")
    options.check_filled("QUERY", "words to search for", query)
    asked: dict[str, Any] = {"roots": root, "mode": mode, "judge": judge, "limit": number}

    def body() -> bytes:
        roots = [str(Path(name).resolve()) for name in root or ()]
        carried = client.carried(environment.project_root())
        return json.dumps({**carried, **asked, "roots": roots or None, "query": query}).encode()

    def locally(_: client.NoEngine) -> dict[str, Any]:
        from judgekit.judging import search as recall

        return recall.search(query, **asked).model_dump(mode="json")

    # The name of a root means something in this process alone.
    use = (
        judge
        and not no_engine
        and all(Path(name).is_dir() for name in root or ())
        and engine_wanted()
    )
    found = client.call("search", body, answers.value, locally, use=use, warn=note)
    why = found["degraded"] or ""
    for line in found.pop("notes"):
        warn(line)
        why = why.removeprefix(line).removeprefix("; ")
    if why:
        warn(f"no model decided, so BM25 did: {why}")
    if as_json:
        emit(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
        return
    if not found["results"]:
        say("nothing found")
    results = found["results"]
    in_force = [result for result in results if not result.get("status")]
    for place, result in enumerate(in_force, 1):
        say(f"{place:>2}. {typer.style(' '.join(result['title'].split()), bold=True)}")
        _say_place(result)
    if len(in_force) < len(results):
        say("Not in force any more:")
    for result in results:
        if result.get("status"):
            say(f"  - {' '.join(result['title'].split())} ({result['status']})")
            _say_place(result)


def _say_place(result: dict[str, Any]) -> None:
    """Print where a result is, how sure the search is of it, and its passage."""
    if result["tags"]:
        tags = f"  #{','.join(result['tags'])}"
    else:
        tags = ""
    if result["kept_by"] in ("bm25", "command"):
        kept = ""
    else:
        kept = f", kept by {result['kept_by']}"
    if result["category"]:
        kind = f"{result['category']}  "
    else:
        kind = ""
    if result["confidence"] is None:
        rated = ""
    else:
        rated = f" {result['confidence']:.2f}"
    say(f"    {kind}{result['path']}{tags}  ({result['confidence_label']}{rated}{kept})")
    if result["snippet"]:
        say(f"    {' '.join(result['snippet'].split())}")


app = typer.Typer(no_args_is_help=True, help="The index of each store: status and rebuild.")

Roots = Annotated[
    list[str] | None, Option("--root", help="Not the configured stores but this (repeatable).")
]


@app.command()
def status(root: Roots = None, as_json: options.AsJson = False) -> None:
    """Show the entries, size and age of each index."""
    from judgekit.retrieval import index

    stores, profiles = _stores(root)
    found = [index.state(store, profiles) for store in stores]
    for state in (state for state in found if state["updated"] is not None):
        state["updated"] = datetime.fromtimestamp(state["updated"], UTC).isoformat(
            timespec="seconds"
        )
    if as_json:
        emit(json.dumps({"roots": found}))
        return
    for state in found:
        say(state["root"])
        if state["path"] is None:
            say("    no index yet; the first query builds it")
            continue
        fresh = "stale; the next query updates it" if state["stale"] else "up to date"
        entries = f"{counted(state['entries'], 'entry', 'entries')} in {state['files']:,} files"
        say(f"    {state['kind'] or 'unknown kind'}, {entries}; {fresh}")
        size = f"{state['bytes'] / 1e6:.1f} MB, generation {state['generation']}"
        say(f"    {size}, last update {state['updated'] or 'never'}; {state['path']}")
        if state["pending"]:
            say(
                f"    {counted(state['pending'], 'file', 'files')} not read yet; the next query continues"
            )
        for problem in state["problems"]:
            say(f"    problem: {problem}")


@app.command()
def rebuild(root: Roots = None) -> None:
    """Build the index of each store again."""
    from judgekit.retrieval import index

    stores, profiles = _stores(root)
    for store in stores:
        started = time.perf_counter()
        with contextlib.closing(index.open_index(store, profiles, anew=True)) as opened:
            note(*opened.notes())
            kept = opened.path or "in memory only: the cache folder cannot be written"
            took = f"{time.perf_counter() - started:.1f} s"
            say(
                f"{store}: {opened.kind}, {counted(opened.size, 'entry', 'entries')}, {took}, {kept}"
            )


def _stores(roots: list[str] | None) -> tuple[list[str], Profiles]:
    """Return the real folders of the named roots, or of those that the configuration lists and that exist."""
    from judgekit.config import settings
    from judgekit.retrieval import search
    from judgekit.retrieval.profiles import compile_profiles

    home = environment.project_root()
    trusted = roots or settings.user_roots() or ()
    found: dict[str, None] = {}
    for root in roots or settings.load(Path(home)).retrieval.roots:
        folder = Path(search.resolve(root, str(Path.cwd()) if roots else home)).resolve()
        if not folder.is_dir():
            if roots:
                raise InputError(
                    f"{root}: no such folder; name a store or a folder of Markdown files"
                )
        elif search.may_be_searched(root, str(folder), f"{Path(home).resolve()}{os.sep}", trusted):
            found[str(folder)] = None
        else:
            warn(f"{root}: outside the project; only your own configuration may name such a root")
    if not found:
        warn("no store found; name one with --root")
    return list(found), Profiles(compile_profiles(Path(home)))
