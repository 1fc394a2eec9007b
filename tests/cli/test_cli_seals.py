"""State beside OUT counts where this user's key wrote it: rows, batches and answers; else nothing is sent."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from batching import BatchServer
from loopback import fails
from scripted import by_content

from judgekit import environment
from judgekit.data import batches, seals

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Run, Served, Use

pytestmark = pytest.mark.usefixtures("project", "no_servers")
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient", "--out")
KEY = "0123456789abcdef0123"


def write(*answers: str) -> None:
    rows = ({"id": f"r{number}", "answer": answer} for number, answer in enumerate(answers, 1))
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def read(path: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def rewrite(change: Callable[[dict[str, Any]], object], path: str = "out.jsonl") -> None:
    rows = read(path)
    for row in rows:
        change(row)
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "verdict": lambda row: row.update(verdict="accept"),
    "scores": lambda row: row["scores"].update(semantic=5),
    "a score as text": lambda row: row["scores"].update(semantic="5"),
    "reasoning": lambda row: row.update(reasoning="All is well."),
    "the record": lambda row: row["judged"].update(verdict="accept"),
    "what was judged": lambda row: row.update(answer="another answer"),
    "a new column": lambda row: row.update(label="accept"),
    "the id": lambda row: row.update(id=f"x{row['id']}"),
    "no seal": lambda row: row.update(fingerprint=row["fingerprint"].partition(".")[0]),
    "an empty seal": lambda row: row.update(fingerprint=row["fingerprint"].partition(".")[0] + "."),
    "another text": lambda row: row.update(fingerprint="0" * 32 + row["fingerprint"][32:]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("out", ["out.jsonl", "out.csv"])
def test_no_verdict_that_a_clone_brings_is_kept(served: Served, change: str, out: str) -> None:
    write("one\nTODO", "two\nTODO", "three")
    assert served(by_content, *JUDGE, out)[0].code == 0
    lines = out if out.endswith("jsonl") else f"{out}.part.jsonl"
    rewrite(CHANGES[change], lines)
    before = Path(lines).read_bytes()
    done, asked = served(by_content, *JUDGE, out, "--no-cache")
    count = {"verdict": 2, "the record": 2}.get(change, 3)
    assert (done.code, asked, Path(lines).read_bytes()) == (64, [], before), done.err
    assert f"{out}: {count} rows do not verify" in done.err
    assert "nothing was sent" in done.err
    assert "--trust-results" in done.err
    done, asked = served(by_content, *JUDGE, out, "--no-cache", "--fresh")
    assert (done.code, len(asked) >= 3) == (0, True)
    assert [row["verdict"] for row in read(lines)] == ["reject", "reject", "accept"]
    done, asked = served(by_content, *JUDGE, out, "--no-cache")
    assert (done.code, asked) == (0, [])


@pytest.mark.parametrize("column", ["verdict", "average", "model", "error", "scores", "reasoning"])
def test_a_column_of_the_rows_and_ours_cannot_change_places(served: Served, column: str) -> None:
    row = {"id": "r1", "answer": "one\nTODO", column: "accept"}
    Path("rows.jsonl").write_text(f"{json.dumps(row)}\n")
    served(by_content, *JUDGE, "out.jsonl")

    def change_places(result: dict[str, Any]) -> None:
        theirs = f"row.{column}"
        result[column], result[theirs] = result[theirs], result[column]

    rewrite(change_places)
    done, asked = served(by_content, *JUDGE, "out.jsonl", "--no-cache")
    assert done.code == 64
    assert asked == []


def test_a_score_of_the_rows_and_ours_cannot_change_places(served: Served) -> None:
    Path("rows.jsonl").write_text('{"id": "r1", "answer": "one TODO", "score.semantic": 5}\n')
    served(by_content, *JUDGE, "out.jsonl")
    rewrite(lambda row: row["scores"].update(semantic=5))
    done, _ = served(by_content, *JUDGE, "out.jsonl", "--no-cache")
    assert done.code == 64


def test_results_that_the_user_trusts_are_kept_as_they_are_once(served: Served) -> None:
    write("one\nTODO", "two")
    served(by_content, *JUDGE, "out.jsonl")
    rewrite(lambda row: row.update(verdict="accept"))
    trusted = read()
    done, asked = served(by_content, *JUDGE, "out.jsonl", "--trust-results", "--no-cache")
    assert (done.code, asked, "0 judged in" in done.err) == (0, [], True)
    for row, was in zip(read(), trusted, strict=True):
        assert row | {"fingerprint": ""} == was | {"fingerprint": ""}
    done, asked = served(by_content, *JUDGE, "out.jsonl", "--no-cache")
    assert (done.code, asked) == (0, [])
    for words in (("--trust-results", "--fresh"), ()):
        done, _ = served(by_content, "judge", "--data", "rows.jsonl", "--trust-results", *words)
        assert (done.code, "--trust-results is for an --out" in done.err) == (64, True)


def test_results_of_an_earlier_version_count_when_they_are_trusted(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("one", "two")
    with monkeypatch.context() as patch:
        patch.setattr(
            seals, "fingerprint_text", lambda text: seals.Fingerprint(environment.digest(text))
        )
        served(by_content, *JUDGE, "out.jsonl")
    rewrite(lambda row: row.update(fingerprint=row["fingerprint"].partition(".")[0]))
    assert {len(row["fingerprint"]) for row in read()} == {16}
    assert served(by_content, *JUDGE, "out.jsonl")[0].code == 64
    done, asked = served(by_content, *JUDGE, "out.jsonl", "--trust-results", "--no-cache")
    assert (done.code, asked) == (0, [])
    write("one, and more", "two")
    done, asked = served(by_content, *JUDGE, "out.jsonl", "--no-cache")
    assert (done.code, "1 judged in" in done.err) == (0, True)


def test_one_key_on_several_machines(
    served: Served, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("one")
    monkeypatch.setenv("JUDGEKIT_STATE_KEY", KEY)
    served(by_content, *JUDGE, "out.jsonl")
    shutil.rmtree(isolated / "judgekit", ignore_errors=True)
    done, asked = served(by_content, *JUDGE, "out.jsonl", "--no-cache")
    assert (done.code, asked) == (0, [])
    assert not (isolated / "judgekit" / "state-key").exists()
    for key, code in ((f"{KEY}x", 64), ("short", 78)):
        monkeypatch.setenv("JUDGEKIT_STATE_KEY", key)
        done, asked = served(by_content, *JUDGE, "out.jsonl", "--no-cache")
        assert (done.code, asked) == (code, [])
    assert "JUDGEKIT_STATE_KEY: expected at least 16 characters, got 5" in done.err


WEAK_KEYS = ["x", "x" * 40, " " * 40, "\t\n" * 20, "abab" * 10]


@pytest.mark.parametrize("key", WEAK_KEYS)
def test_a_weak_key_in_the_variable_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    write("one")
    monkeypatch.setenv("JUDGEKIT_STATE_KEY", key)
    done, asked = served(by_content, *JUDGE, "out.jsonl")
    assert (done.code, asked) == (78, [])
    assert "JUDGEKIT_STATE_KEY: expected at least" in done.err


@pytest.mark.parametrize("key", [*WEAK_KEYS, ""])
def test_a_weak_key_in_the_file_is_refused_until_it_is_deleted(
    served: Served, isolated: Path, key: str
) -> None:
    write("one")
    file = key_file(isolated, key)
    done, asked = served(by_content, *JUDGE, "out.jsonl")
    assert (done.code, asked) == (78, [])
    assert f"{file}: expected at least" in done.err
    file.unlink()  # as the message says
    assert served(by_content, *JUDGE, "out.jsonl")[0].code == 0


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused_until_they_may_not(
    served: Served, isolated: Path, mode: int
) -> None:
    write("one")
    file = key_file(isolated, KEY)
    file.chmod(mode)
    done, asked = served(by_content, *JUDGE, "out.jsonl")
    assert (done.code, asked) == (78, [])
    assert f"chmod 600 {file}" in done.err
    file.chmod(0o600)
    assert served(by_content, *JUDGE, "out.jsonl")[0].code == 0


def key_file(home: Path, key: str) -> Path:
    file = home / "judgekit" / "state-key"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(key)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("blanks", ["\n", "\r\n", "  "])
def test_blanks_behind_a_key_do_not_count(
    served: Served, monkeypatch: pytest.MonkeyPatch, blanks: str
) -> None:
    write("one")
    monkeypatch.setenv("JUDGEKIT_STATE_KEY", KEY)
    served(by_content, *JUDGE, "out.jsonl")
    monkeypatch.setenv("JUDGEKIT_STATE_KEY", KEY + blanks)
    done, asked = served(by_content, *JUDGE, "out.jsonl", "--no-cache")
    assert (done.code, asked) == (0, [])


def test_printed_rows_can_be_resumed(served: Served) -> None:
    write("one", "two")
    done, _ = served(by_content, *JUDGE[:-1])
    Path("out.jsonl").write_text(done.out)
    done, asked = served(by_content, *JUDGE, "out.jsonl", "--no-cache")
    assert (done.code, asked) == (0, [])


def test_a_table_that_a_clone_brings_is_written_again(served: Served) -> None:
    write("one\nTODO")
    served(by_content, *JUDGE, "out.csv")
    table, when = Path("out.csv"), Path("out.csv").stat().st_mtime_ns
    good = table.read_text()
    table.write_text(good.replace("reject", "accept"))
    os.utime(table, ns=(when, when))
    done, asked = served(by_content, *JUDGE, "out.csv")
    assert (done.code, asked, table.read_text()) == (0, [], good)


# What a list of batches says


@pytest.fixture
def batched(judgekit: Run, use: Use, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(batches, "POLL_SECONDS", (0.02, 0.05))
    monkeypatch.setattr(batches, "SETTLING_SECONDS", 0.05)

    def call(server: BatchServer, *words: str) -> Any:  # noqa: ANN401 - an outcome
        use(server)
        return judgekit(*JUDGE, "out.jsonl", "--batch", *words)

    return call


FORGED = """
CREATE TABLE batch (number INTEGER PRIMARY KEY AUTOINCREMENT, tag TEXT, place TEXT, file TEXT, id TEXT,
    rest TEXT{});
