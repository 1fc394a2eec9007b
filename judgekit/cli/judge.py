"""`judgekit judge`: documents in, verdicts out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from judgekit import paths
from judgekit.cli import judging
from judgekit.cli.interruption import AGAIN, REPLIES, keeps
from judgekit.cli.output import (
    Format,
    check_family,
    check_filled,
    complain,
    emit,
    finite,
    messages_text,
    say,
    tell_redacted,
    tell_substitutes,
    verdict_text,
)
from judgekit.errors import Exit
from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from judgekit.judging.subject import Document

    Record: TypeAlias = Mapping[str, Any]


Mode: TypeAlias = Literal["strict", "lenient"]
_NAMED = 3  # files, where reasons differ


def judge(
    files: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders, or - for stdin.")],
    rubric: Annotated[str | None, typer.Option(help="ID, ID@VERSION or a YAML file.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="Which error is the costly one.")] = None,
    task_id: Annotated[str | None, typer.Option(help="Judge all paths as one subject of this name.")] = None,
    description: Annotated[str, typer.Option(help="What the content is for.")] = "",
    acceptance: Annotated[str, typer.Option(help="What the content must fulfil.")] = "",
    format_: Annotated[Format, typer.Option("--format", help="How to print verdicts.")] = Format.TABLE,
    jobs: Annotated[int, typer.Option("-j", min=1, max=256, help="Documents at a time.")] = 8,
    deadline: Annotated[
        float | None, typer.Option(min=0.1, max=3600, callback=finite, help="Seconds for each document.")
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Ask models anew, whatever they replied before.")
    ] = False,
    no_engine: Annotated[bool, typer.Option("--no-engine", help="Judge in this process.")] = False,
    max_cost: Annotated[
        float | None,
        typer.Option(
            min=0, callback=finite, metavar="USD", help="Ask no more once a document has cost this."
        ),
    ] = None,
    author_family: Annotated[
        str | None, typer.Option(metavar="FAMILY", help="Who trained the model that wrote it.")
    ] = None,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print what would be sent; send nothing.")
    ] = False,
) -> int:
    """Judge documents under a rubric. Exit code: 0 accepted, 1 rejected, 2 a human is needed."""
    from judgekit.subject import Task

    wish = {
        "rubric": rubric,
        "mode": mode,
        "deadline": deadline,
        "max_cost_usd": max_cost,
        "cache": not no_cache,
    }
    check_family(author_family)
    check_filled("--task-id", task_id, "a name for all paths together")
    documents, task = judging.Documents(files, author_family), Task(description, acceptance)
    project = paths.project_root(str(Path.cwd()))
    if show_prompt:
        found = list(documents.each(task)) if task_id is None else [documents.whole(task_id, task)]
        return _show(found, Path(project), wish) or documents.bad
    told = Told(format_, cached=not no_cache)
    if task_id is None:
        judging.judge(documents.each(task), project, wish, told.add, at_once=jobs, engine=not no_engine)
    else:
        _judge_task(documents.whole(task_id, task), project, wish, told.add, engine=not no_engine)
    told.end()
    return exit_code(told.words, documents.bad)


def _judge_task(
    document: Document, project: str, wish: Record, hears: Callable[[Record], None], *, engine: bool
) -> None:
    record, notes = judging.task(document, project, wish, engine=engine)
    hears(record)
    for note in notes:
        complain(note)


def exit_code(words: Collection[str], bad: int = 0) -> int:
    """Return the worst of several verdicts: rejected, unreadable input, a human is needed, accepted."""
    if "reject" in words:
        return Exit.REJECTED
    return bad or (Exit.HUMAN_NEEDED if set(words) - {"accept"} else Exit.ACCEPTED)


class Told:
    """Prints verdicts in a format: as they come where it has no beginning and end, else all at the end."""

    def __init__(self, format_: Format, *, cached: bool = True) -> None:
        self.words: set[str] = set()
        self._cached = cached
        self._format = format_
        self._count = 0
        self._kept: list[Record] = []
        self._why: dict[str, list[str]] = {}
        self._redacted = 0
        self._substitutes: set[str] = set()
        # Where verdicts are printed on the same terminal they are progress enough.
        shown = format_ in _AT_ONCE and sys.stdout is not None and sys.stdout.isatty()
        self._progress = sys.stderr is not None and sys.stderr.isatty() and not shown

    def add(self, verdict: Record) -> None:
        """Hear of one more verdict."""
        self.words.add(verdict["verdict"])
        if verdict["verdict"] == "undetermined" and verdict["degraded"]:
            name = verdict["task_id"].rpartition("@")[0] or verdict["task_id"]
            self._why.setdefault(verdict["degraded"], []).append(name)
        if self._format in _AT_ONCE:
            _AT_ONCE[self._format](verdict)
        else:
            self._kept.append(verdict)
        self._count += 1
        done = "1 verdict is" if self._count == 1 else f"{self._count} verdicts are"
        keeps(f"{done} complete, {REPLIES if self._cached else 'no reply was kept (--no-cache)'}; {AGAIN}")
        self._redacted += verdict.get("redacted", 0)
        self._substitutes.update(verdict.get("substitutes", ()))
        if self._progress:
            sys.stderr.write(f"\r{self._count} judged")
            sys.stderr.flush()

    def end(self) -> None:
        """Print what remains; say once why verdicts are undetermined, and how many secrets were left out."""
        if self._progress and self._count:
            sys.stderr.write("\n")
        if self._format not in _AT_ONCE:
            from judgekit.cli import formats

            emit(formats.render(self._format, self._kept))
        for reason, names in sorted(self._why.items()):
            which = f" ({escaped(', '.join(names[:_NAMED]))}{', …' if names[_NAMED:] else ''})"
            complain(f"undetermined: {reason}{which if len(self._why) > 1 else ''}")
        tell_redacted(self._redacted)
        tell_substitutes(self._substitutes)


def _print_table(verdict: Record) -> None:
    # Why nothing was determined is said once, at the end.
    say(verdict_text(verdict, degraded=verdict["verdict"] != "undetermined"))


def _print_line(verdict: Record) -> None:
    from judgekit.cli import formats

    emit(formats.line(verdict))


_AT_ONCE = {Format.TABLE: _print_table, Format.JSONL: _print_line}


def _show(documents: Sequence[Document], project: Path, wish: Record) -> int:
    from judgekit.assess import Wish, prompts

    for document in documents:
        for tier, model, asked in prompts(document, project, Wish(**wish)):
            for messages in asked:
                say(messages_text(f"{document.task_id}: {tier} ({model})", messages))
    return Exit.ACCEPTED
