"""`judgekit rubric terms import`: terms of a list or a thesaurus, into a rubric of one's own alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.judging.findings import place_findings
from judgekit.judging.verdict import Finding
from judgekit.rubric.loader import find_rubric
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from outcome import Run

NOTES = """\
# Our notes
rubric: notes
title: Are they good?   # a question
dimensions:
  right: Is everything right?
  clear:
    question: Is it clear?
    terms: [clear, plain]  # inline

  # the third
  kind:
    question: Is it friendly?
    look_for:
      - no blame   # ever
  # the fourth
  short:
    question: Is it short?
    terms:
      - brief  # as can be
      - short

# behind
modes:
  lenient: {accept: {each: 3}}
"""
WORDS = "\ufeff# ours\r\nPlain: clear\n\njargon: clear\n"
WORDS += "wrong figure: right\nBlame: Kind\n1.0: short\na: b: short\n"


@pytest.fixture
def notes(project: Path) -> Path:
    path = project / "notes.yaml"
    path.write_text(NOTES)
    (project / "words.txt").write_text(WORDS)
    return path


def terms_in(reference: str) -> dict[str, list[str]]:
    rubric = find_rubric(reference).rubric
    assert isinstance(rubric, ScoreRubric)
    return {name: each.terms for name, each in rubric.dimensions.items()}


def test_a_list_goes_into_ones_own_file_and_comments_stay(judgekit: Run, notes: Path) -> None:
    before = terms_in(str(notes))
    done = judgekit("rubric", "terms", "import", "words.txt", "--rubric", "notes.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        *("clear: 1 added: jargon", "right: 1 added: wrong figure", "kind: 1 added: Blame"),
        *("short: 2 added: 1.0, a: b", "notes.yaml: 5 terms added, 1 known"),
    ]
    new = {
        "right": ["wrong figure"],
        "clear": ["jargon"],
        "kind": ["Blame"],
        "short": ["1.0", "a: b"],
    }
    assert terms_in(str(notes)) == {name: [*new[name], *there] for name, there in before.items()}
    kept, lines = notes.read_text(), NOTES.splitlines()
    assert [line.strip() for line in kept.splitlines() if line.strip()[:1] == "#"] == [
        line.strip() for line in lines if line.strip()[:1] == "#"
    ]
    assert "      - no blame   # ever\n  # the fourth\n  short:\n" in kept
    assert "      - short\n\n# behind\nmodes:\n" in kept
    again = judgekit("rubric", "terms", "import", "words.txt", "--rubric", "notes.yaml")
    assert (again.out, notes.read_text()) == ("notes.yaml: 0 terms added, 6 known\n", kept)


def test_a_thesaurus_names_the_dimension_and_an_unknown_one_is_said(
    judgekit: Run, notes: Path
) -> None:
    data = {
        "lean": {"id": 1, "nterm": "Short", "url": "https://example.org/short"},
        "terse": {"id": 1, "nterm": "short"},
        "blue": {"id": 2, "nterm": "colour\x1b[1m"},
    }
    (notes.parent / "thesaurus.json").write_text(json.dumps({"name": "Ours", "data": data}))
    done = judgekit("rubric", "terms", "import", "thesaurus.json", "--rubric", "notes.yaml")
    assert (done.code, terms_in(str(notes))["short"][:2]) == (65, ["lean", "terse"])
    assert done.err == "judgekit: no dimension 'colour[1m' in notes@1.0.0: 1 term left out\n"


@pytest.fixture
def pages(notes: Path) -> Path:
    """Write a thesaurus of Terraphim's: a page a dimension, with its other words in a line."""
    folder = notes.parent / "thesaurus"
    (folder / "more").mkdir(parents=True)
    (folder / "clear.md").write_text("# Clear\n\nEasy to read.\n\nsynonyms:: lucid, easy to read\n")
    (folder / "more" / "Short.md").write_text("- synonyms:: terse\n- synonyms:: lean,\n")
    (folder / "readme.md").write_text("What is in here.\n")
    return folder


def test_pages_with_synonyms_are_a_thesaurus(judgekit: Run, notes: Path, pages: Path) -> None:
    done = judgekit("rubric", "terms", "import", str(pages), "--rubric", "notes.yaml")
    assert done.code == 0, done.err
    assert terms_in(str(notes))["clear"][:2] == ["lucid", "easy to read"]
    assert terms_in(str(notes))["short"][:2] == ["terse", "lean"]


