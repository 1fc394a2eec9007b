"""`judgekit judge`: a verdict on each document, by the engine or here; `compare`: finds the better text."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, Unpack

from typer import Argument, Option

from judgekit import environment
from judgekit.cli import formats, options, output, output_files, progress, row_options, rows
from judgekit.cli.output import note, warn
from judgekit.cli.row_printing import Printing
from judgekit.config import AnyDepth
from judgekit.data.sources import SOURCES
from judgekit.engine import answers, client
from judgekit.errors import Exit, InputError, UsageError
from judgekit.hooks.settings import is_engine_wanted
from judgekit.judging import documents
from judgekit.judging.wordless import Deciders
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from judgekit.judging.documents import ComparisonInput, Document, File, TaskDescription
    from judgekit.judging.request import JudgeArgs
    from judgekit.judging.verdict import Comparison, Verdict

    Record: TypeAlias = Mapping[str, Any]
    OnVerdict: TypeAlias = Callable[[Document, Record], object]

_FILES_ARGUMENT = Argument(metavar="A B...", help="Files, or - for stdin; or give --data.")
_PATHS_ARGUMENT = Argument(
    metavar="PATH...", help="Files, folders, or - for stdin; or give --data."
)
_ROW_TEXT_ENDINGS = tuple(source.endings[0] for source in SOURCES if source.is_text)
_AUTHOR_FAMILY_OPTION = Option(
    metavar="FAMILY", help="Model family that wrote the text, such as anthropic."
)
_DEFAULT_EXIT_ON = (row_options.ExitOn.IMPROVE, row_options.ExitOn.UNDETERMINED)  # for documents
_Depth = Annotated[AnyDepth | None, Option(help="Models to ask; auto chooses by path and size.")]
_Explain = Annotated[
    bool,
    Option(
        "--explain",
        help="Say why judging ended; have a model that writes give reasons for what one decided.",
    ),
]
_Review = Annotated[
    Literal["peers"] | None, Option(help="Have models of other families check each finding.")
]


def judge(
    files: Annotated[list[str] | None, _PATHS_ARGUMENT] = None,
    rubric: options.RubricsOption = None,
    mode: options.ModeOption = None,
    model: options.ModelsOption = None,
    task_id: Annotated[
        str | None, Option(help="Judge all paths as one document of this name.")
    ] = None,
    description: Annotated[str, Option(help="Purpose of the content, shown to the models.")] = "",
    acceptance: Annotated[str, Option(help="Acceptance criteria, shown to the models.")] = "",
    reference: Annotated[str, Option(help="The answer that you expect, shown to the models.")] = "",
    format_: formats.RowsFormatOption = None,
    also: formats.AlsoOption = None,
    worst: formats.WorstOption = None,
    jobs: row_options.Jobs = None,
    deadline: options.Deadline = None,
    no_cache: options.NoCache = False,
    no_engine: options.NoEngine = False,
    max_cost: options.MaxCost = None,
    author_family: Annotated[str | None, _AUTHOR_FAMILY_OPTION] = None,
    show_prompt: options.ShowPrompt = False,
    estimate: options.Estimate = False,
    depth: _Depth = None,
    review: _Review = None,
    explain: _Explain = False,
    exit_on: row_options.ExitOnOption = None,
    data: row_options.Data = None,
    map_: row_options.Map = None,
    id_: row_options.Id = None,
    template: row_options.Template = None,
    drop_thinking: row_options.DropThinking = False,
    encoding: row_options.Encoding = None,
    delimiter: row_options.Delimiter = None,
    out: row_options.Out = None,
    run: row_options.Run = None,
    combine: row_options.Combine = "all",
    fresh: row_options.Fresh = False,
    full: row_options.Full = False,
    limit: row_options.Limit = None,
    judge_turn: row_options.JudgeTurn = "last",
    batch: row_options.Batch = False,
    batch_fallback: row_options.BatchFallback = "live",
    on: row_options.On = None,
    ray_address: row_options.RayAddress = None,
    trust_results: row_options.TrustResults = False,
    agree: row_options.Agree = None,
    agree_on: row_options.AgreeOn = "verdict",
    always_confirm: row_options.AlwaysConfirm = None,
    noise: row_options.Noise = 0,
    until: row_options.Until = None,
) -> int:
    """Judge documents or rows. Exit code: 0 accepted, 1 rejected, 2 a human is needed; of rows 0 or 2."""
    options.check_filled(*options.AUTHOR_FAMILY_FLAG, author_family)
    options.check_filled("--task-id", "a name for all paths together", task_id)
    if depth and review:
        raise UsageError("--depth and --review cannot be combined; --review peers is --depth peers")

    request = _collect_request_fields(
        rubric=rubric[0] if rubric else None,
        mode=mode,
        model=model[0] if model else None,
        deadline=deadline,
        max_cost_usd=max_cost,
        cache=not no_cache,
        depth=depth or review,
        explain=explain,
    )

    task = documents.TaskDescription(*map(replace_surrogates, (description, acceptance, reference)))
    use_engine = not no_engine and is_engine_wanted()

    dataset = row_options.DataOptions(
        data=data,
        map=map_,
        id=id_,
        template=template,
        drop_thinking=drop_thinking,
        encoding=encoding,
        delimiter=delimiter,
        out=out,
        fresh=fresh,
        full=full,
        limit=limit,
        judge_turn=judge_turn,
        batch=batch,
        batch_fallback=batch_fallback,
        on=on,
        ray_address=ray_address,
        trust_results=trust_results,
        agree=agree,
        agree_on=agree_on,
        always_confirm=always_confirm,
        noise=noise,
        until=until,
        run=run,
    )
    # Several models or rubrics are judged as variants.
    variants = _build_variants(request, rubric or [], model or [], dataset)
    if variants and estimate:
        raise UsageError("--estimate is for one model and one rubric; estimate each by itself")
    if variants and show_prompt:
        raise UsageError("--show-prompt is for one model and one rubric; show each by itself")

    # Judge rows.
    if not files or dataset.has_row_options:
        dataset.check(files, task_id)
        if until and exit_on:
            problem = "the exit code is the answer; leave --exit-on out"
            raise UsageError(f"--until and --exit-on do not go together: {problem}")

        if agree is not None:
            from judgekit.data.promised import refuse_options_with

            choices = {"--model": model, "--depth": depth, "--review": review, "--explain": explain}
            refuse_options_with("--agree", choices)

        run_options = rows.RunOptions(
            jobs=jobs or row_options.ROW_JOBS,
            uses_engine=use_engine,
            shows_prompt=show_prompt,
            is_estimate=estimate,
            exit_on=exit_on or row_options.DEFAULT_EXIT_ON,
            printing=Printing(format_, formats.read_also(also), worst),
            variants=variants,
            combination=combine,
        )

        families = [author_family] if author_family else []
        return rows.judge_rows("judge", dataset, task, request, families, run_options)

    # Judge files.
    if worst is not None:
        raise UsageError("--worst is for rows; name their file with --data")

    file_options = _FileOptions(
        request=request,
        task=task,
        task_id=task_id,
        author_family=author_family,
        jobs=jobs or row_options.DEFAULT_JOBS,
        uses_engine=use_engine,
        shows_prompt=show_prompt,
        is_estimate=estimate,
        explains=explain,
        format=format_,
        also_files=formats.read_also(also),
        exit_on=exit_on or _DEFAULT_EXIT_ON,
    )

    if out:
        output_files.write_results_to(Path(out))
    return _judge_files(files, file_options)


class _FileOptions(NamedTuple):
    """How files are judged or only shown, and how their verdicts are printed."""

    request: Record
    task: TaskDescription
    task_id: str | None
    author_family: str | None
    jobs: int
    uses_engine: bool
    shows_prompt: bool
    is_estimate: bool
    explains: bool
    format: str | None
    also_files: Sequence[formats.AlsoFile]
    exit_on: Collection[row_options.ExitOn]


def _judge_files(paths: Sequence[str], file_options: _FileOptions) -> int:
    """Judge files, or only print the prompts or an estimate. Returns the exit code."""
    request = file_options.request
    unreadable: list[InputError] = []
    subjects = _read_documents(paths, unreadable, file_options)  # adds to `unreadable` as it reads
    outcomes: set[str] = set()
    if file_options.shows_prompt:
        # Read all files first, so that warnings about them come before the prompts.
        _print_prompts(list(subjects), request)
    elif file_options.is_estimate:
        _print_estimate(subjects, request, file_options.jobs, file_options.format)
    else:
        verdicts = _judge_documents(subjects, file_options)
        _print_notes(verdicts, explains=file_options.explains)
        outcomes = {verdict["verdict"] for verdict in verdicts}

    code = row_options.choose_exit_code(outcomes, file_options.exit_on)
    is_rejected = code == Exit.REJECTED  # takes precedence over unreadable files
    if unreadable and not is_rejected:
        return unreadable[-1].exit_code
    return code


def _build_variants(
    request: Record,
    rubrics: Sequence[str],
    models: Sequence[str],
    dataset: row_options.DataOptions,
) -> dict[str, Record]:
    """Map each rubric, or each model, to its own request; {} unless there are several of one of them.

    Raises `UsageError` if there are several of both, or if a name is repeated.
    """
    varies_rubric = len(rubrics) > 1
    varies_model = len(models) > 1
    if varies_rubric and varies_model:
        raise UsageError("--rubric and --model are both given twice; vary one of the two")

    if varies_rubric:
        return _vary_field("rubric", rubrics, request, dataset)
    if varies_model:
        return _vary_field("model", models, request, dataset)
    return {}


def _vary_field(
    field: str, values: Sequence[str], request: Record, dataset: row_options.DataOptions
) -> dict[str, Record]:
    """Map each value of a field to a request that has this value.

    Raises `UsageError` if a value is given twice.
    """
    dataset.check_variants(f"--{field}")
    has_duplicates = len(set(values)) < len(values)
    if has_duplicates:
        raise UsageError(f"--{field}: the same value is given twice; give it once")
    # A command line can contain bytes that aren't UTF-8; a request must be valid UTF-8.
    return {value: {**request, field: replace_surrogates(value)} for value in values}


def _collect_request_fields(**arguments: Unpack[JudgeArgs]) -> dict[str, Any]:
    """Collect the fields for a `JudgeRequest`, except those that are None."""
    # A dict is enough here, and doesn't need pydantic, which is slow to import.
    fields: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    if "model" in fields:
        # A command line can contain bytes that aren't UTF-8; a request must be valid UTF-8.
        fields["model"] = replace_surrogates(fields["model"])
    return fields


def _read_documents(
    paths: Sequence[str], unreadable: list[InputError], file_options: _FileOptions
) -> Iterator[Document]:
    """Yield each file as a document once it's read. With a task id, yield all files as one document.

    Unreadable files are reported and added to `unreadable`. With a task id, they raise `InputError`.
    """
    instruction = file_options.task  # what the text is for, in the user's words
    task_id = file_options.task_id
    family = file_options.author_family
    files = _read_files(paths, unreadable)
    if task_id is None:
        for file in files:
            yield documents.build_document([file], task=instruction, family=family)
        return

    task_files = list(files)
    if unreadable:
        raise InputError(f"task {task_id}: not judged, because a part of it cannot be read")
    yield documents.build_document(task_files, task_id, instruction, family)


def _read_files(paths: Sequence[str], unreadable: list[InputError]) -> Iterator[File]:
    """Yield each file once it's read. Unreadable ones are reported and added to `unreadable`."""
    for path in documents.expand(paths):
        is_named = path in paths  # itself, and not only its folder
        if is_named and path.endswith(_ROW_TEXT_ENDINGS):
            note(f"{path}: judged as one document; --data judges each of its rows")
        try:
            file = documents.read_file(path, sys.stdin.buffer)
        except InputError as error:
            warn(str(error))
            unreadable.append(error)
            continue
        _warn_if_cut(file)
        yield file


