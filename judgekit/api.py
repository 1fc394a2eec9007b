"""The typed Python API: judging, comparing, searching and the hook, as on the command line.

What asks models has an async twin, which does the work.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import os
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack

from pydantic import ValidationError

from judgekit import environment
from judgekit.config import EXPECTED_BY_ARGUMENT, check_arguments, require, settings
from judgekit.config.yamlfile import explain_first_error
from judgekit.data.dataset import RowOptions
from judgekit.data.judged_rows import JudgedRow, JudgedRows
from judgekit.data.promised import AgreementOptions, judge_under_promise, refuse_options_with
from judgekit.data.runners import judge_in_process
from judgekit.errors import InputError, UsageError
from judgekit.hooks import claude_code
from judgekit.judging import documents, service
from judgekit.judging.documents import (
    LETTERS,
    ComparisonInput,
    Document,
    TaskDescription,
    make_file,
)
from judgekit.judging.notebook import Verdicts
from judgekit.judging.request import JudgeArgs, JudgeRequest
from judgekit.judging.service import DEFAULT_CONCURRENCY
from judgekit.providers.running import run, run_in_thread
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric
from judgekit.text import is_blank, replace_surrogates

if TYPE_CHECKING:
    from judgekit.judging.verdict import Comparison
    from judgekit.rubric.loader import LoadedRubric

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Text:
    """A text to judge, with optional details. Models aren't shown omitted ones.

    `reference` is the answer that a person expects; only a rubric with a heading for it shows it. `sources`
    are what the text may rest on, in order or by name. `author_family` names the maker of the models that
    wrote it.
    """

    text: str
    description: str = ""
    acceptance: str = ""
    reference: str = ""
    sources: Sequence[str] | Mapping[str, str] = ()
    author_family: str | None = None


def _list_options_in_signature(call: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Replace `**options` in a signature with the individual options, so that `help` lists them."""
    signature = inspect.signature(call)
    parameters = list(signature.parameters.values())
    parameters.pop()  # the last parameter is `**options`
    for name, field in JudgeRequest.model_fields.items():
        parameters.append(_build_parameter(name, field.default))

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def _build_parameter(name: str, default: object) -> inspect.Parameter:
    """Build an option's parameter, with its annotation from `JudgeArgs`."""
    # In the module of `JudgeArgs`, annotations are strings. A `TypedDict` wraps each in a `ForwardRef`.
    forward_reference = JudgeArgs.__annotations__[name]
    annotation = forward_reference.__forward_arg__
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


@_list_options_in_signature
async def ajudge(
    *files: str | Path,
    task_id: str | None = None,
    description: str = "",
    acceptance: str = "",
    reference: str = "",
    author_family: str | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    **options: Unpack[JudgeArgs],
) -> Verdicts:
    """Judge files, and the text files in folders. Returns one verdict per file, in order.

    If `task_id` is given, all files are judged together and get a single verdict. Omitted options come from
    the configuration. `model` replaces all of its models. `author_family` names the maker of the models that
    wrote the files, such as `anthropic`. Models of that maker only judge if no others can. `deadline`
    (seconds) and `max_cost_usd` (US dollars) apply to each verdict. Up to `concurrency` verdicts are made at
    a time. `depth` decides which models are called, and "auto" chooses it by path and size. `cache=False`
    ignores earlier replies.

    Raises `InputError` for a file that can't be judged, `ConfigError` and `UsageError`. Failures of models
    don't raise.
    """
    require("judge", files=files, concurrency=concurrency)
    for path in files:
        require("judge", **{"a path": path})
    require("judge", description=description, acceptance=acceptance, reference=reference)
    check_arguments("judge", task_id=task_id, author_family=author_family)
    request = _build_request("judge", options)

    task = TaskDescription(*map(replace_surrogates, (description, acceptance, reference)))
    to_judge = await run_in_thread(lambda: _read_documents(files, task_id, task, author_family))
    project = Path(environment.find_project_root())
    verdicts = await service.ajudge_documents(to_judge, project, request, at_once=concurrency)
    return Verdicts(verdicts)


