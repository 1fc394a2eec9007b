"""`judgekit judge`: documents in, verdicts out; through the engine where one can be had, else here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from judgekit import environment
from judgekit.cli.interruption import AGAIN, REPLIES, keeps
from judgekit.cli.output import (
    Format,
    check_family,
    check_filled,
    emit,
    finite,
    messages_text,
    say,
    tell_redacted,
    tell_substitutes,
    verdict_text,
    warn,
)
from judgekit.engine import client
from judgekit.errors import Exit, InputError
from judgekit.hooks import session
from judgekit.text import encodable, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from judgekit.judging.subject import Document, File, Task

    RecordLine: TypeAlias = Mapping[str, Any]
    OnVerdict: TypeAlias = Callable[[RecordLine], None]
    from collections.abc import Callable, Collection, Mapping

    Record: TypeAlias = Mapping[str, Any]


class Documents:
    """The files that can be judged, read as they are asked for.

    What cannot be is said on stderr, and `bad` is then the exit code that it counts as. `family` names the
    models that wrote them.
    """

    def __init__(self, paths: Sequence[str], family: str | None = None) -> None:
        self._paths, self._family = paths, family
        self.bad = 0

    def files(self) -> Iterator[File]:
        """Yield each file."""
        from judgekit.judging import documents

        for path in documents.expand(self._paths):
            try:
                file = documents.read_file(path, sys.stdin.buffer)
            except InputError as error:
                warn(str(error))
                self.bad = int(error.exit_code)
            else:
                _say_if_cut(file)
                yield file

    def each(self, task: Task) -> Iterator[Document]:
        """Yield each file as a document of its own."""
        from judgekit.judging import documents

        return (documents.document([file], task=task, family=self._family) for file in self.files())

    def whole(self, task_id: str, task: Task) -> Document:
        """Return all files as one document; raises `InputError` when one of them cannot be read."""
        from judgekit.judging import documents

        files = list(self.files())
        if self.bad:
            raise InputError(f"task {task_id}: not judged, since a part of it cannot be read")
        return documents.document(files, task_id, task, self._family)


def judge_documents(
    documents: Iterable[Document],
    project: str,
    judge_request: RecordLine,
    on_verdict: OnVerdict,
    *,
    at_once: int,
    engine: bool,
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
            JudgeRequest(**judge_request),
            at_once=at_once,
        )

    if not (engine and session.wanted()):
        locally(documents, on_verdict)
        return
    from judgekit.engine import answers

    body = _body(project, judge_request)
    answers.many("judge", documents, body, locally, on_verdict, at_once=at_once, warn=warn)


def task(
    document: Document, project: str, judge_request: RecordLine, *, engine: bool
) -> tuple[RecordLine, list[str]]:
    """Judge a task, note it in the ledger, and return the verdict's record and lines for a person.

    Raises as `judge` does.
    """

    def read(response: client.Response) -> tuple[RecordLine, list[str]]:
        from judgekit.engine import answers

        found = answers.value(response)
        return found["verdict"], found["notes"]

    def locally(reason: client.NoEngine) -> tuple[RecordLine, list[str]]:
        from judgekit.gate import github, tasks
        from judgekit.judging.service import JudgeRequest

        reason.tell(warn)
        folder = Path(project)
        verdict, notes = tasks.judge(document, folder, JudgeRequest(**judge_request))
        return verdict.record(), [*notes, *github.by_itself([verdict], github.IssueTarget(folder))]

    def body() -> bytes:
        return _body(project, judge_request)(document)

    return client.call("task", body, read, locally, use=engine and session.wanted())


def _body(project: str, judge_request: RecordLine) -> Callable[[Document], bytes]:
    """Return what writes the request for a document: what is the same for all of them is written once."""
    same = json.dumps({**client.carried(project), "wish": judge_request})[:-1]

    def body(document: Document) -> bytes:
        return f'{same}, "document": {json.dumps(document.body())}}}'.encode()

    return body


def _say_if_cut(file: File) -> None:
    if len(file.text) < file.total:
        warn(
            f"{file.path}: models see {len(file.text):,} of its {file.total:,} characters, "
            "so it can be rejected but not accepted; judge it in parts"
        )


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
    from judgekit.judging.subject import Task

    judge_request = {
        "rubric": rubric,
        "mode": mode,
        "deadline": deadline,
        "max_cost_usd": max_cost,
        "cache": not no_cache,
    }
    check_family(author_family)
    check_filled("--task-id", task_id, "a name for all paths together")
    documents, task = Documents(files, author_family), Task(encodable(description), encodable(acceptance))
    project = environment.project_root(str(Path.cwd()))
    if show_prompt:
        found = list(documents.each(task)) if task_id is None else [documents.whole(task_id, task)]
        return _show(found, Path(project), judge_request) or documents.bad
    verdict_printer = VerdictPrinter(format_, cached=not no_cache)
    if task_id is None:
        judge_documents(
            documents.each(task),
            project,
            judge_request,
            verdict_printer.add,
            at_once=jobs,
            engine=not no_engine,
        )
    else:
        _judge_task(
            documents.whole(task_id, task), project, judge_request, verdict_printer.add, engine=not no_engine
        )
    verdict_printer.end()
    return exit_code(verdict_printer.words, documents.bad)


def _judge_task(
    document: Document,
    project: str,
    judge_request: Record,
    on_verdict: Callable[[Record], None],
    *,
    engine: bool,
) -> None:
    record, notes = task(document, project, judge_request, engine=engine)
    on_verdict(record)
    for note in notes:
        warn(note)


def exit_code(words: Collection[str], bad: int = 0) -> int:
    """Return the worst of several verdicts: rejected, unreadable input, a human is needed, accepted."""
    if "reject" in words:
        return Exit.REJECTED
    return bad or (Exit.HUMAN_NEEDED if set(words) - {"accept"} else Exit.ACCEPTED)


class VerdictPrinter:
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
            warn(f"undetermined: {reason}{which if len(self._why) > 1 else ''}")
        tell_redacted(self._redacted)
        tell_substitutes(self._substitutes)


def _print_table(verdict: Record) -> None:
    # Why nothing was determined is said once, at the end.
    say(verdict_text(verdict, degraded=verdict["verdict"] != "undetermined"))


def _print_line(verdict: Record) -> None:
    from judgekit.cli import formats

    emit(formats.line(verdict))


_AT_ONCE = {Format.TABLE: _print_table, Format.JSONL: _print_line}


def _show(documents: Sequence[Document], project: Path, judge_request: Record) -> int:
    from judgekit.judging.service import JudgeRequest, prompts

    for document in documents:
        for tier, model, asked in prompts(document, project, JudgeRequest(**judge_request)):
            for messages in asked:
                say(messages_text(f"{document.task_id}: {tier} ({model})", messages))
    return Exit.ACCEPTED