def _warn_if_cut(file: File) -> None:
    """Warn if a file is so long that it's judged only by the part that models see."""
    is_cut = len(file.text) < file.total_chars
    if is_cut:
        seen_part = f"models see only {len(file.text):,} of {file.total_chars:,} characters"
        effect = "so it can be rejected but not accepted; judge it in parts"
        warn(f"{file.path}: {seen_part}, {effect}")


def _print_prompts(subjects: Iterable[Document], request: Record) -> None:
    """Print the prompts for each document without sending them."""
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.service import build_prompts

    project = Path(environment.find_project_root())
    for document in subjects:
        prompts_by_model = build_prompts(document, project, JudgeRequest(**request))
        output.say_prompts(document.task_id, prompts_by_model)


def _print_estimate(
    subjects: Iterable[Document | ComparisonInput],
    request: Record,
    jobs: int,
    format_: str | None,
) -> None:
    """Print the calls, tokens, cost and time that judging would take."""
    from judgekit.cli.estimating import print_estimate
    from judgekit.data.estimate import estimate_run
    from judgekit.judging.request import JudgeRequest

    project = Path(environment.find_project_root())
    estimate = estimate_run(subjects, project, JudgeRequest(**request), jobs)
    print_estimate(estimate, format_)


def _judge_documents(subjects: Iterable[Document], file_options: _FileOptions) -> list[Record]:
    """Judge documents as they're read, by the engine or here. Prints and returns the verdict records.

    With a task id, the only document is judged as a task and recorded in the ledger.
    """
    verdicts: list[Record] = []
    format_ = file_options.format or "table"
    is_streamed = formats.FORMATS[format_].is_streamed

    def on_verdict(_: Document, verdict: Record) -> None:
        verdicts.append(verdict)
        if is_streamed:
            formats.print_verdicts(format_, [verdict])
        else:
            progress.show(f"{len(verdicts)} judged")

    if file_options.task_id is not None:
        (task,) = subjects
        _judge_task(task, file_options, on_verdict)
    elif file_options.uses_engine:
        _judge_by_engine(subjects, file_options, on_verdict)
    else:
        _judge_here(subjects, file_options, on_verdict)

    if not is_streamed:
        progress.clear()
        formats.print_verdicts(format_, verdicts)
    extra_files = file_options.also_files  # besides stdout
    formats.write_also(extra_files, lambda renderer: renderer.render_verdicts(verdicts))
    return verdicts


