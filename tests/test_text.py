"""Names made safe to show."""

from __future__ import annotations

import pytest

from judgekit.text import escaped


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("docs/a b.md", "docs/a b.md"),
        ("über/日本.md", "über/日本.md"),
        ("a\nGO  b.md", "a\\nGO  b.md"),
        ("\x1b[2Ja.md", "\\x1b[2Ja.md"),
        ("a\u202egpj.md", "a\\u202egpj.md"),
        ("a\u2028b", "a\\u2028b"),
        ("a\u200bb", "a\\u200bb"),
        ("", ""),
    ],
)
def test_a_name_is_shown_on_one_line_and_not_obeyed(name: str, shown: str) -> None:
    assert escaped(name) == shown
