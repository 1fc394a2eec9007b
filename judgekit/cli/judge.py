"""`judgekit judge`: documents in, verdicts out; through the engine where one can be had, else here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from judgekit import environment
from judgekit.cli.output import (
    AGAIN,
    FAMILY,
    REPLIES,
    Format,
    NoEngine,
    check_filled,
    emit,
    finite,
    keeps,
    say,
    say_messages,
    tell_sent,
    verdict_text,
    warn,
)
from judgekit.engine import client
from judgekit.errors import Exit, InputError
from judgekit.hooks.settings import engine_wanted
from judgekit.text import encodable, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from judgekit.judging.documents import Document, File

    Record: TypeAlias = Mapping[str, Any]
    OnVerdict: TypeAlias = Callable[[Record], None]

Mode: TypeAlias = Literal["strict", "lenient"]
RubricOption = Annotated[str | None, typer.Option("--rubric", help="Rubric: ID, ID@VERSION or a YAML file.")]
ModeOption = Annotated[
    Mode | None, typer.Option("--mode", help="strict avoids wrong acceptance, lenient wrong rejection.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Do not use cached replies.")]
ShowPrompt = Annotated[bool, typer.Option("--show-prompt", help="Print the prompts; send nothing.")]
_AuthorFamily = Annotated[
    str | None, typer.Option(metavar="FAMILY", help="Model family that wrote the text, such as anthropic.")
]
_SPENT = "Stop calling models for a document after spending this much (USD)."
_MaxCost = Annotated[float | None, typer.Option(min=0, callback=finite, metavar="USD", help=_SPENT)]

_SUMMED = ("verdict", "degraded", "task_id", "substitutes", "redacted")  # of a verdict: told at the end
_NAMED = 3  # files, where reasons differ


def judge(
    files: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders, or - for stdin.")],
    rubric: RubricOption = None,
    mode: ModeOption = None,
    task_id: Annotated[
        str | None, typer.Option(help="Judge all paths together as one document with this name.")
    ] = None,
    description: Annotated[str, typer.Option(help="Purpose of the content, shown to the models.")] = "",
    acceptance: Annotated[str, typer.Option(help="Acceptance criteria, shown to the models.")] = "",
    format_: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    jobs: Annotated[
        int, typer.Option("-j", min=1, max=256, help="Number of documents to judge at the same time.")
    ] = 8,
    deadline: Annotated[
        float | None,
        typer.Option(min=0.1, max=3600, callback=finite, help="Time limit for each document, in seconds."),
    ] = None,
    no_cache: NoCache = False,
    no_engine: NoEngine = False,
    max_cost: _MaxCost = None,
    author_family: _AuthorFamily = None,
    show_prompt: ShowPrompt = False,
) -> int:
    """Judge documents under a rubric. Exit code: 0 accepted, 1 rejected, 2 a human is needed."""
    from judgekit.judging import documents
    from judgekit.judging.documents import Task

    check_filled(*FAMILY, author_family)
    check_filled("--task-id", "a name for all paths together", task_id)
    limits = {"deadline": deadline, "max_cost_usd": max_cost}
    request = {"rubric": rubric, "mode": mode, "cache": not no_cache, **limits}
    project = environment.project_root(str(Path.cwd()))
    task, unreadable = Task(encodable(description), encodable(acceptance)), list[InputError]()
    contents = _files(files, unreadable)
    if task_id is None:
        subjects = (documents.document([file], task=task, family=author_family) for file in contents)
    else:
        parts = list(contents)
        if unreadable:
            raise InputError(f"task {task_id}: not judged, because a part of it cannot be read")
        subjects = (documents.document(each, task_id, task, author_family) for each in [parts])
    printer = VerdictPrinter(format_, cached=not no_cache)
    use = not no_engine and not show_prompt and engine_wanted()
    if show_prompt:
        _show(list(subjects), Path(project), request)
    elif task_id is None:
        _judge_documents(subjects, project, request, printer.add, jobs, use_engine=use)
        printer.end()
    else:
        record, notes = _judge_task(next(subjects), project, request, use_engine=use)
        printer.add(record)
        for note in notes:
            warn(note)
        printer.end()
    unread = unreadable[-1].exit_code if unreadable else Exit.ACCEPTED
    undecided = Exit.HUMAN_NEEDED if printer.words - {"accept"} else Exit.ACCEPTED
    return Exit.REJECTED if "reject" in printer.words else unread or undecided


def _files(paths: Sequence[str], unreadable: list[InputError]) -> Iterator[File]:
    """Read files as they are asked for; what cannot be read is said on stderr and added to `unreadable`."""
    from judgekit.judging import documents

    for path in documents.expand(paths):
        try:
            file = documents.read_file(path, sys.stdin.buffer)
        except InputError as error:
            warn(str(error))
            unreadable.append(error)
            continue
        if len(file.text) < file.total:
            warn(
                f"{file.path}: models see only {len(file.text):,} of {file.total:,} characters, so it "
                "can be rejected but not accepted; judge it in parts"
            )
        yield file


def _judge_documents(
    documents: Iterable[Document],
    project: str,
    request: Record,
    on_verdict: OnVerdict,
    at_once: int,
    *,
    use_engine: bool,
) -> None:
    """Judge documents as they come; `on_verdict` is told the record of each verdict, in their order.

    Raises `ConfigError` or `UsageError`; a model that fails is in the verdict.
    """

    def locally(rest: Iterable[Document], on_verdict: OnVerdict) -> None:
        from judgekit.judging.service import JudgeRequest, judge_each

        judge_each(
            rest,
            lambda verdict: on_verdict(verdict.record()),
            Path(project),
            JudgeRequest(**request),
            at_once=at_once,
        )

    if not use_engine:
        locally(documents, on_verdict)
        return
    from judgekit.engine import answers

    body = _body(project, request)
    answers.many("judge", documents, body, locally, on_verdict, at_once=at_once, warn=warn)


def _judge_task(
    document: Document, project: str, request: Record, *, use_engine: bool
) -> tuple[Record, list[str]]:
    """Judge a task, note it in the ledger, and return the verdict's record and lines for a person."""

    def read(response: client.Response) -> tuple[Record, list[str]]:
        from judgekit.engine import answers

        found = answers.value(response)
        return found["verdict"], found["notes"]

    def locally(reason: client.NoEngine) -> tuple[Record, list[str]]:
        from judgekit.gate import github, tasks
        from judgekit.judging.service import JudgeRequest

        reason.tell(warn)
        folder = Path(project)
        verdict, notes = tasks.judge(document, folder, JudgeRequest(**request))
        return verdict.record(), [*notes, *github.by_itself([verdict], folder)]

    return client.call("task", lambda: _body(project, request)(document), read, locally, use=use_engine)


