"""`judgekit search`: ranks memories or documents, judged on request; `index`: the state of their indexes."""

from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli import options, plain
from judgekit.cli.output import emit, note, say, warn
from judgekit.engine import answers, client
from judgekit.errors import ConfigError, InputError, UsageError
from judgekit.hooks.settings import is_engine_wanted
from judgekit.retrieval.compiled import Profiles
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


def search(
    query: Annotated[str, Argument(help="Words to search for.")],
    root: Annotated[list[str] | None, Option(help="A store or folder (repeatable).")] = None,
    mode: options.ModeOption = None,
    judge: Annotated[
        bool, Option("--judge", help="Let models decide which results to keep.")
    ] = False,
    no_judge: Annotated[bool, Option("--no-judge", help=plain.UNASKED_SEARCH_HELP)] = False,
    number: Annotated[int, Option("-n", min=1, max=100, help="Maximum number of results.")] = 10,
    as_json: options.AsJson = False,
    no_engine: options.NoEngine = False,
    model: options.ModelOption = None,
    _out: options.OutOption = None,
) -> None:
    """Search stored memories and documents, best first."""
    # A user may let an agent run a search with --no-judge unasked, so it must stay in the project.
    if no_judge:
        refusal = plain.explain_refusal(root or (), judge=judge)
        if refusal:
            raise UsageError(refusal)
    # The option's parser has already applied the model.
    if model and not judge:
        raise UsageError("--model is for --judge; add --judge")
    options.check_filled("QUERY", "words to search for", query)

    search_options: dict[str, Any] = {"mode": mode, "judge": judge, "limit": number}
    # The engine calls the models, so it's of use only with --judge.
    wants_engine = judge and not no_engine and is_engine_wanted()
    use_engine = wants_engine and _are_folders(root or ())
    selection = _find_results(query, root, search_options, use_engine=use_engine)

    _warn_of_notes(selection)
    if as_json:
        emit(json.dumps(selection, ensure_ascii=False, separators=(",", ":")))
    else:
        _print_results(selection["results"])


def _are_folders(roots: Iterable[str]) -> bool:
    """Whether all roots are folders. Other roots, such as claude:auto, depend on the current folder."""
    return all(Path(name).is_dir() for name in roots)


def _find_results(
    query: str, roots: list[str] | None, search_options: dict[str, Any], *, use_engine: bool
) -> dict[str, Any]:
    """Search with the engine, or in this process if the engine isn't wanted or doesn't run."""

    def write_body() -> bytes:
        # The engine's current folder is different, so send absolute paths.
        absolute_roots = [str(Path(name).resolve()) for name in roots or ()]
        search_fields = {**search_options, "roots": absolute_roots or None, "query": query}
        return json.dumps(
            {**client.build_caller_fields(environment.find_project_root()), **search_fields}
        ).encode()

    def search_here(_: client.NoEngine) -> dict[str, Any]:
        from judgekit.judging import search as recall

        return recall.search(query, roots=roots, **search_options).model_dump(mode="json")

    return client.call(
        "search", write_body, answers.read_value, search_here, use=use_engine, warn=note
    )


def _warn_of_notes(selection: dict[str, Any]) -> None:
    """Print a selection's notes and remove them from it. If no model decided, also print the reason."""
    why_no_model = selection["degraded"] or ""
    for line in selection.pop("notes"):
        warn(line)
        # The reason can begin with the notes, so don't print them twice.
        why_no_model = why_no_model.removeprefix(line).removeprefix("; ")
    if why_no_model:
        warn(f"no model decided, so BM25 did: {why_no_model}")


def _print_results(results: list[dict[str, Any]]) -> None:
    """Print the results in force by rank, and then those no longer in force."""
    if not results:
        say("nothing found")

    # Only a result that's no longer in force has a status.
    in_force = [result for result in results if not result.get("status")]
    for rank, result in enumerate(in_force, 1):
        title = typer.style(_join_lines(result["title"]), bold=True)
        say(f"{rank:>2}. {title}{_count_alike(result)}")
        _print_details(result)

    ended = [result for result in results if result.get("status")]
    if ended:
        say("Not in force any more:")
    for result in ended:
        title = _join_lines(result["title"])
        say(f"  - {title} ({result['status']}){_count_alike(result)}")
        _print_details(result)


def _join_lines(text: str) -> str:
    """Write a text as one line, with single spaces between its words."""
    return " ".join(text.split())


def _count_alike(result: dict[str, Any]) -> str:
    """Describe how many older results are grouped with this one; "" if none."""
    count = result.get("alike")
    return f" (and {count} alike)" if count else ""


def _print_details(result: dict[str, Any]) -> None:
    """Print the lines below a result's title: place, confidence, age, other places, and a passage."""
    category = f"{result['category']}  " if result["category"] else ""
    tags = f"  #{','.join(result['tags'])}" if result["tags"] else ""
    place = _name_place(result["path"], result)
    say(f"    {category}{place}{tags}  ({_describe_confidence(result)})")

    title = _join_lines(result["title"])
    section = _join_lines(result.get("section", ""))
    if section and section != title:
        say(f"    in {section}")
    for other in result.get("also", ()):
        say(f"    also {_name_place(result['path'], other)} {_join_lines(other['section'])}")

    snippet = _join_lines(result["snippet"])
    snippet = snippet.removeprefix(f"# {title}").lstrip()  # the title is already printed
    if snippet:
        say(f"    {snippet}")