def _read_documents(
    files: Iterable[str | Path],
    task_id: str | None,
    task: TaskDescription,
    author_family: str | None,
) -> list[Document]:
    """Read each file as a document, also those in folders. With a task id, combine them into one document."""
    paths = documents.expand(os.fspath(path) for path in files)
    # Unlike the command line, the API doesn't read standard input for `-`.
    empty_stdin = io.BytesIO()
    contents = [documents.read_file(path, empty_stdin) for path in paths]
    if task_id is None:
        files_by_document = [[content] for content in contents]
    else:
        files_by_document = [contents]
    return [
        documents.build_document(document_files, task_id, task, author_family)
        for document_files in files_by_document
    ]


@_list_options_in_signature
async def ajudge_texts(
    texts: Mapping[str, str | Text],
    *,
    author_family: str | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    **options: Unpack[JudgeArgs],
) -> Verdicts:
    """Judge texts by name, with the options of `judge`. Returns one verdict per text, in order.

    Use a `Text` to add a description, sources and so on. Its own `author_family` takes precedence.

    Raises `InputError` for an empty text, or for sources if the rubric takes none. Also raises `ConfigError`
    and `UsageError`, as `judge` does.
    """
    require("judge_texts", texts=texts, concurrency=concurrency)
    check_arguments("judge_texts", author_family=author_family)
    request = _build_request("judge_texts", options)
    to_judge = _build_documents(texts, author_family)
    project = Path(environment.find_project_root())

    # Check the sources before any model is called.
    text_with_sources = _find_text_with_sources(texts)
    if text_with_sources:
        await _require_rubric_with_sources(text_with_sources, project, request)
    verdicts = await service.ajudge_documents(to_judge, project, request, at_once=concurrency)
    return Verdicts(verdicts)


def _build_documents(texts: Mapping[str, str | Text], author_family: str | None) -> list[Document]:
    """Build the documents to judge. Raises `InputError` for an empty text."""
    to_judge = []
    for name, text_or_str in texts.items():
        require("judge_texts", **{"a name": name})
        text = text_or_str if isinstance(text_or_str, Text) else Text(text_or_str)
        to_judge.append(_build_document(name, text, author_family))
    return to_judge


def _find_text_with_sources(texts: Mapping[str, str | Text]) -> str:
    """Return the name of the first text with sources, or "" if there's none."""
    for name, text in texts.items():
        if isinstance(text, Text) and text.sources:
            return name
    return ""


async def _require_rubric_with_sources(
    text_name: str, project: Path, request: JudgeRequest
) -> None:
    """Raise `InputError` if the rubric takes no sources. `text_name` is a text that has some."""
    config = settings.load(project)
    loaded = await run_in_thread(lambda: service.load_rubric(config, project, request))
    rubric = loaded.rubric
    takes_sources = isinstance(rubric, ScoreRubric) and rubric.given.sources
    if not takes_sources:
        problem = (
            f"the rubric {rubric.ref} takes no sources; name one that does, such as groundedness"
        )
        raise InputError(f"{text_name}: {problem}")


@_list_options_in_signature
async def acompare(
    *texts: str,
    prompt: str,
    author_family: str | Sequence[str | None] | None = None,
    **options: Unpack[JudgeArgs],
) -> Comparison:
    """Find out which of two or more texts answers `prompt` best. The texts are called A, B, … in order.

    Two texts are compared in both orders. Three or more are scored one by one. `author_family` names the
    maker of the models that wrote the texts: a single name, or a list with one entry per text, "none" for a
    human author and None if unknown. `deadline` (seconds) and `max_cost_usd` (US dollars) apply to the entire
    comparison. `model` and `cache` are as in `judge`.

    Raises `InputError` for an empty text, `ConfigError` and `UsageError`. Failures of models don't raise.
    """
    require("compare", prompt=prompt)
    for number, text in enumerate(texts, 1):
        require("compare", **{f"text {number}": text})
    request = _build_request("compare", options)

    # Check all arguments before any model is called.
    _check_families(author_family)
    _check_texts(texts)

    files = tuple(map(make_file, LETTERS, texts))
    authors = service.list_authors(author_family, len(files))
    comparison_input = ComparisonInput(prompt, files, authors)
    project = Path(environment.find_project_root())
    return await service.acompare(comparison_input, project, request)


