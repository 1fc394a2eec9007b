"""`judgekit compare`: texts that answer one prompt in, which of them is better out."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit import environment
from judgekit.cli.judge import Mode
from judgekit.cli.output import (
    check_family,
    complain,
    cost_text,
    emit,
    finite,
    messages_text,
    say,
    tell_redacted,
    tell_substitutes,
)
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import escaped, lines_of, rubric_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.judging.comparison import Comparison
    from judgekit.judging.contest import Contest
    from judgekit.judging.service import Wish


class Shape(enum.StrEnum):
    """How a comparison is printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def compare(
    files: Annotated[list[str], typer.Argument(metavar="A B...", help="Files, or - for stdin.")],
    prompt: Annotated[str, typer.Option(help="The prompt that all of them answer.")],
    rubric: Annotated[str | None, typer.Option(help="ID, ID@VERSION or a YAML file.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="Which error is the costly one.")] = None,
    format_: Annotated[Shape, typer.Option("--format", help="How to print it.")] = Shape.TABLE,
    deadline: Annotated[
        float | None, typer.Option(min=0.1, max=3600, callback=finite, help="Seconds for it all.")
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Ask models anew, whatever they replied before.")
    ] = False,
    author_family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAMILY", help="Who trained the model that wrote them; once for all, or for each in turn."
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(min=0, callback=finite, metavar="USD", help="Ask no more once it has cost this."),
    ] = None,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print what would be sent; send nothing.")
    ] = False,
) -> int:
    """Say which text is better. Exit code: 0 a winner or a tie, 2 a human is needed."""
    from judgekit.judging import comparing
    from judgekit.judging.service import Wish

    wish = Wish(rubric, mode, deadline, max_cost, cache=not no_cache)
    contest = _contest(files, prompt, author_family)
    project = Path(environment.project_root(str(Path.cwd())))
    if show_prompt:
        return _show(contest, project, wish)
    found = comparing.compare(contest, project, wish)
    if format_ is Shape.TABLE:
        for line in _lines(found):
            say(line)
    else:
        emit(found.model_dump_json(by_alias=True, indent=2 if format_ is Shape.JSON else None))
    if not found.decided and found.degraded:
        complain(f"{found.verdict}: {found.degraded}")
    tell_redacted(found.redacted)
    tell_substitutes(found.substitutes)
    return Exit.ACCEPTED if found.decided else Exit.HUMAN_NEEDED


def _contest(files: Sequence[str], prompt: str, families: Sequence[str] | None) -> Contest:
    from judgekit.judging import comparing, documents
    from judgekit.judging.contest import Contest

    if not prompt.strip():
        raise UsageError("--prompt is empty; say what the texts were to answer")
    if files.count(documents.STDIN) > 1:
        raise UsageError("standard input was given twice; it can be read once")
    for each in families or ():
        check_family(each)
    folder = next((each for each in files if each and Path(each).is_dir()), None)
    if folder is not None:
        raise InputError(f"{folder}: a folder; compare takes files")
    authors = comparing.authors(families or None, len(files))
    return Contest(prompt, tuple(documents.read_file(each, sys.stdin.buffer) for each in files), authors)


def _show(contest: Contest, project: Path, wish: Wish) -> int:
    from judgekit.judging.comparing import prompts

    for tier, model, asked in prompts(contest, project, wish):
        for messages in asked:
            say(messages_text(f"compare: {tier} ({model})", messages))
    return Exit.ACCEPTED


def _lines(found: Comparison) -> Iterator[str]:
    names = {each.letter: escaped(each.path) for each in found.subjects}
    winner = f"  {names[found.verdict]}" if found.verdict in names else ""
    yield f"{typer.style(found.verdict.ljust(12), bold=True)}{winner}"
    scored = sorted(found.subjects, key=lambda each: (each.score is None, -(each.score or 0.0)))
    for each in scored:
        score = "" if each.score is None else f"  {each.score:g} up to {each.tier}"
        wrote = "" if each.family is None else f"  by {each.family}"
        yield f"    {each.letter}  {names[each.letter]}{wrote}{score}"
    lead = "".join(f", {each}" for each in _ahead(found))
    settled = f"decided by {found.judge_tier} ({found.consensus}{lead})" if found.judge_tier else "undecided"
    settled = settled if found.rounds or not found.decided else "nobody was asked"
    cost = cost_text(found.model_dump(include={"cost_usd", "cost_source", "cost_complete", "rounds"}))
    rounds = "1 round" if len(found.rounds) == 1 else f"{len(found.rounds)} rounds"
    ref = f"{found.rubric.id}@{found.rubric.version}"
    about = f"{rubric_name(ref, found.rubric.source)}, {found.mode}"
    yield f"    {about}; {rounds}; {settled}, {found.duration_ms / 1000:.1f} s{cost}"
    yield from (f"    {line}" for line in _partial(found))
    if found.degraded:
        yield f"    degraded: {found.degraded}"
    yield from (f"    {line}" for line in lines_of(found.reasoning))


def _partial(found: Comparison) -> Iterator[str]:
    """Say, where it is so, that nobody judged but models of families that wrote the texts, and which ones."""
    from judgekit.judging import authors

    if found.independent is not False:
        return

    own = [each.letter for each in found.subjects if set(authors.named(each.family)) & set(found.families)]
    some = "" if len(own) == len(found.subjects) else "; models favour what their own kind wrote"
    judges = " and ".join(found.families)
    yield f"not independent: only models of {judges} judged it, which wrote {' and '.join(own)}{some}"


def _ahead(found: Comparison) -> Iterator[str]:
    """Say by how much the winner is ahead, or how far apart a tie is: in points where there are scores."""
    scored, tied = any(each.score is not None for each in found.subjects), found.verdict == "tie"
    if found.lead is not None and scored:
        yield f"the best two {found.lead:g} apart" if tied else f"ahead by {found.lead:g}"
    elif found.lead is not None and not tied:
        yield f"{found.lead:.0%} ahead in votes"
