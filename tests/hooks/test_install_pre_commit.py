"""The gate in `.pre-commit-config.yaml`, and out again; then with the real framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.config import yaml_text
from judgekit.errors import ConfigError
from judgekit.hooks import pre_commit

if TYPE_CHECKING:
    from pathlib import Path

USUAL = """\
# ours
default_install_hook_types: [pre-commit, pre-push]
repos:
  - repo: https://example.org/hooks   # kept
    rev: v1
    hooks:
      - id: one
        args: ["--a", 'b']
      # - id: two

# the end
ci:
    skip: [one]
"""
ORIGINALS = {
    "none": None,
    "usual": USUAL,
    "at the margin": "repos:\n- repo: local\n  hooks:\n  - id: one\n    entry: |\n      # a\n      b\n",
    "no newline at its end": "repos:\n  - repo: meta\n    hooks: [{id: identity}]",
    "crlf": USUAL.replace("\n", "\r\n"),
    "no list": "fail_fast: true\n",
    "two locals": "repos:\n- repo: local\n  hooks: [{id: a}]\n- repo: local\n  hooks: [{id: b}]\n\n# end\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path


def write(project: Path, text: str | None) -> Path:
    path = project / pre_commit.FILE
    if text is not None:
        path.write_bytes(text.encode())
    return path


def run(project: Path, plan: object) -> bool:
    change = plan(project)  # type: ignore[operator]  # one of the two plans
    pre_commit.write(change)
    return bool(change.changes)


@pytest.mark.parametrize("original", ORIGINALS.values(), ids=ORIGINALS)
def test_in_once_and_out_again(project: Path, original: str | None) -> None:
    path = write(project, original)
    before = yaml_text.parsed(original or "") or {}
    assert run(project, pre_commit.planned_install)
    written = path.read_bytes()
    after = yaml_text.parsed(written.decode())
    assert after["repos"] == [*before.get("repos", []), *yaml_text.parsed(pre_commit.ITEM)]
    assert not run(project, pre_commit.planned_install)
    assert path.read_bytes() == written
    assert run(project, pre_commit.planned_uninstall)
    assert not run(project, pre_commit.planned_uninstall)
    if original is None:
        assert not path.exists()
    elif "repos" in before:
        assert path.read_text(encoding="utf-8").rstrip() == original.replace("\r\n", "\n").rstrip()
        assert (b"\r\n" in path.read_bytes()) == ("\r\n" in original)
    else:
        assert yaml_text.parsed(path.read_text(encoding="utf-8")) == {**before, "repos": []}


def test_what_others_wrote_stays_line_by_line(project: Path) -> None:
    path = write(project, USUAL)
    run(project, pre_commit.planned_install)
    indented = "".join(f"  {line}\n" for line in pre_commit.ITEM.splitlines())
    head, tail = path.read_text(encoding="utf-8").split(indented)
    assert head + tail == USUAL
    assert head.endswith("# - id: two\n")


def test_an_older_entry_of_ours_is_renewed(project: Path) -> None:
    older = pre_commit.ITEM.replace("verbose: true", "verbose: false")
    path = write(project, "repos:\n" + older)
    assert run(project, pre_commit.planned_install)
    assert yaml_text.parsed(path.read_text(encoding="utf-8"))["repos"] == yaml_text.parsed(pre_commit.ITEM)


@pytest.mark.parametrize(
    "repo",
    [
        "- repo: https://example.org/judgekit\n  rev: v1\n  hooks: [{id: judgekit-gate}]\n",
        "- repo: local\n  hooks: [{id: a}, {id: judgekit-gate}]\n",
    ],
)
def test_an_entry_of_the_projects_own_making_is_left_alone(project: Path, repo: str) -> None:
    write(project, "repos:\n" + repo)
    assert not run(project, pre_commit.planned_install)
    with pytest.raises(ConfigError, match="by hand"):
        pre_commit.planned_uninstall(project)


@pytest.mark.parametrize(
    "text", ["repos: {a: 1}\n", "- a\n", "repos: [\n", "repos: [{repo: meta}]\n", "repos:\n"]
)
def test_a_file_of_another_shape_is_refused(project: Path, text: str) -> None:
    path = write(project, text)
    with pytest.raises(ConfigError, match=pre_commit.FILE):
        pre_commit.planned_install(project)
    assert path.read_text(encoding="utf-8") == text