def _check_families(author_family: str | Sequence[str | None] | None) -> None:
    """Check the family, or each family in a list. Raises `UsageError`."""
    families = author_family if isinstance(author_family, list | tuple) else [author_family]
    for family in families:
        check_arguments("compare", author_family=family)


def _check_texts(texts: Sequence[str]) -> None:
    """Raise `InputError` for an empty text, or `UsageError` if there are more texts than letters."""
    # The lengths differ: there can be fewer texts than letters, or too many.
    for letter, text in zip(LETTERS, texts, strict=False):
        if is_blank(text):
            raise InputError(f"{letter}: empty; nothing to compare")
    if len(texts) > len(LETTERS):
        raise UsageError(f"compare: expected up to {len(LETTERS)} texts, got {len(texts)}")


@_list_options_in_signature
async def ajudge_rows(  # noqa: PLR0913 - the published options
    rows: Iterable[Mapping[str, Any]],
    *,
    fields: Mapping[str, str] | None = None,
    id_column: str | None = None,
    task: Literal["judge", "compare"] = "judge",
    description: str = "",
    acceptance: str = "",
    reference: str = "",
    author_family: str | None = None,
    judge_turn: Literal["last", "all"] = "last",
    concurrency: int = DEFAULT_CONCURRENCY,
    as_completed: bool = False,
    agree: float | None = None,
    agree_on: Literal["verdict", "accepted"] = "verdict",
    always_confirm: Literal["accept"] | None = None,
    **options: Unpack[JudgeArgs],
) -> AsyncGenerator[JudgedRow, None]:
    """Judge rows as they are read, and yield each with its result, in order or as completed.

    A result has the same keys as with `judge --data`: the row's own, then `id`, `verdict`, `scores` and so
    on. `fields` maps fields to columns with unusual names ({"text": "answer"}). `description`, `acceptance`,
    `reference` and `author_family` are the defaults for rows that don't have their own. When rows are
    compared, `description` is the prompt. A row that can't be judged gets an `error`. `max_cost_usd` applies
    to all rows together. Once it's reached, the remaining rows are not yielded.

    `agree` saves calls to the `deep` tier. It promises that at least this fraction of verdicts, such as 0.95,
    agrees with what `deep` alone would have decided. The first tier judges every row, and `deep` judges as
    few as possible to keep the promise with 95 % confidence. Verdicts agree if they are the same or, with
    `agree_on="accepted"`, if both accept or neither does. With `always_confirm="accept"`, `deep` also judges
    every row that the first tier accepts. All rows are read first, and yielded once all are judged.

    Raises `InputError` if there's no row or one is not a mapping, `ConfigError` and `UsageError`.
    """
    call = "judge_rows"
    columns = {} if fields is None else fields
    # `require` refuses None, and `check_arguments` accepts it.
    require(call, rows=rows, concurrency=concurrency, as_completed=as_completed, task=task)
    require(call, description=description, acceptance=acceptance, reference=reference)
    require(call, judge_turn=judge_turn, fields=columns)
    check_arguments(call, author_family=author_family, id_column=id_column)
    require(call, agree_on=agree_on)
    check_arguments(call, agree=agree, always_confirm=always_confirm)
    request = _build_request(call, options)

    defaults = TaskDescription(*map(replace_surrogates, (description, acceptance, reference)))
    families = [author_family] if author_family else []
    row_options = RowOptions(task, columns, id_column, defaults, families, judge_turn)
    project = Path(environment.find_project_root())
    if agree is None:
        in_order = not as_completed
        judged = judge_in_process(
            rows, row_options, project, request, concurrency, in_order=in_order
        )
    else:
        agreement = _build_agreement(agree, agree_on, always_confirm, task, options)
        judged = judge_under_promise(rows, row_options, project, request, concurrency, agreement)

    # If the caller stops early, closing the rows ends the calls to models.
    async with aclosing(judged):
        async for row in judged:
            yield JudgedRow(row)


