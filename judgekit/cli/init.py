"""`judgekit init`: asks three questions, writes a configuration and a rubric, and names the next command."""

from __future__ import annotations

import io
import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer import Option

from judgekit.cli.output import get_project_path, note, say
from judgekit.errors import InputError, JudgekitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.data.fields import TaskName
    from judgekit.data.rows import Rows


class _Subject(NamedTuple):
    """Something that people judge: a short description, the rubric to start with, and the task.

    `task` is None for documents, which are files rather than rows.
    """

    description: str
    rubric: str
    task: TaskName | None = "judge"


SUBJECTS = {
    "answers": _Subject("answers of a model, one in each row", "answer-quality"),
    "expected": _Subject("answers beside the expected ones", "answer-correctness"),
    "sources": _Subject("texts beside their sources, as in RAG", "groundedness"),
    "pairs": _Subject("two answers in each row: which is better?", "answer-preference", "compare"),
    "documents": _Subject("files, or a folder of them", "kls", None),
}
_WHAT_OPTION = Option(metavar="|".join(SUBJECTS), help="What you judge.")
_MODEL_OPTION = Option(help="The first model to ask, as provider/model.")
_WHERE_OPTION = Option(metavar="PATH", help="The file of rows, or the documents.")
_CHOOSE_LATER_ANSWER = "later"


def init(
    what: Annotated[str | None, _WHAT_OPTION] = None,
    model: Annotated[str | None, _MODEL_OPTION] = None,
    where: Annotated[str | None, _WHERE_OPTION] = None,
) -> None:
    """Ask what you judge, with which model, and its path; write a configuration and a rubric to edit.

    Nothing is overwritten, and nothing is sent. Options answer the questions beforehand.
    """
    answers = {"--what": what, "--model": model, "--where": where}
    open_questions = [option for option, answer in answers.items() if answer is None]
    _require_terminal(open_questions)
    if what is None:
        _note_subjects()

    what = _get_answer(what, "What do you judge?", _check_what, lambda: "answers")
    subject = SUBJECTS[what]
    model = _get_answer(model, "Which model?", _check_model, _find_usable_model)
    where = _get_answer(where, "Where is it (a path)?", partial(_check_path, subject=subject))

    column_options = _find_column_options(where, subject)
    rubric_file = _begin_rubric(what, subject)
    rubric, _, _version = rubric_file.stem.partition("@")
    _write_configuration(rubric, subject, model)

    say(f"Next: edit {_make_relative(rubric_file)}, and run")
    for command in _list_commands(where, column_options, subject, rubric):
        say(f"  {command}")


def _require_terminal(open_questions: list[str]) -> None:
    """Raise `UsageError` if questions are open, but there's no terminal to ask them at.

    Each open question is named by the option that would answer it, such as `--model`.
    """
    from judgekit.ledger.labels import is_at_terminal

    if open_questions and not is_at_terminal():
        raise UsageError(f"no terminal to ask questions at; give {', '.join(open_questions)}")


def _note_subjects() -> None:
    """Print what can be judged, to choose from."""
    for name, subject in SUBJECTS.items():
        note(f"{name:<10} {subject.description}")


def _get_answer(
    option_value: str | None,
    question: str,
    check: Callable[[str], str],
    find_default: Callable[[], str | None] = lambda: None,
) -> str:
    """Return an option's value. Without one, ask the user until an answer passes `check`."""
    if option_value is not None:
        return check(option_value)

    def check_typed(answer: str) -> str:
        try:
            return check(answer)
        except JudgekitError as error:
            raise typer.BadParameter(str(error)) from None

    default = find_default()
    return str(typer.prompt(question, default=default, value_proc=check_typed, err=True))


def _check_what(what: str) -> str:
    if what not in SUBJECTS:
        raise UsageError(f"--what {what}: expected one of {', '.join(SUBJECTS)}")
    return what


def _check_model(model: str) -> str:
    """Return a model's name if its provider is known; else raise `UsageError`."""
    from judgekit.providers import registry
    from judgekit.providers.resolve import find_profile

    if model == _CHOOSE_LATER_ANSWER:
        return model
    profile, _ = find_profile(model, registry.list_profiles())
    if profile is None:
        names = ", ".join(profile.provider for profile in registry.list_profiles())
        problem = "expected PROVIDER/MODEL, or later"
        raise UsageError(f"--model {model}: {problem}; providers are {names}")
    return model


def _find_usable_model() -> str:
    """Return the quick model of the first usable provider, or `later` if there's none."""
    from judgekit.providers.resolve import list_provider_states

    for state in list_provider_states(os.environ):
        if state.is_usable and state.models:
            return next(iter(state.models.values()))  # the first tier is quick
    note("no model can be asked yet; judgekit provider list says what each provider needs")
    return _CHOOSE_LATER_ANSWER


