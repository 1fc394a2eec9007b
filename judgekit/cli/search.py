"""`judgekit search`: ranked memories or documents, judged leniently on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgekit import environment
from judgekit.cli import plain
from judgekit.cli.judge import Mode
from judgekit.cli.output import check_filled, emit, say, warn
from judgekit.engine import client
from judgekit.errors import UsageError
from judgekit.hooks import session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def search(
    query: Annotated[str, typer.Argument(help="What to look for, in words.")],
    root: Annotated[list[str] | None, typer.Option(help="A store or folder; repeat for several.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="Which error is the costly one.")] = None,
    judge: Annotated[bool, typer.Option("--judge", help="Let models decide what to keep.")] = False,
    no_judge: Annotated[bool, typer.Option("--no-judge", help=plain.UNASKED)] = False,
    number: Annotated[int, typer.Option("-n", min=1, max=100, help="How many results at most.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    no_engine: Annotated[bool, typer.Option("--no-engine", help="Judge in this process.")] = False,
) -> int:
    """Search stored memories and documents, best first."""
    if no_judge and (wrong := plain.beyond_unasked(root or (), judge=judge)):
        raise UsageError(wrong)
    check_filled("QUERY", query, "what to look for, in words")
    asked: dict[str, Any] = {"roots": root, "mode": mode, "judge": judge, "limit": number}

    def body() -> bytes:
        roots = [str(Path(name).resolve()) for name in root or ()]
        project = environment.project_root(str(Path.cwd()))
        return json.dumps(
            {**client.carried(project), **asked, "roots": roots or None, "query": query}
        ).encode()

    def locally(reason: client.NoEngine) -> dict[str, Any]:
        from judgekit.judging import search as recall

        reason.tell(warn)
        return recall.search(query, **asked).model_dump(mode="json")

    # The name of a root means something in this process alone.
    use = judge and not no_engine and all(Path(name).is_dir() for name in root or ()) and session.wanted()
    found = client.call("search", body, _read, locally, use=use)
    for note in found.pop("notes"):
        warn(note)
    if found["degraded"]:
        warn(f"degraded to BM25 where no model decided: {found['degraded']}")
    if as_json:
        emit(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
    else:
        _print(found["results"])
    return 0


def _read(response: client.Response) -> dict[str, Any]:
    from judgekit.engine import answers

    found: dict[str, Any] = answers.value(response)
    return found


def _print(results: Sequence[Mapping[str, Any]]) -> None:
    if not results:
        say("nothing found")
    for place, each in enumerate(results, 1):
        say(_text(place, each))


def _text(place: int, result: Mapping[str, Any]) -> str:
    tags = f"  #{','.join(result['tags'])}" if result["tags"] else ""
    head = f"{place:>2}. {typer.style(' '.join(result['title'].split()), bold=True)}"
    kept = "" if result["kept_by"] == "bm25" else f", kept by {result['kept_by']}"
    kind = f"{result['category']}  " if result["category"] else ""
    confidence = f"{result['confidence_label']} {result['confidence']:.2f}"
    lines = [head, f"    {kind}{result['path']}{tags}  ({confidence}{kept})"]
    if result["snippet"]:
        lines.append(f"    {' '.join(result['snippet'].split())}")
    return "\n".join(lines)
