"""Which changes are judged."""

from __future__ import annotations

import pytest

from judgekit.gate.commits import ChangedFile, ChangeFilter, Commit

COMMIT = Commit(
    "a" * 40,
    "Ada <ada@example.org>",
    "Bo <bo@example.org>",
    ("Co-authored-by: Claude <noreply@anthropic.com>", "Generated-By: some-tool 1.2"),
)


def test_who_had_a_hand_in_a_commit() -> None:
    assert COMMIT.people == [
        "Ada <ada@example.org>",
        "Bo <bo@example.org>",
        "Claude <noreply@anthropic.com>",
    ]


@pytest.mark.parametrize(
    ("authors", "meant"),
    [
        ((), True),
        (("ada *",), True),
        (("*bo@example.org>",), True),
        (("CLAUDE *",), True),
        (("*@anthropic.com>",), True),
        (("generated-by: *",), True),
        (("Generated-By: other*",), False),
        (("ada",), False),
        (("Eve *", "*claude*"), True),
    ],
)
def test_changes_are_chosen_by_who_made_them(authors: tuple[str, ...], meant: object) -> None:
    assert ChangeFilter((["*.md"], authors))(ChangedFile(COMMIT, "a.md", "b" * 40)) is meant


def test_changes_are_chosen_by_path() -> None:
    wanted = ChangeFilter((["docs/", "!docs/old/"], []))
    found = [wanted(ChangedFile(COMMIT, path, "b" * 40)) for path in ("docs/a.md", "docs/old/a.md", "a.md")]
    assert found == [True, False, False]
