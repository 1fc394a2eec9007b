"""`judgekit search`: ranked memories or documents, judged leniently on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli import plain
from judgekit.cli.judge import Mode
from judgekit.cli.output import complain, emit, say
from judgekit.errors import UsageError

if TYPE_CHECKING:
    from judgekit.recall import Result, SearchResult


def search(
    query: Annotated[str, typer.Argument(help="What to look for, in words.")],
    root: Annotated[list[str] | None, typer.Option(help="A store or folder; repeat for several.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="Which error is the costly one.")] = None,
    judge: Annotated[bool, typer.Option("--judge", help="Let models decide what to keep.")] = False,
    no_judge: Annotated[bool, typer.Option("--no-judge", help=plain.UNASKED)] = False,
    number: Annotated[int, typer.Option("-n", min=1, max=100, help="How many results at most.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Search stored memories and documents, best first."""
    if no_judge and (wrong := plain.beyond_unasked(root or (), judge=judge)):
        raise UsageError(wrong)
    from judgekit import recall

    found = recall.search(query, roots=root, mode=mode, judge=judge, limit=number)
    for note in found.notes:
        complain(note)
    if found.degraded:
        complain(f"degraded to BM25 where no model decided: {found.degraded}")
    if as_json:
        emit(found.model_dump_json(exclude={"notes"}))
    else:
        _print(found)
    return 0


def _print(found: SearchResult) -> None:
    if not found.results:
        say("nothing found")
    for place, each in enumerate(found.results, 1):
        say(_text(place, each))


def _text(place: int, result: Result) -> str:
    tags = f"  #{','.join(result.tags)}" if result.tags else ""
    head = f"{place:>2}. {typer.style(' '.join(result.title.split()), bold=True)}"
    kept = "" if result.kept_by == "bm25" else f", kept by {result.kept_by}"
    kind = f"{result.category}  " if result.category else ""
    detail = f"    {kind}{result.path}{tags}  ({result.confidence_label} {result.confidence:.2f}{kept})"
    lines = [head, detail]
    if result.snippet:
        lines.append(f"    {' '.join(result.snippet.split())}")
    return "\n".join(lines)