def test_a_page_that_is_a_link_is_not_read(judgekit: Run, notes: Path, pages: Path) -> None:
    secret = notes.parent / "elsewhere.md"
    secret.write_text("synonyms:: secret\n")
    (pages / "kind.md").symlink_to(secret)
    judgekit("rubric", "terms", "import", str(pages), "--rubric", "notes.yaml")
    assert terms_in(str(notes))["kind"] == []


def test_a_folder_without_synonyms_says_what_is_expected(
    judgekit: Run, notes: Path, pages: Path
) -> None:
    for page in pages.rglob("*.md"):
        page.write_text("Nothing here.\n")
    done = judgekit("rubric", "terms", "import", str(pages), "--rubric", "notes.yaml")
    assert done.code == 65
    assert "with lines `synonyms:: TERM, TERM`" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no colon\n", "words.txt:1: expected TERM: DIMENSION"),
        ("ok: clear\n: clear\n", "words.txt:2: expected"),
        (f"{'x' * 61}: clear\n", "of at most 60 characters"),
        ("a: \n", "words.txt:1: expected"),
        ("\n".join(f"word{n}: clear" for n in range(1001)), "more than 1,000 terms"),
        ("{", "expected a thesaurus"),
        ('{"a": ' * 100_000, "expected a thesaurus"),
        ('{"data": {"a": {"id": 1}}}', "expected a thesaurus"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_none_changes_nothing(
    judgekit: Run, notes: Path, text: str | bytes | None, said: str
) -> None:
    words = notes.parent / "words.txt"
    words.unlink()
    if text is not None:
        words.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = judgekit("rubric", "terms", "import", "words.txt", "--rubric", "notes.yaml")
    assert (done.code, said in done.err, notes.read_text()) == (65, True, NOTES), done.err


def test_published_rubrics_and_those_without_dimensions_are_refused(
    judgekit: Run, notes: Path
) -> None:
    for reference in ("kls", "kls@1.1.0", judgekit("rubric", "path", "kls").out.strip()):
        done = judgekit("rubric", "terms", "import", "words.txt", "--rubric", reference)
        assert (
            done.code,
            "copy it first: judgekit rubric new my-kls --from kls@1." in done.err,
        ) == (
            64,
            True,
        )
    judgekit("rubric", "new", "picks", "--task", "select")
    done = judgekit("rubric", "terms", "import", "words.txt", "--rubric", "picks")
    assert (done.code, "terms are of rubrics that score" in done.err) == (64, True)
    (notes.parent / "words.txt").write_text("port: semantic\n")
    judgekit("rubric", "new", "my-kls", "--from", "kls")
    assert judgekit("rubric", "terms", "import", "words.txt", "--rubric", "my-kls").code == 0
    assert judgekit("rubric", "check", "my-kls").code == 0


def test_more_terms_of_kls_are_a_choice_and_change_no_prompt(judgekit: Run, project: Path) -> None:
    assert find_rubric("kls").rubric.ref == "kls@1.0.0"
    old, new = (judgekit("rubric", "show", f"kls@1.{n}.0", "--prompt").out for n in (0, 1))
    assert old == new
    before, after = find_rubric("kls@1.0.0").rubric, find_rubric("kls@1.1.0").rubric
    assert isinstance(after, ScoreRubric)
    assert before.prompt.sha256 == after.prompt.sha256
    for name, terms in (more := terms_in("kls@1.1.0")).items():
        assert len(terms) >= 14
        assert set(terms) >= set(terms_in("kls@1.0.0")[name])
    assert len({term for each in more.values() for term in each}) == 60
    changed = judgekit("rubric", "diff", "kls@1.0.0", "kls@1.1.0").out.splitlines()
    assert {line.partition(":")[0].rpartition(".")[2] for line in changed} == {"version", "terms"}
    remark = [Finding(issue="The section is vague.")], [Finding(issue="Much of it is vague.")]
    assert [place_findings(each, after)[0].dimension for each in remark] == ["", "pragmatic"]
    (project / ".judgekit" / "rubrics").mkdir(parents=True, exist_ok=True)
    own = Path(judgekit("rubric", "path", "kls@1.1.0").out.strip())
    (project / ".judgekit" / "rubrics" / own.name).write_bytes(own.read_bytes())
    assert (
        judgekit("rubric", "path", "kls").out.strip().startswith(str(project))
    )  # chosen by a copy
