"""Files of rows, labels and results: those that are something else, and the ids and keys in them."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripted import by_content

if TYPE_CHECKING:
    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("project")
TABLE = "id,question,answer,label,verdict\n0,Q?,It is Rome.,pass,accept\n1,Q?,It is Milan.,fail,reject\n"
LINES = '{"id": 0, "answer": "It is Rome.", "label": "pass", "verdict": "accept"}\n' * 2
JUDGE = ("judge", "--rubric", "kls", "--mode", "lenient", "--data")

OWN_IDS = LINES.replace('"id": 0', '"id": 1', 1).replace("Rome", "R\u00f4me")
FRENCH = TABLE.replace("Rome", "R\u00f4me")
LISTED = json.dumps([json.loads(line) for line in OWN_IDS.splitlines()], ensure_ascii=False)
BY_PANDAS = ",id,answer\n5,0,It is Rome.\n6,1,It is Milan.\n"

UNUSUAL = (
    ("d.csv", FRENCH.encode("utf-16"), "read as UTF-16"),
    ("d.csv", FRENCH.encode("utf-16-le"), "read as UTF-16"),
    ("d.csv", FRENCH.encode("utf-16-be"), "read as UTF-16"),
    ("d.csv", FRENCH.encode("utf-32"), "read as UTF-32"),
    ("d.csv", FRENCH.encode("utf-32-be"), "read as UTF-32"),
    ("d.csv", FRENCH.encode("cp1252"), "read as Windows-1252"),
    ("d.csv", FRENCH.replace("\n", "\r").encode(), "read as UTF-8, lines that end in CR"),
    ("d.csv", FRENCH.replace(",", "^").encode(), "carets taken for delimiters"),
    ("d.jsonl", OWN_IDS.encode("utf-16"), "read as UTF-16"),
    ("d.jsonl", OWN_IDS.encode("cp1252"), "read as Windows-1252"),
    ("d.jsonl", OWN_IDS.replace("\n", "\r").encode(), "lines that end in CR"),
    ("d.json", LISTED.encode("utf-16"), "read as UTF-16"),
    ("d.csv.gz", gzip.compress(FRENCH.encode("cp1252"), mtime=0), "read as Windows-1252"),
)


@pytest.mark.parametrize(("name", "raw", "remark"), UNUSUAL)
def test_rows_are_read_however_they_are_written(
    served: Served, name: str, raw: bytes, remark: str
) -> None:
    Path(name).write_bytes(raw)
    done, asked = served(by_content, *JUDGE, name, "--out", "out.jsonl")
    assert done.code == 0, done.err
    assert remark in done.err
    assert any("It is R\u00f4me." in request.text for request in asked)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.json", LISTED),
        ("d.json", json.dumps({"version": 2, "data": json.loads(LISTED)}, indent=1)),
        ("d.json", OWN_IDS),
        ("d.jsonl.gz", OWN_IDS),
        ("d.json.gz", LISTED),
        ("d.csv", BY_PANDAS),
        ("d.tab", FRENCH.replace(",", "\t")),
        ("d.psv", FRENCH.replace(",", "|")),
        ("d.csv", FRENCH.replace("\n", ",,\n")),
    ],
)
def test_usual_files_are_read_without_a_remark(served: Served, name: str, text: str) -> None:
    raw = text.encode()
    Path(name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    done, asked = served(by_content, *JUDGE, name, "--out", "out.jsonl")
    assert done.code == 0, done.err
    assert len(asked) == 2
    assert "read as" not in done.err


def test_a_list_on_standard_input_is_rows(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LISTED.encode())))
    done, asked = served(by_content, *JUDGE, "-")
    assert done.code == 0, done.err
    assert len(asked) == 2


def test_a_row_with_a_conversation_is_no_list_of_rows(served: Served) -> None:
    messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Rome."}]
    Path("d.json").write_text(json.dumps({"id": 1, "messages": messages}))
    done, asked = served(by_content, *JUDGE, "d.json")
    assert done.code == 0, done.err
    assert len(asked) == 1


def test_what_the_user_says_goes_before_what_is_found_out(served: Served) -> None:
    text = "id;question;answer, and more\n0;Q?;\u0411\u0430\u043a\n"
    Path("d.csv").write_bytes(text.encode("cp1251"))
    done, asked = served(
        by_content,
        *JUDGE,
        "d.csv",
        "--encoding",
        "cp1251",
        "--delimiter",
        ";",
        "--map",
        "text=answer, and more",
    )
    assert done.code == 0, done.err
    assert "\u0411\u0430\u043a" in asked[0].text


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--encoding", "utf-9", "no encoding of this name"),
        ("--encoding", "base64", "no encoding of this name"),
        ("--delimiter", ";;", "expected one character"),
        ("--delimiter", '"', "expected one character"),
    ],
)
def test_an_encoding_or_a_delimiter_that_is_none_is_refused(
    judgekit: Run, option: str, value: str, problem: str
) -> None:
    Path("d.csv").write_text(TABLE)
    done = judgekit(*JUDGE, "d.csv", option, value)
    assert done.code == 64
    assert problem in done.err


@pytest.fixture
def database(project: Path) -> Path:
    """A database with a table of rows, another one, and a view whose rows never end."""
    path = project / "runs.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER, question TEXT, answer TEXT, at REAL)")
        connection.execute("INSERT INTO runs VALUES (1, 'Where?', 'In Rome.', 1.5)")
        connection.execute("INSERT INTO runs VALUES (2, 'When?', CAST(x'41ff' AS TEXT), NULL)")
        connection.execute("CREATE TABLE notes (text TEXT)")
        endless = "WITH RECURSIVE n(text) AS (SELECT 'x' UNION ALL SELECT text FROM n)"
        connection.execute(f"CREATE VIEW endless AS {endless} SELECT text FROM n")
        connection.commit()
    return path


@pytest.mark.usefixtures("database")
def test_rows_of_a_table_are_judged(served: Served) -> None:
    done, asked = served(by_content, *JUDGE, "runs.sqlite::runs", "--limit", "1")
    assert done.code == 0, done.err
    assert "In Rome." in asked[0].text


@pytest.mark.usefixtures("database")
def test_a_cell_of_a_table_that_is_no_text_is_named(judgekit: Run) -> None:
    done = judgekit(*JUDGE, "runs.sqlite::runs", "--out", "out.jsonl")
    assert done.code == 65
    assert "row 2, column answer: expected UTF-8, got the byte 0xff" in done.err


@pytest.mark.usefixtures("database")
def test_a_table_alone_needs_no_name(served: Served) -> None:
    with closing(sqlite3.connect("runs.sqlite")) as connection:
        connection.execute("DROP TABLE notes")
        connection.commit()
    done, asked = served(by_content, *JUDGE, "runs.sqlite", "--limit", "1")
    assert done.code == 0, done.err
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("runs.sqlite", "it has the tables notes, runs; name one as FILE::TABLE"),
        ("runs.sqlite::gone", "no table gone; it has the tables notes, runs"),
        ("runs.sqlite::endless", "no table endless; it has the tables notes, runs"),
        ("runs.sqlite::sqlite_schema", "no table sqlite_schema"),
        ("text.sqlite", "cannot be read as a database of SQLite (file is not a database)"),
        ("gone.sqlite::runs", "cannot be read (No such file or directory)"),
    ],
)
@pytest.mark.usefixtures("database")
def test_what_is_no_table_of_a_database_is_named(judgekit: Run, name: str, problem: str) -> None:
    Path("text.sqlite").write_text("This is a text, and no database at all.\n" * 40)
    done = judgekit(*JUDGE, name)
    assert done.code == 65
    assert problem in done.err


def test_a_database_that_is_judged_stays_as_it_is(served: Served, database: Path) -> None:
    before = database.read_bytes()
    served(by_content, *JUDGE, "runs.sqlite::runs", "--out", "out.jsonl")
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.glob("runs.sqlite*")] == ["runs.sqlite"]


WRONG = (
    ("d.csv", b"PK\x03\x04 a workbook", "this is a workbook or an archive"),
    (
        "d.csv",
        b"id;answer|label\n1;x|pass\n",
        "expected commas between cells, got semicolons and vertical bars; name it with --delimiter",
    ),
    ("d.json", b'{"a": [{"x": 1}], "b": [{"x": 1}]}', "got 2 lists (a, b); keep one list"),
    ("d.json", b'{"x": 1}', "or an object with one such list, got none"),
    ("d.json", b"[{]", "expected a list of objects, or an object with one such list; line 1"),
    ("d.json", b'[{"text": 1, "text": 2}]', "got 'text' twice in an object"),
    ("d.csv.gz", gzip.compress(TABLE.encode(), mtime=0)[:-20], "damaged or cut off in the middle"),
    ("d.csv", TABLE.encode("utf-16")[:-1], "expected UTF-16 to its end"),
)


@pytest.mark.parametrize(("name", "raw", "problem"), WRONG)
def test_what_is_no_file_of_rows_is_named_with_what_to_do(
    served: Served, judgekit: Run, name: str, raw: bytes, problem: str
) -> None:
    Path(name).write_bytes(raw)
    Path("good.csv").write_text(TABLE)
    done, asked = served(by_content, *JUDGE, name, "--out", "out.jsonl")
    assert (done.code, asked, problem in done.err, name in done.err) == (65, [], True, True)
    for command in (
        ("report", name),
        ("report", "good.csv", "--labels", name),
        ("eval", "judge", name, "--rubric", "kls"),
    ):
        done = judgekit(*command)
        assert (done.code, problem in done.err) == (65, True), command


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_read_where_only_one_is_possible(
    served: Served, judgekit: Run, delimiter: str
) -> None:
    Path("d.csv").write_text(TABLE.replace(",", delimiter))
    done, _ = served(by_content, *JUDGE, "d.csv", "--out", "out.csv")
    assert (done.code, "2 rows in out.csv: 2 accept" in done.err) == (0, True)
    done = judgekit("report", "d.csv", "--labels", "d.csv", "--json")
    assert done.json["labelled"]["labels"] == 2
    Path("one.csv").write_text("answer\nA text; with a sign\n")
    done, asked = served(by_content, *JUDGE, "one.csv")
    assert (done.code, "A text; with a sign" in asked[0].text) == (0, True)


def test_a_sample_goes_on_with_the_delimiter_of_its_sheet(judgekit: Run) -> None:
    rows = "".join(f"{n},text {n},accept\n" for n in range(40))
    Path("r.csv").write_text(f"id,answer,verdict\n{rows}")
    judgekit("report", "r.csv", "--sample", "2", "--labels", "l.csv")
    sheet = Path("l.csv").read_text()
    Path("l.csv").write_text(sheet.replace(",", ";"))
    assert judgekit("report", "r.csv", "--sample", "2", "--labels", "l.csv").code == 0
    lines = Path("l.csv").read_text().split("\n")
    assert (len(lines), {line.count(";") for line in lines if line}) == (6, {2})


def test_an_id_of_zero_is_an_id(served: Served, judgekit: Run) -> None:
    Path("d.jsonl").write_text(LINES.split("\n", maxsplit=1)[0] + "\n")
    done, _ = served(by_content, *JUDGE, "d.jsonl", "--out", "out.jsonl")
    assert json.loads(Path("out.jsonl").read_text())["id"] == 0
    assert (
        judgekit("report", "out.jsonl", "--labels", "d.jsonl", "--json").json["labelled"]["labels"]
        == 1
    )
    Path("c.csv").write_text("id,answer,label\n0,TODO,fail\n1,fine,pass\n")
    done, _ = served(
        by_content, "eval", "judge", "c.csv", "--rubric", "kls", "--models", "m", "--json"
    )
    assert {each["id"] for each in done.json["outcomes"]} == {"0", "1"}
    Path("c.jsonl").write_text('{"id": 0, "answer": "fine", "label": "pass"}\n')
    done, _ = served(
        by_content, "eval", "judge", "c.jsonl", "--rubric", "kls", "--models", "m", "--json"
    )
    assert {each["id"] for each in done.json["outcomes"]} == {"0"}


@pytest.mark.parametrize(
    "line",
    [
        '{"id": 1, "answer": "x", "answer": "y", "label": "pass", "verdict": "accept"}',
        '{"id": 1, "answer": "x", "label": "pass", "verdict": "accept", "more": {"a": [{"b": 1, "b": 2}]}}',
    ],
)
def test_a_key_that_stands_twice_is_an_error_not_the_last_of_both(
    served: Served, judgekit: Run, line: str
) -> None:
    Path("d.jsonl").write_text(f"{line}\n")
    done, asked = served(by_content, *JUDGE, "d.jsonl")
    assert (done.code, asked, "got this one twice" in done.err) == (65, [], True)
    for command in (("report", "d.jsonl"), ("eval", "judge", "d.jsonl", "--rubric", "kls")):
        done = judgekit(*command)
        assert (done.code, "twice" in done.err) == (65, True), command


@pytest.mark.parametrize("head", ["id,question,answer,,", "id,question,answer"])
def test_columns_that_were_cleared_beside_a_table_are_none(judgekit: Run, head: str) -> None:
    Path("d.csv").write_text(f"{head}\n0,Q?,It is Rome.,,\n", encoding="utf-8")
    done = judgekit("judge", "--data", "d.csv", "--rubric", "kls", "--show-prompt")
    assert done.code == 0
    assert "It is Rome." in done.out