def _build_agreement(
    agree: float,
    agree_on: Literal["verdict", "accepted"],
    always_confirm: Literal["accept"] | None,
    task: str,
    options: JudgeArgs,
) -> AgreementOptions:
    """Build the options for verdicts that agree with the `deep` tier's; see `agree` in `ajudge_rows`.

    Raises `UsageError` if `task` isn't "judge", or for an option that can't be combined with `agree`.
    """
    if task != "judge":
        raise UsageError(f"agree: a promise is about documents; leave it out for task={task!r}")
    incompatible = {name: options.get(name) for name in ("model", "depth", "explain")}
    refuse_options_with("agree", incompatible)
    confirms_accepted = always_confirm == "accept"
    return AgreementOptions(agree, agree_on, confirms_accepted=confirms_accepted)


def _make_blocking(
    call: Callable[Arguments, Coroutine[Any, Any, Value]],
) -> Callable[Arguments, Value]:
    """Build a synchronous version of an async function. Its name loses the leading `a`."""

    @functools.wraps(call)
    def wait(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        return run(call(*args, **kwargs))

    wait.__name__ = wait.__qualname__ = call.__name__.removeprefix("a")
    return wait


def _make_iterator(
    call: Callable[Arguments, AsyncGenerator[JudgedRow, None]],
) -> Callable[Arguments, JudgedRows]:
    """Build the synchronous version of an async generator, named without the leading `a`."""

    @functools.wraps(call)
    def build_rows(*args: Arguments.args, **kwargs: Arguments.kwargs) -> JudgedRows:
        start = functools.partial(call, *args, **kwargs)
        return JudgedRows(_iterate_in_thread(start))

    # For example, `ajudge_rows` becomes `judge_rows`.
    build_rows.__name__ = build_rows.__qualname__ = call.__name__.removeprefix("a")
    return build_rows


def _iterate_in_thread(
    start: Callable[[], AsyncGenerator[JudgedRow, None]],
) -> Generator[JudgedRow, None, None]:
    """Run an async generator in another thread and yield its rows.

    Closing this iterator also closes the async generator, so that no more models are called.
    """
    async_rows = start()
    runner = asyncio.Runner()
    context = copy_context()  # the caller's context variables, for the other thread

    async def read_next() -> JudgedRow | None:
        return await anext(async_rows, None)  # None at the end

    def wait_for_next() -> JudgedRow | None:
        """Run the generator up to its next row. Called in the other thread."""
        return context.run(runner.run, read_next())

    async def close() -> (
        None
    ):  # `Runner.run` only takes coroutines, and `aclose` gives another awaitable
        await async_rows.aclose()

    # The caller's thread may already run an event loop, and can't run a second one.
    with ThreadPoolExecutor(1, thread_name_prefix="judgekit-rows") as thread:
        try:
            while True:
                row = thread.submit(wait_for_next).result()
                if row is None:
                    break
                yield row
        finally:
            thread.submit(runner.run, close()).result()
            thread.submit(runner.close).result()


judge = _make_blocking(ajudge)
judge_texts = _make_blocking(ajudge_texts)
compare = _make_blocking(acompare)
judge_rows = _make_iterator(ajudge_rows)


def hook(payload: Mapping[str, Any]) -> str:
    """Return the text that the prompt hook adds to an agent's context, or "".

    Raises `InputError` if `payload` has no prompt.
    """
    require("hook", payload=payload)
    try:
        context, *_ = claude_code.answer_prompt(dict(payload))
    except claude_code.BadInputError as error:
        raise InputError(str(error)) from None
    return context


def rubrics(project: str | Path | None = None) -> Iterable[LoadedRubric]:
    """Yield all available rubrics: the project's first, then the user's, then the bundled ones."""
    return loader.load_rubrics(_check_project("rubrics", project))


def find_rubric(reference: str, project: str | Path | None = None) -> LoadedRubric:
    """Return the newest rubric for `ID`, `ID@VERSION` or a path; raises `UsageError`, `ConfigError`."""
    require("find_rubric", rubric=reference)
    return loader.find_rubric(reference, _check_project("find_rubric", project))


def _check_project(call: str, project: str | Path | None) -> Path | None:
    """Convert the `project` argument of `call` to a path. The folder needn't exist.

    Raises `UsageError` if the folder can't be accessed.
    """
    check_arguments(call, project=project)
    try:
        Path(project or ".").stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        # `stat` raises `ValueError` for a NUL character, for example.
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise UsageError(f"{call}: project: {project} cannot be read ({reason})") from None
    return Path(project) if project else None


def _build_request(call: str, options: JudgeArgs) -> JudgeRequest:
    """Build a request from a call's options. `call` is the function's name, for error messages.

    Raises `TypeError` for an unknown option and `UsageError` for an invalid value.
    """
    _check_options(call, options)
    model = options.get("model")
    if model is not None:
        # Requests are sent as UTF-8, which can't encode surrogates.
        options["model"] = replace_surrogates(model)
    try:
        return JudgeRequest.model_validate(options, strict=True)
    except ValidationError as error:
        first_problem = explain_first_error(error.errors(), options)
        option = first_problem.location[0]
        raise UsageError(f"{call}: {option}: {first_problem.text}") from None


def _check_options(call: str, options: JudgeArgs) -> None:
    """Check options before pydantic does, because our messages are clearer.

    Raises `TypeError` for an unknown option and `UsageError` for an invalid value.
    """
    for name in options:
        if name not in JudgeRequest.model_fields:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")

    # Pydantic checks the options without one of our messages.
    our_options = {name: value for name, value in options.items() if name in EXPECTED_BY_ARGUMENT}
    check_arguments(call, **our_options)
    require(call, cache=options.get("cache", True))  # unlike the others, it can't be None


def _build_document(name: str, text: Text, author_family: str | None) -> Document:
    """Build a document from a text and its sources.

    `author_family` is used if the text doesn't name one. Raises `UsageError` if a value has the wrong type,
    and `InputError` if the text or a source is empty.
    """
    of_text = f" of {name!r:.40}"  # for messages: "description of 'my text' must be …"
    _check_types(text, of_text)
    sources = _map_sources(text, of_text)
    _refuse_empty(name, text.text)
    for source, content in sources.items():
        _refuse_empty(f"{name}: {source}", content)

    # The document's first file is the text, and the others are its sources.
    contents = [(name, text.text), *sources.items()]
    files = [make_file(replace_surrogates(path), content) for path, content in contents]
    task = TaskDescription(
        *map(replace_surrogates, (text.description, text.acceptance, text.reference))
    )
    return documents.build_document(files, task=task, family=text.author_family or author_family)


def _check_types(text: Text, of_text: str) -> None:
    """Check the types of a text's attributes, except its sources. Raises `UsageError`.

    `of_text` names the text in the message, as in "description of 'my text' must be …".
    """
    call = "judge_texts"
    for key in ("text", "description", "acceptance", "reference"):
        argument = f"{key}{of_text}"
        require(call, **{argument: getattr(text, key)})
    check_arguments(call, **{f"author_family{of_text}": text.author_family})


def _map_sources(text: Text, of_text: str) -> Mapping[str, str]:
    """Return a text's sources by name. Sources in a list are called "source 1", "source 2" and so on.

    Raises `UsageError` for a source that isn't a string. `of_text` names the text in the message, as in
    "sources of 'my text' must be …".
    """
    call = "judge_texts"
    sources = text.sources
    if isinstance(sources, list | tuple):
        sources = {f"source {number}": source for number, source in enumerate(sources, 1)}
    if not isinstance(sources, Mapping):
        got = f"got {type(sources).__name__}"
        wanted = "a list of texts or a mapping of names to texts"
        raise UsageError(f"{call}: sources{of_text} must be {wanted}, {got}")

    for source, content in sources.items():
        require(call, **{f"the name of a source{of_text}": source})
        require(call, **{f"source {source!r:.40}{of_text}": content})
    return sources


def _refuse_empty(name: str, content: str) -> None:
    """Raise `InputError` if there's nothing to judge in a text or source."""
    if is_blank(content):
        raise InputError(f"{name}: empty; nothing to judge")
