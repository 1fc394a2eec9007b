"""`judgekit judge`: documents in, verdicts out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from judgekit import paths
from judgekit.cli.output import Format, complain, emit, messages_text, say, verdict_text
from judgekit.errors import Exit, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.assess import Wish
    from judgekit.judging.subject import Document, File
    from judgekit.subject import Task
    from judgekit.verdict import Verdict

    Record: TypeAlias = Mapping[str, Any]


Mode: TypeAlias = Literal["strict", "lenient"]


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
        float | None, typer.Option(min=0.1, max=3600, help="Seconds for each document.")
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Ask models anew, whatever they replied before.")
    ] = False,
    no_engine: Annotated[
        bool, typer.Option("--no-engine", help="Judge in this process (it always is, for now).")
    ] = False,
    max_cost: Annotated[
        float | None, typer.Option(min=0, metavar="USD", help="Ask no more once a document has cost this.")
    ] = None,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print what would be sent; send nothing.")
    ] = False,
) -> int:
    """Judge documents under a rubric. Exit code: 0 accepted, 1 rejected, 2 a human is needed."""
    from judgekit.assess import Wish, judge_documents
    from judgekit.subject import Task

    del no_engine
    wish = Wish(rubric, mode, deadline, max_cost, cache=not no_cache)
    documents, bad = _documents(files, task_id, Task(description, acceptance))
    project = Path(paths.project_root(str(Path.cwd())))
    if show_prompt:
        return _show(documents, project, wish) or bad
    printer = {Format.TABLE: _print_table, Format.JSONL: _print_line}.get(format_)
    each = (lambda verdict: printer(verdict.record())) if printer else None
    if task_id is None:
        verdicts = judge_documents(documents, project, wish, at_once=jobs, on_verdict=each)
    else:
        verdicts = [_judge_task(documents[0], project, wish, each)]
    records = [each.record() for each in verdicts]
    _print_whole(format_, records)
    _report(records)
    return exit_code(records, bad)


def _judge_task(
    document: Document, project: Path, wish: Wish, hears: Callable[[Verdict], None] | None
) -> Verdict:
    from judgekit import tasks
    from judgekit.escalate import flow

    verdict, notes = tasks.judge(document, project, wish)
    if hears:
        hears(verdict)
    for note in (*notes, *flow.by_itself([verdict], flow.Place(project))):
        complain(note)
    return verdict


def exit_code(verdicts: Iterable[Record], bad: int = 0) -> int:
    """Return the worst of several: rejected, unreadable input, a human is needed, accepted."""
    words = {each["verdict"] for each in verdicts}
    if "reject" in words:
        return Exit.REJECTED
    return bad or (Exit.HUMAN_NEEDED if words - {"accept"} else Exit.ACCEPTED)


def _documents(files: Sequence[str], task_id: str | None, task: Task) -> tuple[list[Document], int]:
    """Return what can be judged; what cannot is said on stderr and counts in the exit code."""
    from judgekit import documents

    read: list[File] = []
    bad = 0
    for path in documents.expand(files):
        try:
            read.append(documents.read_file(path, sys.stdin.buffer))
        except InputError as error:
            complain(str(error))
            bad = int(error.exit_code)
        else:
            _say_if_cut(read[-1])
    if task_id is not None and bad:
        raise InputError(f"task {task_id}: not judged, since a part of it cannot be read")
    if task_id is not None:
        return [documents.document(read, task_id, task)], bad
    return [documents.document([file], task=task) for file in read], bad


def _say_if_cut(file: File) -> None:
    if len(file.text) < file.total:
        complain(
            f"{file.path}: models see {len(file.text):,} of its {file.total:,} characters, "
            "so it can be rejected but not accepted; judge it in parts"
        )


def _print_table(verdict: Record) -> None:
    say(verdict_text(verdict))


def _print_line(verdict: Record) -> None:
    from judgekit.cli import formats

    emit(formats.line(verdict))


def _print_whole(format_: Format, verdicts: Sequence[Record]) -> None:
    from judgekit.cli import formats

    if format_ not in (Format.TABLE, Format.JSONL):  # these were printed one by one
        emit(formats.render(format_, verdicts))


def _report(verdicts: Sequence[Record]) -> None:
    """Say once, on stderr, why verdicts are undetermined."""
    reasons = {
        each["degraded"] for each in verdicts if each["verdict"] == "undetermined" and each["degraded"]
    }
    for reason in sorted(reasons):
        complain(f"undetermined: {reason}")


def _show(documents: Sequence[Document], project: Path, wish: Wish) -> int:
    from judgekit.assess import prompts

    for document in documents:
        for tier, model, asked in prompts(document, project, wish):
            for messages in asked:
                say(messages_text(f"{document.task_id}: {tier} ({model})", messages))
    return Exit.ACCEPTED