def _judge_task(document: Document, file_options: _FileOptions, on_verdict: OnVerdict) -> None:
    """Judge a document as a task, record the verdict in the ledger, and pass it to `on_verdict`."""
    request = file_options.request
    project = environment.find_project_root()
    # Without the engine, the last function judges here. It gets the reason, but doesn't need it.
    record, notes = client.call(
        "task",
        lambda: _write_body(document, request, project),
        _read_task_reply,
        lambda _: _judge_task_here(document, request),
        use=file_options.uses_engine,
        warn=note,
    )
    on_verdict(document, record)
    note(*notes)


def _read_task_reply(response: client.Response) -> tuple[Record, list[str]]:
    """Read the verdict and the notes in the engine's response."""
    reply = answers.read_value(response)
    return reply["verdict"], reply["notes"]


def _judge_task_here(document: Document, request: Record) -> tuple[Record, list[str]]:
    """Judge a task in this process, and notify people or open an issue if configured.

    Returns the verdict's record and notes.
    """
    from judgekit.gate import github, tasks
    from judgekit.judging.request import JudgeRequest

    project = Path(environment.find_project_root())
    verdict, notes = tasks.judge_task(document, project, JudgeRequest(**request))
    record = verdict.record()
    problems = github.notify_and_open_issues([verdict], project)
    return record, [*notes, *problems]


