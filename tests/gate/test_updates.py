"""Git's lines on a pre-push hook's stdin."""

from __future__ import annotations

import pytest

from judgekit.errors import InputError
from judgekit.gate import remotes

OLD, NEW, ZEROS = "a" * 40, "b" * 40, "0" * 40


def test_a_line_is_an_update() -> None:
    [update] = remotes.parse(f"refs/heads/main {NEW} refs/heads/main {OLD}\n")
    assert update == ("refs/heads/main", NEW, "refs/heads/main", OLD)
    assert (update.deletes, update.is_new) == (False, False)


def test_nothing_is_no_update() -> None:
    assert remotes.parse("") == []
    assert remotes.parse("\n") == []


@pytest.mark.parametrize("zeros", [ZEROS, "0" * 64])
def test_zeros_stand_for_nothing(zeros: str) -> None:
    other = "c" * len(zeros)
    deleted, new = remotes.parse(
        f"(delete) {zeros} refs/heads/a {other}\nHEAD {other} refs/heads/b {zeros}\n"
    )
    assert (deleted.deletes, deleted.is_new) == (True, False)
    assert (new.deletes, new.is_new) == (False, True)


def test_what_is_pushed_may_be_an_expression_with_spaces() -> None:
    [update] = remotes.parse(f"main@{{1 day ago}} {NEW} refs/heads/main {OLD}\n")
    assert update.local_ref == "main@{1 day ago}"


@pytest.mark.parametrize(
    "line", ["refs/heads/main", f"a {NEW} b", f"a {NEW[1:]} b {OLD}", f"a {NEW} b {OLD}x"]
)
def test_another_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(InputError, match=r"^stdin:2: expected <local ref>"):
        remotes.parse(f"HEAD {NEW} refs/heads/b {ZEROS}\n{line}\n")
