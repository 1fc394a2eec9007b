from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.errors import InputError
from judgekit.evaluation.collection import check_scopes, read, scope

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "query-id\tcorpus-id\tscore\n"


def test_reads_documents_queries_and_grades(folder: Path) -> None:
    collection = read(folder)
    assert collection.name == folder.name
    assert [document.id for document in collection.documents][:2] == ["one/kettle", "one/train"]
    assert collection.documents[0].title == "Kettle"
    assert collection.queries[0].text == "copper kettle"
    assert collection.grades["two/q1"] == {"two/opera": 2, "two/kettle": 1}
    assert collection.strays == 0


def test_a_title_may_be_missing_and_lines_empty(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text('\n{"id": "a", "text": "x"}\r\n\n')
    assert [(document.id, document.title) for document in read(folder).documents] == [("a", "")]


def test_a_byte_order_mark_is_no_part_of_the_text(folder: Path) -> None:
    path = folder / "qrels.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read(folder).grades["one/q1"] == {"one/kettle": 2}


def test_line_separators_of_unicode_stand_inside_a_line(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "x\u2028y\x85z"}\n', encoding="utf-8")
    assert read(folder).documents[0].text == "x\u2028y\x85z"


def test_judgements_of_what_is_not_there_are_counted(folder: Path) -> None:
    with (folder / "qrels.tsv").open("a") as file:
        file.write("one/q1\tone/gone\t1\nnobody\tone/train\t1\n")
    assert read(folder).strays == 2


@pytest.mark.parametrize(
    ("name", "text", "where", "expected"),
    [
        ("corpus.jsonl", "", "", "empty; expected one JSON object a line"),
        ("corpus.jsonl", '{"id": "a", "text": "x"}\n{"id": "a"}\n', ":2", "text: missing key; add it"),
        ("corpus.jsonl", '{"id": 7, "text": "x"}\n', ":1", "id: expected a text, got a number"),
        ("corpus.jsonl", '{"id": "", "text": "x"}\n', ":1", "id: "),
        ("corpus.jsonl", '{"id": "a\\tb", "text": "x"}\n', ":1", "id: "),
        ("corpus.jsonl", '{"id": "a", "text": "x"}\n' * 2, ":2", "id: 'a' stands there twice"),
        ("corpus.jsonl", '\n\n{"id": "a", "text"\n', ":3", "not valid JSON (EOF while parsing"),
        ("corpus.jsonl", '{"id": "a", "text": "\\ud8"}\n', ":1", ": not valid JSON ("),
        ("corpus.jsonl", '["a"]\n', ":1", "expected an object"),
        ("queries.jsonl", '{"id": "a", "text": null}\n', ":1", "text: expected a text"),
        ("qrels.tsv", "", ":1", "expected the header query-id corpus-id score, separated by tabs"),
        ("qrels.tsv", "one/q1\tone/kettle\t1\n", ":1", "expected the header"),
        ("qrels.tsv", HEADER, "", "no judgements"),
        ("qrels.tsv", f"{HEADER}one/q1 one/kettle 1\n", ":2", "separated by tabs, got 1 fields"),
        ("qrels.tsv", f"{HEADER}a\tb\t1\na\tc\thigh\n", ":3", "characters, got 'high'"),
        ("qrels.tsv", f"{HEADER}a\tb\t0.5\n", ":2", "score: expected a whole number"),
        ("qrels.tsv", f"{HEADER}a\tb\t{'9' * 400}\n", ":2", "score: expected a whole number of at most 9"),
        ("qrels.tsv", f"{HEADER}a\tb\t{'9' * 5000}\n", ":2", "999…"),
        ("qrels.tsv", f"{HEADER}a\tb\t٣\n", ":2", "score: expected a whole number"),
        ("qrels.tsv", f"{HEADER}a\tb\t1\na\tb\t2\n", ":3", "a b: judged twice"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    folder: Path, name: str, text: str, where: str, expected: str
) -> None:
    (folder / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder / name}{where}: ")
    assert expected in message
    assert "\n" not in message
    assert len(message) < len(str(folder)) + 200


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels.tsv"])
def test_a_missing_file_names_what_belongs_there(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(InputError, match=r"expected a folder with corpus\.jsonl, queries\.jsonl and qrels"):
        read(folder)


def test_bytes_that_are_no_text_are_named_with_their_line(folder: Path) -> None:
    (folder / "queries.jsonl").write_bytes(b'{"id": "a", "text": "x"}\n{"id": "b", "text": "\xff"}\n')
    with pytest.raises(InputError, match=r"queries\.jsonl:\d+: not UTF-8"):
        read(folder)


@pytest.mark.parametrize(("name", "expected"), [("a/b", "a"), ("a/b/c", "a"), ("a", "a"), ("/a", "")])
def test_the_scope_is_what_stands_before_the_first_slash(name: str, expected: str) -> None:
    assert scope(name) == expected


@pytest.mark.parametrize(
    ("name", "line"),
    [("corpus.jsonl", '{"id": "bare", "text": "x"}\n'), ("queries.jsonl", '{"id": "bare/", "text": "x"}\n')],
)
def test_ids_without_a_scope_are_refused_where_scopes_count(folder: Path, name: str, line: str) -> None:
    (folder / name).write_text(line)
    with pytest.raises(InputError, match=rf"{name}: id: expected SCOPE/NAME, got 'bare"):
        check_scopes(folder, read(folder))


def test_ids_with_a_scope_are_fine(folder: Path) -> None:
    check_scopes(folder, read(folder))