def _judge_by_engine(
    subjects: Iterable[Document], file_options: _FileOptions, on_verdict: OnVerdict
) -> None:
    """Judge documents by the engine. If it's missing or stops, judge what's left in this process."""
    project = environment.find_project_root()

    def write_body(document: Document) -> bytes:
        return _write_body(document, file_options.request, project)

    def judge_rest(rest: Iterable[Document], on_verdict: OnVerdict) -> None:
        _judge_here(rest, file_options, on_verdict)

    answers.run_many(
        "judge",
        subjects,
        write_body,
        judge_rest,
        on_verdict,
        max_threads=file_options.jobs,
        warn=note,
    )


def _judge_here(
    subjects: Iterable[Document], file_options: _FileOptions, on_verdict: OnVerdict
) -> None:
    """Judge documents in this process, without the engine."""
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.service import ajudge_documents
    from judgekit.providers import running

    def pass_record(document: Document, verdict: Verdict) -> None:
        on_verdict(document, verdict.record())

    project = Path(environment.find_project_root())
    request = JudgeRequest(**file_options.request)
    judging = ajudge_documents(subjects, project, request, pass_record, file_options.jobs)
    running.run(judging)


def _write_body(document: Document, request: Record, project: str) -> bytes:
    """Write the body of a call to the engine, as JSON."""
    fields = {"wish": request, "document": document.build_body()}
    return json.dumps({**client.build_caller_fields(project), **fields}).encode()


