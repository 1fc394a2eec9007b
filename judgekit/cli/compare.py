"""`judgekit compare`: texts that answer one prompt in, which of them is better out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli import output
from judgekit.cli.output import ModeOption, NoCache, RubricOption, ShowPrompt, finite, warn
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import escaped, lines_of, rubric_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.judging.verdict import Comparison


def compare(
    files: Annotated[list[str], Argument(metavar="A B...", help="Files, or - for stdin.")],
    prompt: Annotated[str, Option(help="The prompt that the texts answer.")],
    rubric: RubricOption = None,
    mode: ModeOption = None,
    format_: Annotated[
        Literal["table", "json", "jsonl"], Option("--format", help="Output format.")
    ] = "table",
    deadline: Annotated[
        float | None, Option(min=0.1, max=3600, callback=finite, help="Time limit in seconds.")
    ] = None,
    no_cache: NoCache = False,
    author_family: Annotated[
        list[str] | None,
        Option(
            metavar="FAMILY",
            help="Model family that wrote the texts; give one for all, or one for each in order.",
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        Option(
            min=0, callback=finite, metavar="USD", help="Stop calling models after spending this much (USD)."
        ),
    ] = None,
    show_prompt: ShowPrompt = False,
) -> int:
    """Decide which text is better. Exit code: 0 a winner or a tie, 2 a human is needed."""
    from judgekit.judging import documents, service

    if not prompt.strip():
        raise UsageError("--prompt is empty; give the prompt that the texts answer")
    if files.count(documents.STDIN) > 1:
        raise UsageError("standard input (-) is given twice; give it once")
    output.check_filled(*output.FAMILY, *(author_family or ()))
    for file in files:
        if file and Path(file).is_dir():
            raise InputError(f"{file}: a folder; compare takes files")
    authors = service.authors(author_family or None, len(files))
    texts = tuple(documents.read_file(file, sys.stdin.buffer) for file in files)
    compared = documents.ComparisonInput(prompt, texts, authors)
    request = service.JudgeRequest(rubric, mode, deadline, max_cost, cache=not no_cache)
    project = Path(environment.project_root())
    if show_prompt:
        output.say_prompts("compare", service.comparison_prompts(compared, project, request))
        return Exit.ACCEPTED
    comparison = service.compare(compared, project, request)
    if format_ == "table":
        for line in _lines(comparison):
            output.say(line)
    else:
        output.emit(comparison.model_dump_json(by_alias=True, indent=2 if format_ == "json" else None))
    if not comparison.decided and comparison.degraded:
        warn(f"{comparison.verdict}: {comparison.degraded}")
    output.tell_sent(comparison.substitutes, comparison.redacted)
    return Exit.ACCEPTED if comparison.decided else Exit.HUMAN_NEEDED


def _lines(comparison: Comparison) -> Iterator[str]:
    names = {subject.letter: escaped(subject.path) for subject in comparison.subjects}
    winner = f"  {names[comparison.verdict]}" if comparison.verdict in names else ""
    yield f"{typer.style(comparison.verdict.ljust(12), bold=True)}{winner}"
    for subject in sorted(comparison.subjects, key=lambda each: (each.score is None, -(each.score or 0.0))):
        score = "" if subject.score is None else f"  {subject.score:g} up to {subject.tier}"
        wrote = "" if subject.family is None else f"  by {subject.family}"
        yield f"    {subject.letter}  {names[subject.letter]}{wrote}{score}"
    decided = "undecided"
    if comparison.decided and not comparison.rounds:
        decided = "no model was asked"
    elif comparison.judge_tier:
        decided = f"decided by {comparison.judge_tier} ({comparison.consensus}{_ahead(comparison)})"
    cost = output.cost_text(
        comparison.model_dump(include={"cost_usd", "cost_source", "cost_complete", "rounds"})
    )
    rounds = "1 round" if len(comparison.rounds) == 1 else f"{len(comparison.rounds)} rounds"
    ref = f"{comparison.rubric.id}@{comparison.rubric.version}"
    rubric = f"{rubric_name(ref, comparison.rubric.source)}, {comparison.mode}"
    yield f"    {rubric}; {rounds}; {decided}, {comparison.duration_ms / 1000:.1f} s{cost}"
    if comparison.independent is False:
        yield f"    {_partiality(comparison)}"
    if comparison.degraded:
        yield f"    degraded: {comparison.degraded}"
    yield from (f"    {line}" for line in lines_of(comparison.reasoning))


def _partiality(comparison: Comparison) -> str:
    """Say that only models of families that wrote the texts judged them, and which ones."""
    from judgekit.judging import documents

    judges = set(comparison.families)
    own = [each.letter for each in comparison.subjects if judges & set(documents.named(each.family))]
    some = "" if len(own) == len(comparison.subjects) else "; models favour texts of their own family"
    named = " and ".join(comparison.families)
    return f"not independent: judged only by models of {named}, which wrote {' and '.join(own)}{some}"


def _ahead(comparison: Comparison) -> str:
    """Say by how much the winner is ahead, or how far apart a tie is: in points where there are scores."""
    tied = comparison.verdict == "tie"
    if comparison.lead is None:
        return ""
    if any(subject.score is not None for subject in comparison.subjects):
        return f", the best two {comparison.lead:g} apart" if tied else f", ahead by {comparison.lead:g}"
    return "" if tied else f", {comparison.lead:.0%} ahead in votes"
