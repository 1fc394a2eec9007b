from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from judgekit.environment import __version__
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.cases import read_collection as read
from judgekit.evaluation.retrieval import check_run as check
from judgekit.evaluation.retrieval import scope
from judgekit.evaluation.retrieval import write_run as write

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "query-id\tcorpus-id\tscore\n"


def test_reads_documents_queries_and_grades(folder: Path) -> None:
    collection = read(folder)
    assert (collection.name, collection.strays) == (folder.name, 0)
    assert [document.id for document in collection.documents][:2] == ["one/kettle", "one/train"]
    assert (collection.documents[0].title, collection.queries[0].text) == ("Kettle", "copper kettle")
    assert collection.grades["two/q1"] == {"two/opera": 2, "two/kettle": 1}
    assert read(folder, scoped=True) == collection
    with (folder / "qrels.tsv").open("a") as file:
        file.write("one/q1\tone/gone\t1\nnobody\tone/train\t1\n")
    assert read(folder).strays == 2  # of what is not there


def test_any_lines_that_programs_write_are_read(folder: Path) -> None:
    text = '\n{"id": "a", "text": "x\u2028y\x85z"}\r\n\n'
    (folder / "corpus.jsonl").write_text(text, encoding="utf-8")
    path = folder / "qrels.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    found = read(folder)
    assert [(each.id, each.title, each.text) for each in found.documents] == [("a", "", "x\u2028y\x85z")]
    assert found.grades["one/q1"] == {"one/kettle": 2}


@pytest.mark.parametrize(
    ("name", "text", "where", "expected"),
    [
        ("corpus.jsonl", "", "", "empty; expected one JSON object a line"),
        ("corpus.jsonl", '{"id": "a", "text": "x"}\n{"id": "a"}\n', ":2", "text: missing key; add it"),
        ("corpus.jsonl", '{"id": 7, "text": "x"}\n', ":1", "id: expected a text, got a number"),
        ("corpus.jsonl", '{"id": "", "text": "x"}\n', ":1", "id: "),
        ("corpus.jsonl", '{"id": "a\\tb", "text": "x"}\n', ":1", "id: "),
        ("corpus.jsonl", '{"id": "a", "text": "x"}\n' * 2, ":2", "id: 'a' is there twice"),
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
        ("qrels.tsv", f"{HEADER}a\tb\t1\na\tb\t2\n", ":3", "a b: is there twice"),
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


def test_what_cannot_be_read_names_what_belongs_there(folder: Path) -> None:
    (folder / "queries.jsonl").write_bytes(b'{"id": "a", "text": "x"}\n{"id": "b", "text": "\xff"}\n')
    with pytest.raises(InputError, match=r"queries\.jsonl:\d+: not UTF-8"):
        read(folder)
    (folder / "queries.jsonl").write_text('{"id": "a", "text": "x"}\n')
    for name in ("qrels.tsv", "queries.jsonl", "corpus.jsonl"):
        (folder / name).unlink()
        with pytest.raises(
            InputError, match=r"expected a folder with corpus\.jsonl, queries\.jsonl and qrels"
        ):
            read(folder)


def test_ids_without_a_scope_are_refused_where_scopes_count(folder: Path) -> None:
    assert [scope(each) for each in ("a/b", "a/b/c", "a", "/a")] == ["a", "a", "a", ""]
    for name, wrong in (("queries.jsonl", "bare/"), ("corpus.jsonl", "bare")):
        (folder / name).write_text(json.dumps({"id": wrong, "text": "x"}) + "\n")
        with pytest.raises(InputError, match=rf"{name}: id: expected SCOPE/NAME, got 'bare"):
            read(folder, scoped=True)


# TREC's run format


def test_a_run_keeps_the_order_that_was_measured(tmp_path: Path) -> None:
    write(tmp_path / "run", [("q/1", ["b", "a"]), ("q/2", []), ("q/3", ["ü"])])
    tag = f"judgekit-{__version__}"
    assert (tmp_path / "run").read_text(encoding="utf-8").splitlines() == [
        f"q/1 Q0 b 1 2 {tag}",
        f"q/1 Q0 a 2 1 {tag}",
        f"q/3 Q0 ü 1 1 {tag}",
    ]
    names = [f"d{number}" for number in range(100)]
    write(tmp_path / "run", [("q", names)])
    rows = [line.split(" ") for line in (tmp_path / "run").read_text().splitlines()]
    assert [row[2] for row in sorted(rows, key=lambda row: -float(row[4]))] == names
    assert len({float(row[4]) for row in rows}) == 100


def test_what_cannot_be_written_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    for name in ("a b", "a\u2003b", " a", ""):
        with pytest.raises(InputError, match="a TREC run cannot hold ids with spaces; rename it"):
            check(tmp_path / "run", ["fine", name])
    with pytest.raises(UsageError, match=r"cannot be written \(.+\); name another file for --run"):
        check(tmp_path / "missing" / "run", [])
    with pytest.raises(UsageError, match="cannot be written"):
        write(tmp_path, [])
    (tmp_path / "run").write_text("earlier\n")
    check(tmp_path / "run", ["a"])
    assert (tmp_path / "run").read_text() == "earlier\n"
