"""Headers of notes, in the forms of YAML that people and tools write; ruamel.yaml is the yardstick."""

from __future__ import annotations

import io
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.scalarstring import (
    DoubleQuotedScalarString,
    FoldedScalarString,
    LiteralScalarString,
    SingleQuotedScalarString,
)

from judgekit.retrieval import search as api
from judgekit.retrieval.sources.front_matter import read_front_matter

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.retrieval.confidence import RankedCandidates


def ask_ruamel(header: str) -> dict[str, list[str]]:
    """Return the texts in a header by the path of their key, as ruamel.yaml reads them."""
    fields: dict[str, list[str]] = {}
    add_mapping(fields, "", YAML(typ="safe", pure=True).compose(header))
    return fields


def add_mapping(fields: dict[str, list[str]], prefix: str, node: MappingNode) -> None:
    for key, value in node.value:
        path = f"{prefix}{key.value}".lower()
        if isinstance(value, MappingNode):
            add_mapping(fields, f"{path}.", value)
        elif texts_in(value):
            fields[path] = texts_in(value)


def texts_in(node: object) -> list[str]:
    """Return the texts of a value and of lists in it, on one line each; mappings in lists are left out."""
    if isinstance(node, SequenceNode):
        return list(chain.from_iterable(texts_in(item) for item in node.value))
    if not isinstance(node, ScalarNode):
        return []
    is_null = node.style is None and node.value in ("~", "null", "Null", "NULL")
    text = " ".join(node.value.split())
    return [text] if text and not is_null else []


def read_ours(header: str) -> dict[str, list[str]]:
    found = read_front_matter(f"---\n{header}---\nText")
    assert found.problem is None
    fields = {}
    for key, values in found.fields.items():
        texts = [" ".join(value.split()) for value in values if value.strip()]
        if texts:
            fields[key] = texts
    return fields


@pytest.mark.parametrize(
    "header",
    [
        "title: Plain # with a comment\n",
        "title: A plain text\n  that goes on\n\n  below a blank line\n",
        "title:\n  Below its key\n",
        "title: >-\n  Folded\n  over lines\n\n  and paragraphs\n",
        "title: |+\n  Literal\n    with a deeper line\n\n",
        "title: |2\n    keeps two blanks\n",
        "title: > # a comment\n  Folded\n",
        'title: "In quotes\n  over \\"two\\" lines,\n\n  with \\u00e9 and \\x41"\n',
        'title: "no blank \\\n  in the middle"\n',
        "title: 'It''s one'\n",
        "'title': \"both: quoted\"\n",
        "title: it's - a [plain] {text}, #1\n",
        "tags: [one, 'two, three',\n  four # a comment\n]\n",
        "tags: [a, [b, c], {d: e}, f: g]\n",
        "tags:\n- a\n- - b\n  - c\n-\n  d\n- e: f\n  g: h\n",
        "tags:\n  - >\n    folded\n    item\n  - |\n    literal\n",
        "hero:\n  title: Cover\n  image: {alt: A boat, src: [x, y]}\ntitle: Page\n",
        "history:\n  - version: 1\n    status: archived\n  - version: 2\ntitle: Page\n",
        "# a comment\ntitle: Page\n\n# another\n  \nnext: x\n",
        "  title: All indented\n  tags: [a]\n",
        "{title: In braces, tags: [a, b], hero: {title: c}}\n",
        "title: ~\nname: null\nsummary: 'null'\n",
        "no: 1\nyes: 012\ndate: 2025-01-01\nurl: https://example.org/a:b\n",
        "ключ: значение\ntitle: 标题\n",
        "title : A blank before the colon\n",
    ],
)
def test_a_header_means_what_yaml_says(header: str) -> None:
    assert read_ours(header) == ask_ruamel(header)


PIECES = (
    *(
        "a",
        "boat",
        "it's",
        "x:y",
        "key: v",
        "# no",
        'say "hi"',
        "[x]",
        "{y}",
        "-",
        "- z",
        "é",
        "a\tb",
    ),
    *("null", "~", "12", "true", "@me", "*star", "&and", "!bang", "%p", "|", "> q", "a #b", "#tag"),
    *(
        "long words that go on and on until the line is full",
        "two\nlines",
        "a\n\nb\n",
        "  lead",
        "\\",
    ),
)
STYLES = (
    str,
    LiteralScalarString,
    FoldedScalarString,
    DoubleQuotedScalarString,
    SingleQuotedScalarString,
)
TEXTS = st.builds(
    lambda pieces, style: style(" ".join(pieces)),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
    st.sampled_from(STYLES),
)
KEYS = st.sampled_from(("k", "l", "m n"))
VALUES = st.recursive(
    TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(
    value=VALUES,
    title=TEXTS,
    width=st.sampled_from((10, 80)),
    flow=st.sampled_from((True, False, None)),
)
def test_what_a_program_writes_means_what_yaml_says(
    *, value: object, title: str, width: int, flow: bool | None
) -> None:
    yaml = YAML()
    yaml.width = width
    yaml.default_flow_style = flow
    stream = io.StringIO()
    yaml.dump({"title": title, "value": value}, stream)
    header = stream.getvalue()
    try:
        expected = ask_ruamel(header)
    except YAMLError:  # it wrote what it can't read
        return
    found = read_front_matter(f"---\n{header}---\nText")
    if found.problem is None:
        assert read_ours(header) == expected
    else:  # a key of several lines: said, and left as it's written
        assert "? " in header


def find(query: str, project: Path) -> RankedCandidates:
    return api.search(query, ["docs"], project=str(project), limit=5)


def write(project: Path, text: str) -> None:
    (project / "docs").mkdir(exist_ok=True)
    (project / "docs" / "note.md").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "header",
    [
        "title: >-\n  How walruses\n  swim",
        "title: |\n  How walruses swim",
        'title: "How walruses\n  swim"',
        "title: How walruses\n  swim",
        "title: How walruses swim\nhero:\n  title: Cover",
        "hero: {title: Cover}\ntitle: How walruses swim",
        "title: How walruses swim\r\nhero:\r\n  title: Cover\r",
    ],
)
def test_a_title_in_any_form_is_on_one_line(tmp_path: Path, header: str) -> None:
    write(tmp_path, f"---\n{header}\n---\nThey swim.")
    [candidate] = find("walruses", tmp_path).candidates
    assert candidate.title == "How walruses swim"