def _describe_confidence(result: dict[str, Any]) -> str:
    """Describe the confidence in a result, the tier that kept it, and its age, as far as there are any."""
    confidence: str = result["confidence_label"]
    if result["confidence"] is not None:
        confidence += f" {result['confidence']:.2f}"
    # BM25 and the user's own search program aren't tiers.
    is_kept_by_tier = result["kept_by"] not in ("bm25", "command")
    if is_kept_by_tier:
        confidence += f", kept by {result['kept_by']}"
    if result.get("age"):
        confidence += f", {result['age']} old"
    return confidence


def _name_place(path: str, place: dict[str, Any]) -> str:
    """Format a place as `PATH:LINE`, or only the path if the line isn't known."""
    return f"{path}:{place['line']}" if place.get("line") else path


app = typer.Typer(no_args_is_help=True, help="The index of each store: status and rebuild.")

Roots = Annotated[
    list[str] | None, Option("--root", help="Not the configured stores but this (repeatable).")
]


@app.command()
def status(root: Roots = None, as_json: options.AsJson = False) -> None:
    """Show the entries, size and age of each index."""
    from judgekit.retrieval import index

    stores, profiles = _find_stores(root)
    states = [index.describe_index(store, profiles) for store in stores]
    for state in states:
        if state["updated"] is not None:
            updated = datetime.fromtimestamp(state["updated"], UTC)
            state["updated"] = updated.isoformat(timespec="seconds")

    if as_json:
        emit(json.dumps({"roots": states}))
        return
    for state in states:
        _print_state(state)


def _print_state(state: dict[str, Any]) -> None:
    """Print a store's index: its size, age, and unread files."""
    say(state["root"])
    if state["path"] is None:
        say("    no index yet; the first query builds it")
        return

    freshness = "stale; the next query updates it" if state["stale"] else "up to date"
    entries = format_count(state["entries"], "entry", "entries")
    files = format_count(state["files"], "file", "files")
    say(f"    {state['kind'] or 'unknown kind'}, {entries} in {files}; {freshness}")
    size = f"{state['bytes'] / 1e6:.1f} MB, generation {state['generation']}"
    say(f"    {size}, last update {state['updated'] or 'never'}; {state['path']}")
    if state["pending"]:
        pending = format_count(state["pending"], "file", "files")
        say(f"    {pending} not read yet; the next query continues")

    for problem in state["problems"]:
        say(f"    problem: {problem}")


@app.command()
def rebuild(root: Roots = None) -> None:
    """Build the index of each store again."""
    from judgekit.retrieval import index, index_file

    if not index_file.has_full_text_search():
        raise ConfigError(
            "this Python's SQLite has no full-text search (FTS5), so there is no index to build; "
            "install judgekit with another Python"
        )

    stores, profiles = _find_stores(root)
    for store in stores:
        started = time.perf_counter()
        with contextlib.closing(index.open_index(store, profiles, anew=True)) as opened:
            note(*opened.describe_problems())
            if opened.is_empty():
                note(index_file.describe_empty(store))
            entries = format_count(opened.entry_count, "entry", "entries")
            seconds = f"{time.perf_counter() - started:.1f} s"
            place = opened.path or "in memory only: the cache folder cannot be written"
            say(f"{store}: {opened.kind}, {entries}, {seconds}, {place}")


def _find_stores(roots: list[str] | None) -> tuple[list[str], Profiles]:
    """Return the real folders of stores, and the profiles for reading them.

    The stores are the given roots, or else the configured ones that exist. Raises `InputError` for a given
    root that isn't a folder.
    """
    from judgekit.retrieval.profiles import compile_profiles

    project = environment.find_project_root()
    stores = _list_given_stores(roots, project) if roots else _list_configured_stores(project)
    if not stores:
        warn("no store found; name one with --root")
    return stores, Profiles(compile_profiles(Path(project)))


def _list_given_stores(roots: Sequence[str], project: str) -> list[str]:
    """List the folders of given roots; raises `InputError` for one that doesn't exist."""
    current_folder = str(Path.cwd())
    stores: dict[str, None] = {}  # like a set, but ordered
    for root in roots:
        folder = _resolve_folder(root, current_folder)
        if not folder.is_dir():
            raise InputError(f"{root}: no such folder; name a store or a folder of Markdown files")
        # The user typed these roots, so they may be outside the project, but not through a link in it.
        if _is_allowed(root, folder, project, trusted_roots=roots):
            stores[str(folder)] = None
    return list(stores)


def _list_configured_stores(project: str) -> list[str]:
    """List the folders of configured roots that exist and may be searched."""
    from judgekit.config import settings

    trusted_roots = settings.read_user_roots() or ()
    stores: dict[str, None] = {}  # like a set, but ordered
    for root in settings.load(Path(project)).retrieval.roots:
        folder = _resolve_folder(root, project)
        # A missing folder is no error, because it may be created later.
        if folder.is_dir() and _is_allowed(root, folder, project, trusted_roots=trusted_roots):
            stores[str(folder)] = None
    return list(stores)


def _resolve_folder(root: str, base_folder: str) -> Path:
    """Find the real folder of a root, seen from `base_folder`."""
    from judgekit.retrieval.search import resolve_root

    return Path(resolve_root(root, base_folder)).resolve()


def _is_allowed(root: str, folder: Path, project: str, *, trusted_roots: Collection[str]) -> bool:
    """Whether a root may be searched; prints a warning if not."""
    from judgekit.retrieval.search import may_be_searched

    project_prefix = f"{Path(project).resolve()}{os.sep}"
    is_allowed = may_be_searched(root, str(folder), project_prefix, trusted_roots)
    if not is_allowed:
        warn(f"{root}: outside the project; only your own configuration may name such a root")
    return is_allowed
