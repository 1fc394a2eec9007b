"""The typed Python API: judging, comparing, searching and the hook, as on the command line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.config import check, require
from judgekit.errors import InputError, UsageError
from judgekit.hooks import claude_code
from judgekit.judging import documents, service
from judgekit.judging.documents import LETTERS, ComparisonInput, Task, file_of
from judgekit.judging.service import JudgeRequest, judge_documents
from judgekit.rubric import loader
from judgekit.text import encodable, is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.judging.verdict import Comparison, Verdict
    from judgekit.rubric.loader import LoadedRubric


def judge(
    *files: str | Path,
    rubric: str | None = None,
    mode: ModeName | None = None,
    task_id: str | None = None,
    description: str = "",
    acceptance: str = "",
    author_family: str | None = None,
    deadline: float | None = None,
    max_cost_usd: float | None = None,
) -> list[Verdict]:
    """Judge files, and the text files of folders; return one verdict for each, in order.

    With `task_id` all files are one subject and give one verdict. What is left out comes from the
    configuration. `author_family` names the maker of the models that wrote them (`anthropic`): these judge
    only where no others can. `deadline` is in seconds for each subject. Raises `InputError` for a file
    that cannot be judged, `ConfigError` and `UsageError`; never because a model failed.
    """
    require("judge", files=files)
    for path in files:
        require("judge", **{"a path": path})
    check("judge", task_id=task_id, description=description, acceptance=acceptance, rubric=rubric, mode=mode)
    check("judge", author_family=author_family, deadline=deadline, max_cost_usd=max_cost_usd)
    read = [documents.read_file(path, io.BytesIO()) for path in documents.expand(map(str, files))]
    together = [[file] for file in read] if task_id is None else [read]
    task = Task(description, acceptance)
    subjects = [documents.document(part, task_id, task, author_family) for part in together]
    project = Path(environment.project_root())
    return judge_documents(subjects, project, JudgeRequest(rubric, mode, deadline, max_cost_usd))


def judge_texts(
    texts: Mapping[str, str],
    *,
    rubric: str | None = None,
    mode: ModeName | None = None,
    author_family: str | None = None,
    deadline: float | None = None,
    max_cost_usd: float | None = None,
) -> list[Verdict]:
    """Judge texts by name, as `judge` does with files; return one verdict for each, in order."""
    require("judge_texts", texts=texts)
    check("judge_texts", rubric=rubric, mode=mode, deadline=deadline, max_cost_usd=max_cost_usd)
    check("judge_texts", author_family=author_family)
    subjects = []
    for name, text in texts.items():
        require("judge_texts", **{"a name": name, f"the text of {name!r:.40}": text})
        if is_blank(text):
            raise InputError(f"{name}: empty; nothing to judge")
        subjects.append(documents.document([file_of(encodable(name), text)], family=author_family))
    project = Path(environment.project_root())
    return judge_documents(subjects, project, JudgeRequest(rubric, mode, deadline, max_cost_usd))


def compare(
    *texts: str,
    prompt: str,
    rubric: str | None = None,
    mode: ModeName | None = None,
    author_family: str | Sequence[str | None] | None = None,
    deadline: float | None = None,
    max_cost_usd: float | None = None,
) -> Comparison:
    """Say which of two or more texts answers `prompt` better; they are called A, B, … in their order.

    Two are judged in both orders, more are scored. `author_family` says who trained the models that wrote
    them: one name for all, or one for each, "none" for a person's, None where you do not know. `deadline` is
    in seconds for all of it. Raises `InputError` for an empty text, `ConfigError` and `UsageError`; never
    because a model failed.
    """
    require("compare", prompt=prompt, **{f"text {number}": each for number, each in enumerate(texts, 1)})
    check("compare", rubric=rubric, mode=mode, deadline=deadline, max_cost_usd=max_cost_usd)
    for family in author_family if isinstance(author_family, list | tuple) else [author_family]:
        check("compare", author_family=family)
    for letter, text in zip(LETTERS, texts, strict=False):
        if is_blank(text):
            raise InputError(f"{letter}: empty; nothing to compare")
    if len(texts) > len(LETTERS):
        raise UsageError(f"compare: expected up to {len(LETTERS)} texts, got {len(texts)}")
    files = tuple(map(file_of, LETTERS, texts))
    project = Path(environment.project_root())
    comparison_input = ComparisonInput(prompt, files, service.authors(author_family, len(files)))
    return service.compare(comparison_input, project, JudgeRequest(rubric, mode, deadline, max_cost_usd))


def hook(payload: Mapping[str, Any]) -> str:
    """Return what the prompt hook adds to an agent's context, or ""; raises `InputError` without a prompt."""
    require("hook", payload=payload)
    try:
        return claude_code.answer(dict(payload))[0]
    except claude_code.BadInputError as error:
        raise InputError(str(error)) from None


def rubrics(project: str | Path | None = None) -> Iterable[LoadedRubric]:
    """Yield every rubric that can be found, the project's first, then the user's, then the bundled ones."""
    check("rubrics", project=project)
    return loader.rubrics(Path(project) if project else None)
