"""What people said of memories: is one relevant to a prompt. It stands in a file for each project.

A line has the digests of a prompt and of a memory's path, and what a person said.
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
from judgekit.evaluation.cases import lines

_DIGEST = re.compile(r"[0-9a-f]{16}")

Pair: TypeAlias = tuple[str, str]
"""The digests of a prompt and of a memory's path."""
Answers: TypeAlias = dict[Pair, bool | None]
"""Whether a memory is relevant to a prompt; None where a person could not say."""


def prompt_key(prompt: str) -> str:
    return environment.digest(" ".join(prompt.split()))


def answers_file(project: str) -> Path:
    return Path(environment.RELEVANCE.path(f"{environment.file_name_for(project)}.jsonl"))


class _Line(BaseModel, strict=True):
    prompt: str
    memory: str
    relevant: bool | None


def read_answers(path: Path, project: str) -> Answers:
    """Return the answers in a file; of two about the same pair the later one counts. Raises `InputError`."""
    answers: Answers = {}
    for place, text in lines(path, "name a file with a JSON object a line"):
        try:
            line = _Line.model_validate_json(text)
        except ValidationError as error:
            wrong = yamlfile.problem(
                error.errors(include_url=False), dict.fromkeys(_Line.model_fields)
            )
            raise InputError(f"{place}: {wrong}; correct or remove the line") from None
        # A prompt's text and a memory's path (from `project`, or with ~) may stand in place of their digests.
        prompt = line.prompt
        if not _DIGEST.fullmatch(prompt):
            prompt = prompt_key(prompt)
        memory = line.memory
        if not _DIGEST.fullmatch(memory):
            own = os.path.expanduser(memory)
            file = os.path.normpath(Path(os.path.realpath(project)) / own)
            memory = environment.digest(file)
        answers[prompt, memory] = line.relevant
    return answers


def keep_answer(path: Path, pair: Pair, *, relevant: bool | None) -> None:
    """Append one answer, readable by its owner alone; raises `InputError` when it cannot be kept."""
    prompt, memory = pair
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({"prompt": prompt, "memory": memory, "relevant": relevant, "at": at})
    try:
        outputs.append(str(path), f"{line}\n", private=False)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); make room or allow it"
        ) from None