CREATE TABLE request (custom_id TEXT PRIMARY KEY, place TEXT, batch INTEGER, body BLOB, answer TEXT{});
INSERT INTO batch (tag, place, file, id, rest)
    VALUES ('t', '["custom", "{}", "stand-in", "/chat/completions"]', 'file-A', 'batch_9',
        '["file-VICTIM1"]');
"""


@pytest.mark.parametrize("version", ["earlier", "this"])
def test_no_file_of_the_provider_is_deleted_that_a_clone_names(
    batched: Callable[..., Any], version: str
) -> None:
    write("one")
    more = (
        ("", "")
        if version == "earlier"
        else (", is_ours INTEGER DEFAULT 1, seal TEXT", ", seal TEXT")
    )
    for words, code in (((), 64), (("--trust-results",), 0), (("--fresh",), 0)):
        for path in (Path("out.jsonl"), Path("out.jsonl.batch")):
            path.unlink(missing_ok=True)
        with BatchServer(by_content) as server:
            table = sqlite3.connect("out.jsonl.batch")
            table.executescript(FORGED.format(*more, server.base))
            table.close()
            done = batched(server, "--no-cache", *words)
            assert done.code == code, done.err
            assert not any("VICTIM" in asked.path for asked in server.requests)
            if not words:
                assert (server.requests, "1 entry does not verify" in done.err) == ([], True)
            elif "--trust-results" in words:
                assert "file-VICTIM1 at the provider may be of this run" in done.err


TAMPERED = {
    "another file": "UPDATE batch SET file = 'file-VICTIM1'",
    "another batch": "UPDATE batch SET id = 'batch_99'",
    "files to delete": """UPDATE batch SET rest = '["file-VICTIM1"]'""",
    "another address": "UPDATE batch SET place = replace(place, 'stand-in', 'costly')",
    "an answer": """UPDATE request SET answer = '[200, {"choices": []}]', body = NULL""",
    "another question": "UPDATE request SET body = replace(body, 'one', 'two')",
    "another batch, copied": "INSERT INTO batch (tag, place, file, id, rest, is_ours, seal)"
    """ SELECT 'x', place, file, id, '["file-VICTIM1"]', is_ours, seal FROM batch""",
}


@pytest.mark.parametrize("statement", TAMPERED)
def test_no_entry_counts_that_was_changed(batched: Callable[..., Any], statement: str) -> None:
    write("one")
    with BatchServer(by_content) as server:
        server.faults.append(lambda event, _: fails(401) if event == "look batches" else None)
        assert batched(server, "--no-cache").code != 0
        server.faults.clear()
        table = sqlite3.connect("out.jsonl.batch")
        table.execute(TAMPERED[statement])
        table.commit()
        table.close()
        before, kept = len(server.requests), server.kept
        done = batched(server, "--no-cache")
        assert (done.code, len(server.requests), server.kept) == (64, before, kept), done.err
        assert "1 entry does not verify" in done.err


def test_an_unchanged_one_goes_on(batched: Callable[..., Any]) -> None:
    write("one")
    with BatchServer(by_content) as server:
        server.faults.append(lambda event, _: fails(401) if event == "look batches" else None)
        assert batched(server, "--no-cache").code != 0
        server.faults.clear()
        assert batched(server, "--no-cache").code == 0
        assert (len(server.batches), server.kept) == (1, [])


@pytest.mark.parametrize(
    "name", ["out.jsonl.batch", "out.jsonl.batch-journal", "out.jsonl.batch-wal"]
)
def test_the_list_of_batches_is_no_link(
    batched: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    write("one")
    outside = tmp_path_factory.mktemp("home")
    Path(name).symlink_to(outside / ".zshenv")
    with BatchServer(by_content) as server:
        done = batched(server)
        assert (done.code, server.requests, list(outside.iterdir())) == (65, [], [])
    assert "a link" in done.err


def test_a_list_of_batches_with_a_trigger_is_none_of_ours(batched: Callable[..., Any]) -> None:
    write("one")
    with BatchServer(by_content) as server:
        with closing(sqlite3.connect("out.jsonl.batch")) as table:
            table.executescript(FORGED.format("", "", server.base))
            table.execute("CREATE TRIGGER t AFTER INSERT ON request BEGIN DELETE FROM request; END")
            table.commit()
        done = batched(server, "--trust-results")
        assert (done.code, server.requests) == (65, [])
    assert "no list of batches of judgekit; move it away" in done.err
