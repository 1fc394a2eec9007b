"""What is known of who wrote the subjects of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from making import comparison_input

from judgekit.judging.subject import file_of

if TYPE_CHECKING:
    from judgekit.judging.comparison import ComparisonInput


def three_texts(*authors: str | None) -> ComparisonInput:
    return comparison_input("Why?", tuple(file_of(each, each) for each in "abc"), authors)


@pytest.mark.parametrize(
    ("authors", "wrote", "sided"),
    [
        ([], [], []),
        (["none", "none", "none"], [], []),
        (["anthropic"] * 3, ["anthropic"], []),
        (["Claude", "gpt-4o", "none"], ["anthropic", "openai"], ["anthropic", "openai"]),
        # Of the third nothing is said: it may be anybody's.
        (["anthropic", "openai"], ["anthropic", "openai", "unknown"], ["anthropic", "openai"]),
        (["anthropic", "unknown", "none"], ["anthropic", "unknown"], ["anthropic"]),
        (["anthropic, openai", "openai", "openai"], ["anthropic", "openai"], ["anthropic"]),
        (["unknown"] * 3, ["unknown"], []),
    ],
)
def test_which_families_wrote_and_which_of_them_have_a_favourite(
    authors: list[str], wrote: list[str], sided: list[str]
) -> None:
    found = three_texts(*authors)
    assert (list(found.wrote), list(found.sided)) == (wrote, sided)


def test_a_configuration_speaks_for_subjects_of_which_nothing_is_said() -> None:
    found = three_texts("openai", None, "none").written_by("anthropic")
    assert [found.families(each) for each in "ABC"] == [("openai",), ("anthropic",), ()]
    assert three_texts().written_by(None).wrote == ()
    assert [three_texts().written_by("mistral").author(each) for each in "ABC"] == ["mistral"] * 3


def test_a_subject_is_one_with_its_order_and_its_prompt() -> None:
    one = three_texts()
    other = comparison_input("How?", one.files)
    assert (
        len(
            {
                one.shown_sha256("AB"),
                one.shown_sha256("BA"),
                one.shown_sha256("ABC"),
                other.shown_sha256("AB"),
            }
        )
        == 4
    )
    assert one.shown_sha256("AB") == three_texts("openai").shown_sha256("AB")
