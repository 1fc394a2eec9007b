"""Results are written row by row; a run that is killed at any moment loses no row and doubles none."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.data.results import Results, open_results, result
from judgekit.data.rows import Row
from judgekit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

VERDICT = {"schema": "judgekit/verdict@1", "verdict": "accept", "average": 4.5, "scores": {"semantic": 4.5}}


def opened(path: Path, *, fresh: bool = False) -> Results:
    return open_results(str(path), print, fresh=fresh)


def found(number: int, word: str = "accept", fingerprint: str = "f") -> dict[str, Any]:
    """Return a row of OUT."""
    return result(
        Row(number, {"text": f"é{number}"}), number, {**VERDICT, "verdict": word}, None, fingerprint
    )


def run(path: Path, count: int = 4, fingerprint: str = "f", *, finish: bool = True) -> list[int]:
    """Judge rows, the last one first, and return the numbers of those that were not kept."""
    with opened(path) as results:
        asked = [number for number in range(1, count + 1) if results.kept(number, fingerprint) is None]
        for number in reversed(asked):
            results.add(found(number, fingerprint=fingerprint))
        if finish:
            results.finish()
    return asked


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_run_resumes_from_every_prefix_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert run(path, finish=False) == [1, 2, 3, 4]
    whole = path.read_bytes()
    ends = [at for at in range(len(whole)) if whole[at : at + 1] == b"\n"]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = sum(end <= size for end in ends)  # a line that lacks its end alone is whole
        assert run(path) == list(range(1, 5 - kept))
        assert lines(path) == [found(number) for number in range(1, 5)]
        assert run(path) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


def test_rows_that_are_judged_again_wait_aside(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run(path)
    with opened(path) as results:
        assert [results.kept(number, "g" if number < 3 else "f") for number in (1, 2, 3)] == [
            None,
            None,
            "accept",
        ]
        results.add(found(2, fingerprint="g"))
        assert [row["id"] for row in lines(path)] == [3, 4, 2]  # killed now, OUT has no row twice
    for fingerprint, word in (("f", "accept"), ("g", None)):
        with opened(path) as results:
            assert results.kept(1, fingerprint) == word  # nor is a verdict lost
            assert results.kept(2, "g") == "accept"
            results.finish()
        assert [(row["id"], row["fingerprint"]) for row in lines(path)] == [
            (1, "f"),
            (2, "g"),
            (3, "f"),
            (4, "f"),
        ]


def test_the_undetermined_and_the_failed_are_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with opened(path) as results:
        results.add(found(1, "undetermined"))
        results.add({**found(2), "error": "no text"})
        results.add(found(3))
    assert run(path) == [1, 2, 4]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"hello", "line 1 is no result"),
        (b'{"a": 1}', "line 1 is no result"),
        (b'{"a": 1}\n', "line 1 is no result"),
        (b'{\n  "id": 1', "line 1 is no result"),
        (json.dumps(found(1)).encode() + b"\n{}\n", "line 2 is no result"),
    ],
)
def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=problem):
        opened(path)
    assert path.read_bytes() == content
    with opened(path, fresh=True) as results:
        assert path.read_bytes() == content  # until there is something to take its place
        results.add(found(1))
    assert lines(path) == [found(1)]


def test_a_second_run_on_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with opened(path), pytest.raises(UsageError, match="another run writes to it"):
        opened(path)
    assert not path.exists()
    opened(path).finish()
    assert path.read_bytes() == b""
