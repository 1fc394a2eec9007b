"""`judgekit search`: ranked memories or documents, judged leniently on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from judgekit import environment
from judgekit.cli import plain
from judgekit.cli.judge import ModeOption
from judgekit.cli.output import AsJson, NoEngine, check_filled, emit, say, warn
from judgekit.engine import client
from judgekit.errors import UsageError
from judgekit.hooks.settings import engine_wanted


def search(
    query: Annotated[str, typer.Argument(help="Words to search for.")],
    root: Annotated[list[str] | None, typer.Option(help="A store or folder (repeatable).")] = None,
    mode: ModeOption = None,
    judge: Annotated[bool, typer.Option("--judge", help="Let models decide which results to keep.")] = False,
    no_judge: Annotated[bool, typer.Option("--no-judge", help=plain.UNASKED)] = False,
    number: Annotated[int, typer.Option("-n", min=1, max=100, help="Maximum number of results.")] = 10,
    as_json: AsJson = False,
    no_engine: NoEngine = False,
) -> int:
    """Search stored memories and documents, best first."""
    if no_judge and (wrong := plain.beyond_unasked(root or (), judge=judge)):
        raise UsageError(wrong)
    check_filled("QUERY", "words to search for", query)
    asked: dict[str, Any] = {"roots": root, "mode": mode, "judge": judge, "limit": number}

    def body() -> bytes:
        roots = [str(Path(name).resolve()) for name in root or ()]
        project = environment.project_root(str(Path.cwd()))
        wanted = {**client.carried(project), **asked, "roots": roots or None, "query": query}
        return json.dumps(wanted).encode()

    def locally(reason: client.NoEngine) -> dict[str, Any]:
        from judgekit.judging import search as recall

        reason.tell(warn)
        return recall.search(query, **asked).model_dump(mode="json")

    # The name of a root means something in this process alone.
    use = judge and not no_engine and all(Path(name).is_dir() for name in root or ()) and engine_wanted()
    found = client.call("search", body, _read, locally, use=use)
    for note in found.pop("notes"):
        warn(note)
    if found["degraded"]:
        warn(f"no model decided, so BM25 did: {found['degraded']}")
    if as_json:
        emit(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
        return 0
    if not found["results"]:
        say("nothing found")
    for place, result in enumerate(found["results"], 1):
        tags = f"  #{','.join(result['tags'])}" if result["tags"] else ""
        kept = "" if result["kept_by"] == "bm25" else f", kept by {result['kept_by']}"
        kind = f"{result['category']}  " if result["category"] else ""
        confidence = f"{result['confidence_label']} {result['confidence']:.2f}"
        say(f"{place:>2}. {typer.style(' '.join(result['title'].split()), bold=True)}")
        say(f"    {kind}{result['path']}{tags}  ({confidence}{kept})")
        if result["snippet"]:
            say(f"    {' '.join(result['snippet'].split())}")
    return 0


def _read(response: client.Response) -> dict[str, Any]:
    from judgekit.engine import answers

    found: dict[str, Any] = answers.value(response)
    return found
