"""People's answers on whether a memory is relevant to a prompt, in a file for each project.

A line has the digests of a prompt and of a memory's path, and the answer.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, ValidationError

from judgekit import environment, outputs
from judgekit.config import yamlfile
from judgekit.errors import InputError
from judgekit.evaluation.cases import read_lines

_DIGEST_PATTERN = re.compile(r"[0-9a-f]{16}")

Pair: TypeAlias = tuple[str, str]
"""The digests of a prompt and of a memory's path."""
Answers: TypeAlias = dict[Pair, bool | None]
"""Whether a memory is relevant to a prompt; None if the person couldn't tell."""


def digest_prompt(prompt: str) -> str:
    """Return the digest of a prompt, ignoring differences in whitespace."""
    return environment.digest(" ".join(prompt.split()))


def get_answers_path(project: str) -> Path:
    """Return the path of the file with a project's answers, which may not exist."""
    return Path(environment.RELEVANCE.path(f"{environment.make_file_name(project)}.jsonl"))


class _Line(BaseModel, strict=True):
    prompt: str
    memory: str
    relevant: bool | None


def read_answers(path: Path, project: str) -> Answers:
    """Read people's answers to whether a memory is relevant to a prompt, from a JSON Lines file.

    The result maps pairs of prompt and memory to the answers. The last answer about a pair counts. Raises
    `InputError` for a malformed line.
    """
    answers: Answers = {}
    # The advice is for a file that can't be read.
    for place, text in read_lines(path, "name a file with a JSON object a line"):
        line = _parse_line(place, text)
        pair = _read_pair(line, project)
        answers[pair] = line.relevant
    return answers


def _parse_line(place: str, text: str) -> _Line:
    """Parse a line of a file of answers.

    Raises `InputError` for a malformed line. The message starts with `place`: the file and line number.
    """
    try:
        return _Line.model_validate_json(text)
    except ValidationError as error:
        # `yamlfile.problem` expects the parsed data. As the line might not be JSON, pass a valid line's keys.
        valid_keys = dict.fromkeys(_Line.model_fields)
        problem = yamlfile.explain_first_error(error.errors(include_url=False), valid_keys)
        raise InputError(f"{place}: {problem}; correct or remove the line") from None


def _read_pair(line: _Line, project: str) -> Pair:
    """Return a line's prompt and memory as digests.

    A line written by hand can have the prompt's text and the path of the memory's file instead.
    """
    prompt = line.prompt
    if not _DIGEST_PATTERN.fullmatch(prompt):
        prompt = digest_prompt(prompt)

    memory = line.memory
    if not _DIGEST_PATTERN.fullmatch(memory):
        memory = _digest_memory(memory, project)
    return prompt, memory


def _digest_memory(path: str, project: str) -> str:
    """Return the digest of the path of a memory's file. A relative path is in the project."""
    project_folder = Path(os.path.realpath(project))
    file = project_folder / os.path.expanduser(path)
    return environment.digest(os.path.normpath(file))


def store_answer(path: Path, pair: Pair, *, relevant: bool | None) -> None:
    """Append an answer to a file, which is created if needed; raises `InputError` if that fails.

    `relevant` is None if the person can't tell.
    """
    prompt, memory = pair
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({"prompt": prompt, "memory": memory, "relevant": relevant, "at": at})
    try:
        outputs.append(str(path), f"{line}\n", private=False)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); make room or allow it"
        ) from None