@pytest.mark.parametrize(
    "header",
    [
        "description: >\n  About\n  manatees",
        "summary: 'About\n  manatees'",
        "aliases:\n- About manatees",
        "tags: [sea,\n  manatees]",
        "keywords: manatees",
        "type: note\ndescription: Note, about: manatees",
    ],
)
def test_what_a_header_says_about_its_text_is_searched(tmp_path: Path, header: str) -> None:
    write(tmp_path, f"---\n{header}\n---\n# Sea cows\n\nThey swim.")
    assert [each.title for each in find("manatees", tmp_path).candidates] == ["Sea cows"]


@pytest.mark.parametrize("key", ["status", "record_status"])
@pytest.mark.parametrize(
    "header",
    ["review:\n  {key}: archived", "review: {{{key}: archived}}", "log:\n- {key}: archived"],
)
def test_a_nested_status_is_not_the_pages_own(tmp_path: Path, header: str, key: str) -> None:
    write(tmp_path, f"---\ntitle: Dams\n{header.format(key=key)}\n---\nBeavers.")
    assert [each.title for each in find("dams", tmp_path).candidates] == ["Dams"]


@pytest.mark.parametrize(
    "text",
    [
        "---\nThe ferry leaves at nine.\n---\nText",
        "---\nNote: the ferry leaves at nine.\n---\nText",
        "---\nWe met.\nStatus: rejected by the ferry.\n---\nText",
        "---\nType: the ferry.\nWe met again.\nAll agreed.\n---\nText",
        "---\n- The ferry: at nine\n---\nText",
        "+++\nThe ferry leaves at nine.\n+++\nText",
    ],
)
def test_sentences_between_two_rules_are_text(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    [candidate] = find("ferry", tmp_path).candidates
    assert api.read_body(candidate, None) == text
    assert candidate.status == ""


@pytest.mark.parametrize(
    "line",
    [
        "description: Use it when: otters come",
        "description: &a otters",
        "description: !!str otters",
        'description: "Quoted" otters',
        "description: [draft] otters",
        'description: "otters',
        "description: [otters",
        'description: ["otters"\u00a0, seals]',
        "description: @otters",
        "otters are no pair",
        "? otters\n: a key",
    ],
)
def test_what_is_not_yaml_stays_text_and_is_said(tmp_path: Path, line: str) -> None:
    write(tmp_path, f"---\ntitle: Rivers\ntype: note\ntags: [a]\n{line}\n---\nText")
    ranked = find("otters", tmp_path)
    assert [each.title for each in ranked.candidates] == ["Rivers"]
    assert "line 5 of its front matter is not YAML" in "".join(ranked.notes)


@pytest.mark.parametrize("lines", [1_001, 5_000])
def test_a_header_that_is_too_long_is_text_and_that_is_said(tmp_path: Path, lines: int) -> None:
    write(tmp_path, "---\ntitle: Rivers\n" + "key: otters\n" * lines + "---\nText")
    ranked = find("otters", tmp_path)
    assert len(ranked.candidates) == 1
    assert "its front matter has more than 1,000 lines" in "".join(ranked.notes)


TOML = """+++
title = "How walruses swim"
tags = ["sea", "ice"]
description = '''
About
manatees'''
date = 2025-01-01
[hero]
title = "Cover"
+++
Text"""


@pytest.mark.parametrize("query", ["walruses", "ice", "manatees"])
def test_a_header_in_toml_is_read(tmp_path: Path, query: str) -> None:
    write(tmp_path, TOML)
    assert [each.title for each in find(query, tmp_path).candidates] == ["How walruses swim"]


def test_a_header_that_is_no_toml_is_said(tmp_path: Path) -> None:
    write(tmp_path, TOML.replace('"sea"', "sea"))
    ranked = find("walruses", tmp_path)
    assert "its front matter is not TOML" in "".join(ranked.notes)