def _print_notes(verdicts: Sequence[Record], *, explains: bool) -> None:
    """Print notes on undetermined verdicts, on where texts were sent, and on the models that decided.

    With `explains`, also print the reason for each verdict.
    """
    _warn_undetermined(verdicts)
    substitutes: list[str] = []  # providers asked in place of the author's own model family
    redacted_count = 0  # secrets that were removed before sending
    deciders = Deciders()
    for verdict in verdicts:
        substitutes += verdict.get("substitutes") or ()
        redacted_count += verdict.get("redacted") or 0
        deciders.add(verdict)

    output.note_sent(substitutes, redacted_count)
    note(*deciders.write_notes("judge"))
    if explains:
        _note_reasons(verdicts)


def _warn_undetermined(verdicts: Sequence[Record]) -> None:
    """Print each reason why verdicts are undetermined, once."""
    reasons = {verdict["degraded"] for verdict in verdicts if verdict["verdict"] == "undetermined"}
    for reason in sorted(reasons - {None}):
        warn(f"undetermined: {reason}")


def _note_reasons(verdicts: Iterable[Record]) -> None:
    """Print for each verdict which rule of escalation ended the judging."""
    for verdict in verdicts:
        if verdict.get("because"):
            note(f"{verdict['task_id']}: {verdict['verdict']}, because: {verdict['because']}")


def compare(
    files: Annotated[list[str] | None, _FILES_ARGUMENT] = None,
    prompt: Annotated[str | None, Option(help="The prompt that the texts answer.")] = None,
    rubric: options.RubricOption = None,
    mode: options.ModeOption = None,
    model: options.ModelOption = None,
    format_: formats.RowsFormatOption = None,
    also: formats.AlsoOption = None,
    deadline: options.Deadline = None,
    no_cache: options.NoCache = False,
    author_family: Annotated[
        list[str] | None,
        Option(
            metavar="FAMILY",
            help="Model family that wrote the texts; one for all, or one for each.",
        ),
    ] = None,
    max_cost: options.MaxCost = None,
    show_prompt: options.ShowPrompt = False,
    estimate: options.Estimate = False,
    no_engine: options.NoEngine = False,
    jobs: row_options.Jobs = None,
    data: row_options.PairedData = None,
    map_: row_options.Map = None,
    id_: row_options.Id = None,
    template: row_options.Template = None,
    drop_thinking: row_options.DropThinking = False,
    encoding: row_options.Encoding = None,
    delimiter: row_options.Delimiter = None,
    out: row_options.Out = None,
    fresh: row_options.Fresh = False,
    full: row_options.Full = False,
    limit: row_options.Limit = None,
    batch: row_options.Batch = False,
    batch_fallback: row_options.BatchFallback = "live",
    on: row_options.On = None,
    ray_address: row_options.RayAddress = None,
    trust_results: row_options.TrustResults = False,
    until: row_options.Until = None,
) -> int:
    """Decide which text is better. Exit code: 0 a winner or a tie, 2 a human is needed."""
    request = _collect_request_fields(
        rubric=rubric,
        mode=mode,
        model=model,
        deadline=deadline,
        max_cost_usd=max_cost,
        cache=not no_cache,
    )

    # Compare the pairs in rows.
    dataset = row_options.DataOptions.of_pairs(
        data,
        map=map_,
        id=id_,
        template=template,
        drop_thinking=drop_thinking,
        encoding=encoding,
        delimiter=delimiter,
        out=out,
        fresh=fresh,
        full=full,
        limit=limit,
        batch=batch,
        batch_fallback=batch_fallback,
        on=on,
        ray_address=ray_address,
        trust_results=trust_results,
        until=until,
    )

    if not files or dataset.has_row_options:
        dataset.check(files)
        run = rows.RunOptions(
            jobs=jobs or row_options.ROW_JOBS,
            uses_engine=not no_engine and is_engine_wanted(),
            shows_prompt=show_prompt,
            is_estimate=estimate,
            printing=Printing(format_, formats.read_also(also)),
        )

        task = documents.TaskDescription(replace_surrogates(prompt or ""))
        return rows.judge_rows("compare", dataset, task, request, author_family or [], run)

    # Compare the texts in files.
    if also or format_ not in (None, *formats.COMPARISON_FORMATS):
        known = ", ".join(formats.COMPARISON_FORMATS)
        raise UsageError(f"--format of two texts is one of {known}; rows (--data) have all formats")

    if out:
        output_files.write_results_to(Path(out))

    compared = _read_texts_to_compare(files, prompt or "", author_family or [])
    if estimate and not show_prompt:
        _print_estimate([compared], request, row_options.DEFAULT_JOBS, format_)
        return Exit.ACCEPTED
    return _compare_texts(compared, request, format_ or "table", show_prompt=show_prompt)