def _body(project: str, request: Record) -> Callable[[Document], bytes]:
    """Return what writes the request for a document: what is the same for all of them is written once."""
    same = json.dumps({**client.carried(project), "wish": request})[:-1]

    def body(document: Document) -> bytes:
        return f'{same}, "document": {json.dumps(document.body())}}}'.encode()

    return body


class VerdictPrinter:
    """Prints verdicts in a format: as they come where it has no beginning and end, else all at the end."""

    def __init__(self, format_: Format, *, cached: bool = True) -> None:
        self.words: set[str] = set()
        self._format = format_
        self._replies = REPLIES if cached else "no reply was kept (--no-cache)"
        self._verdicts: list[Record] = []
        self._at_once = format_ in (Format.TABLE, Format.JSONL)
        # Where verdicts are printed on the same terminal they are progress enough.
        shown = self._at_once and sys.stdout is not None and sys.stdout.isatty()
        self._progress = sys.stderr is not None and sys.stderr.isatty() and not shown

    def add(self, verdict: Record) -> None:
        self.words.add(verdict["verdict"])
        self._verdicts.append({key: verdict.get(key) for key in _SUMMED} if self._at_once else verdict)
        if self._format is Format.TABLE:  # why nothing was determined is said once, at the end
            say(verdict_text(verdict, degraded=verdict["verdict"] != "undetermined"))
        elif self._format is Format.JSONL:
            emit(json.dumps(verdict, ensure_ascii=False, separators=(",", ":")))
        count = len(self._verdicts)
        done = "1 verdict is" if count == 1 else f"{count} verdicts are"
        keeps(f"{done} complete, {self._replies}; {AGAIN}")
        if self._progress:
            sys.stderr.write(f"\r{count} judged")
            sys.stderr.flush()

    def end(self) -> None:
        """Print what remains; say once why verdicts are undetermined, and how many secrets were left out."""
        if self._progress and self._verdicts:
            sys.stderr.write("\n")
        if not self._at_once:
            from judgekit.cli import formats

            emit(formats.render(self._format, self._verdicts))
        reasons: dict[str, list[str]] = {}
        for verdict in self._verdicts:
            if verdict["verdict"] == "undetermined" and verdict["degraded"]:
                name = verdict["task_id"].rpartition("@")[0] or verdict["task_id"]
                reasons.setdefault(verdict["degraded"], []).append(name)
        for reason, names in sorted(reasons.items()):
            which = f" ({escaped(', '.join(names[:_NAMED]))}{', …' if names[_NAMED:] else ''})"
            warn(f"undetermined: {reason}{which if len(reasons) > 1 else ''}")
        substitutes = (name for verdict in self._verdicts for name in verdict.get("substitutes") or ())
        tell_sent(substitutes, sum(verdict.get("redacted") or 0 for verdict in self._verdicts))


def _show(documents: Sequence[Document], project: Path, request: Record) -> None:
    from judgekit.judging.service import JudgeRequest, prompts

    for document in documents:
        for tier, model, rounds in prompts(document, project, JudgeRequest(**request)):
            for messages in rounds:
                say_messages(f"{document.task_id}: {tier} ({model})", messages)