def _check_path(path: str, subject: _Subject) -> str:
    """Return a path if there's something to judge; else raise `InputError`."""
    has_rows = subject.task is not None
    if has_rows:
        _open_rows(path)
    elif not Path(path).exists():
        raise InputError(f"{path}: no such file or folder")
    return path


def _open_rows(path: str) -> Rows:
    """Open a file of rows. Raises `InputError` if it has no rows, or if it's standard input."""
    from judgekit.data.rows import open_rows

    # The rows are read again later, also by the commands that are run next.
    if path == "-":
        raise InputError("-: standard input is read once; name a file")
    unused_stdin = io.BytesIO()
    return open_rows(path, unused_stdin)


def _find_column_options(path: str, subject: _Subject) -> str:
    """Print the columns that were found, or what's missing. Returns the options to add to the command.

    They start with a space, as ` --map text=COLUMN` does; "" if none are needed.
    """
    from judgekit.data.dataset import RowOptions, match_columns

    if subject.task is None:
        return ""

    rows = _open_rows(path)
    try:
        matched = match_columns(rows, RowOptions(subject.task))
    except UsageError as error:
        note(str(error))
        return _suggest_column_options(subject)

    id_columns = [matched.id_column] if matched.id_column else []
    note(*rows.describe(matched.fields, *id_columns))
    return ""


def _suggest_column_options(subject: _Subject) -> str:
    """Write the options that name a task's columns, for the user to fill in."""
    if subject.task == "compare":
        return " --map a=COLUMN --map b=COLUMN"
    return " --map text=COLUMN"


def _begin_rubric(what: str, subject: _Subject) -> Path:
    """Copy the subject's bundled rubric to a file in the project, unless that file exists.

    Returns the file's path.
    """
    from judgekit.rubric import loader

    folder = get_project_path() / ".judgekit" / "rubrics"
    name = f"my-{what}"
    path = folder / f"{name}@1.0.0.yaml"
    if path.exists():
        note(f"{_make_relative(path)}: kept as it is")
        return path

    bundled = loader.find_rubric(subject.rubric, get_project_path())
    for file in loader.create_rubric(name, folder, like=bundled):
        say(_make_relative(file))
    return path


def _write_configuration(rubric: str, subject: _Subject, model: str) -> None:
    """Add the rubric and model to the configuration. Values that are already set stay as they are."""
    from judgekit.config import settings, yaml_text

    path = settings.get_project_config_path(get_project_path())
    configured_values = _read_judge_values(path)
    new_values = _choose_judge_values(rubric, subject, model)
    for key, value in new_values.items():
        if key in configured_values:
            note(f"{_make_relative(path)}: judge.{key} is kept as it is")
        else:
            yaml_text.put_value(path, "judge", key, value)

    if path.exists():
        say(_make_relative(path))


def _read_judge_values(path: Path) -> dict[str, object]:
    """Read the values under `judge` in a configuration file; {} if there are none."""
    from judgekit.config import yaml_text

    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    configured = yaml_text.parse_yaml(text, path) or {}  # an empty file is None
    return configured.get("judge") or {}


def _choose_judge_values(rubric: str, subject: _Subject, model: str) -> dict[str, object]:
    """Choose the values to set under `judge`: the rubric, and the model of the quick tier.

    The model is left out if the user wants to choose it later.
    """
    values: dict[str, object] = {}
    if subject.task != "compare":  # `compare` takes its rubric as an option
        values["rubric"] = rubric
    if model != _CHOOSE_LATER_ANSWER:
        values["tiers"] = {"quick": model}
    return values


def _list_commands(where: str, column_options: str, subject: _Subject, rubric: str) -> list[str]:
    """List the commands to run next, with the rubric if the configuration doesn't contain it."""
    quoted_path = shlex.quote(where)
    rubric_option = _build_rubric_option(rubric, subject)
    if subject.task is None:
        return [f"judgekit judge {quoted_path}{rubric_option}"]

    row_options = f"--data {quoted_path}{column_options}{rubric_option}"
    command = f"judgekit {subject.task} {row_options} --out results.jsonl"
    return [command, "judgekit report results.jsonl --html report.html"]


def _build_rubric_option(rubric: str, subject: _Subject) -> str:
    """Build the --rubric option, after a space; "" if the command finds this rubric in the configuration."""
    from judgekit.config import settings

    is_configured = settings.load(get_project_path()).judge.rubric == rubric
    reads_configuration = subject.task != "compare"  # `compare` takes its rubric only as an option
    return "" if is_configured and reads_configuration else f" --rubric {rubric}"


def _make_relative(path: Path) -> str:
    """Return a path relative to the current folder if possible."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