def _read_texts_to_compare(
    files: Sequence[str], prompt: str, author_families: Sequence[str]
) -> ComparisonInput:
    """Read the files to compare. Raises `InputError` if one is a folder or can't be read.

    Raises `UsageError` without a prompt, or if stdin is given twice, or for wrong author families.
    """
    from judgekit.judging import service

    if not prompt.strip():
        raise UsageError("--prompt is missing or empty; give the prompt that the texts answer")
    if files.count(documents.STDIN) > 1:
        raise UsageError("standard input (-) is given twice; give it once")
    # A family may be empty if a script's variable is unset.
    option, expected_value = options.AUTHOR_FAMILY_FLAG
    options.check_filled(option, expected_value, *author_families)
    _refuse_folders(files)

    # There must be one family for all files, or one for each.
    authors = service.list_authors(author_families or None, len(files))
    texts = tuple(documents.read_file(file, sys.stdin.buffer) for file in files)
    return documents.ComparisonInput(prompt, texts, authors)


def _refuse_folders(files: Sequence[str]) -> None:
    """Raise `InputError` if one of the files is a folder."""
    for file in files:
        is_empty = file == ""  # would be taken for the current folder; reading it fails later
        if not is_empty and documents.is_folder(file):
            raise InputError(f"{file}: a folder; compare takes files")


def _compare_texts(
    compared: ComparisonInput, request: Record, format_: str, *, show_prompt: bool
) -> int:
    """Compare texts, or only print the prompts. Returns the exit code."""
    from judgekit.judging import service
    from judgekit.judging.request import JudgeRequest
    from judgekit.providers import running

    project = Path(environment.find_project_root())
    judge_request = JudgeRequest(**request)
    if show_prompt:
        output.say_prompts("compare", service.build_prompts(compared, project, judge_request))
        return Exit.ACCEPTED
    comparison = running.run(service.acompare(compared, project, judge_request))
    return _print_comparison(comparison, format_)


def _print_comparison(comparison: Comparison, format_: str) -> int:
    """Print a comparison, and notes about the texts that were sent and the models. Returns the exit code."""
    formats.print_comparison(format_, comparison)
    is_open = not comparison.decided
    if is_open and comparison.degraded:
        warn(f"{comparison.verdict}: {comparison.degraded}")
    output.note_sent(comparison.substitutes, comparison.redacted)
    _note_deciders(comparison)
    return Exit.HUMAN_NEEDED if is_open else Exit.ACCEPTED


def _note_deciders(comparison: Comparison) -> None:
    """Print what to know about decision models, such as that they gave no reasons."""
    deciders = Deciders()
    deciders.add(comparison.model_dump())
    note(*deciders.write_notes("compare"))
