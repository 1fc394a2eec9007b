"""The rubric that a configuration names, and where it is told that there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.config import settings
from judgekit.errors import ConfigError, UsageError
from judgekit.judging import service
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("rubric", "told"),
    [
        ("nosuch", "no rubric of that name; there are: "),
        ("/etc/passwd", "the value is neither ID, ID@VERSION nor the path of a YAML file"),
        ("none.yaml", "; name an ID, ID@VERSION or a YAML file that exists"),
        ("memory-relevance", "is for the task"),
    ],
)
def test_a_rubric_that_a_configuration_names_in_vain_is_told_where_it_stands(
    tmp_path: Path, rubric: str, told: str
) -> None:
    path = settings.project_file(tmp_path)
    path.parent.mkdir()
    path.write_text(f"judge:\n  mode: strict\n  rubric: {rubric}\n")
    with pytest.raises(ConfigError) as caught:
        service.rubric(settings.load(tmp_path), tmp_path)
    assert str(caught.value).startswith(f"{path}:3: judge.rubric: ")
    assert told in str(caught.value)


def test_a_rubric_that_a_variable_names_in_vain_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_RUBRIC", "kls")
    with pytest.raises(ConfigError, match=r"^JUDGEKIT_RETRIEVAL_RUBRIC: .*kls"):
        loader.configured_rubric("retrieval", settings.load(None).retrieval.rubric, None)


def test_a_rubric_that_is_asked_for_in_vain_is_no_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rubric 'nosuch'"):
        service.rubric(settings.load(tmp_path), tmp_path, service.JudgeRequest(rubric="nosuch"))
