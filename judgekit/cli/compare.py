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
    cost_text,
    emit,
    finite,
    messages_text,
    say,
    tell_redacted,
    tell_substitutes,
    warn,
)
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import escaped, lines_of, rubric_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.judging.comparison import Comparison, ComparisonInput
    from judgekit.judging.service import JudgeRequest


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
    from judgekit.judging import service
    from judgekit.judging.service import JudgeRequest

    judge_request = JudgeRequest(rubric, mode, deadline, max_cost, cache=not no_cache)
    comparison_input = _contest(files, prompt, author_family)
    project = Path(environment.project_root(str(Path.cwd())))
    if show_prompt:
        return _show(comparison_input, project, judge_request)
    comparison = service.compare(comparison_input, project, judge_request)
    if format_ is Shape.TABLE:
        for line in _lines(comparison):
            say(line)
    else:
        emit(comparison.model_dump_json(by_alias=True, indent=2 if format_ is Shape.JSON else None))
    if not comparison.decided and comparison.degraded:
        warn(f"{comparison.verdict}: {comparison.degraded}")
    tell_redacted(comparison.redacted)
    tell_substitutes(comparison.substitutes)
    return Exit.ACCEPTED if comparison.decided else Exit.HUMAN_NEEDED


def _contest(files: Sequence[str], prompt: str, families: Sequence[str] | None) -> ComparisonInput:
    from judgekit.judging import documents, service
    from judgekit.judging.comparison import ComparisonInput

    if not prompt.strip():
        raise UsageError("--prompt is empty; say what the texts were to answer")
    if files.count(documents.STDIN) > 1:
        raise UsageError("standard input was given twice; it can be read once")
    for family in families or ():
        check_family(family)
    folder = next((file for file in files if file and Path(file).is_dir()), None)
    if folder is not None:
        raise InputError(f"{folder}: a folder; compare takes files")
    authors = service.authors(families or None, len(files))
    return ComparisonInput(
        prompt, tuple(documents.read_file(file, sys.stdin.buffer) for file in files), authors
    )


def _show(comparison_input: ComparisonInput, project: Path, judge_request: JudgeRequest) -> int:
    from judgekit.judging.service import comparison_prompts

    for tier, model, asked in comparison_prompts(comparison_input, project, judge_request):
        for messages in asked:
            say(messages_text(f"compare: {tier} ({model})", messages))
    return Exit.ACCEPTED


def _lines(comparison: Comparison) -> Iterator[str]:
    names = {subject.letter: escaped(subject.path) for subject in comparison.subjects}
    winner = f"  {names[comparison.verdict]}" if comparison.verdict in names else ""
    yield f"{typer.style(comparison.verdict.ljust(12), bold=True)}{winner}"
    scored = sorted(comparison.subjects, key=lambda each: (each.score is None, -(each.score or 0.0)))
    for contestant in scored:
        score = "" if contestant.score is None else f"  {contestant.score:g} up to {contestant.tier}"
        wrote = "" if contestant.family is None else f"  by {contestant.family}"
        yield f"    {contestant.letter}  {names[contestant.letter]}{wrote}{score}"
    lead = "".join(f", {each}" for each in _ahead(comparison))
    settled = (
        f"decided by {comparison.judge_tier} ({comparison.consensus}{lead})"
        if comparison.judge_tier
        else "undecided"
    )
    settled = settled if comparison.rounds or not comparison.decided else "nobody was asked"
    cost = cost_text(comparison.model_dump(include={"cost_usd", "cost_source", "cost_complete", "rounds"}))
    rounds = "1 round" if len(comparison.rounds) == 1 else f"{len(comparison.rounds)} rounds"
    ref = f"{comparison.rubric.id}@{comparison.rubric.version}"
    about = f"{rubric_name(ref, comparison.rubric.source)}, {comparison.mode}"
    yield f"    {about}; {rounds}; {settled}, {comparison.duration_ms / 1000:.1f} s{cost}"
    yield from (f"    {line}" for line in _partial(comparison))
    if comparison.degraded:
        yield f"    degraded: {comparison.degraded}"
    yield from (f"    {line}" for line in lines_of(comparison.reasoning))


def _partial(comparison: Comparison) -> Iterator[str]:
    """Say, where it is so, that nobody judged but models of families that wrote the texts, and which ones."""
    from judgekit.judging import authors

    if comparison.independent is not False:
        return

    own = [
        subject.letter
        for subject in comparison.subjects
        if set(authors.named(subject.family)) & set(comparison.families)
    ]
    some = "" if len(own) == len(comparison.subjects) else "; models favour what their own kind wrote"
    judges = " and ".join(comparison.families)
    yield f"not independent: only models of {judges} judged it, which wrote {' and '.join(own)}{some}"


def _ahead(comparison: Comparison) -> Iterator[str]:
    """Say by how much the winner is ahead, or how far apart a tie is: in points where there are scores."""
    scored, tied = (
        any(subject.score is not None for subject in comparison.subjects),
        comparison.verdict == "tie",
    )
    if comparison.lead is not None and scored:
        yield f"the best two {comparison.lead:g} apart" if tied else f"ahead by {comparison.lead:g}"
    elif comparison.lead is not None and not tied:
        yield f"{comparison.lead:.0%} ahead in votes"
