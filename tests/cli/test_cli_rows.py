"""`judge --data` and `compare --data`: judged, kept and refused rows, their summary, and the ends of runs."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import private_folder
from loopback import Loopback, fails, says
from scripted import by_content, scores

from judgekit.cli import progress, row_summary
from judgekit.config import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loopback import Answer, Asked
    from outcome import Run, Served, Use

pytestmark = pytest.mark.usefixtures("project")
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient")
KLS_ROWS = ("judge", "--rubric", "kls", "--mode", "lenient", "--data")
INTO = (*JUDGE, "--out", "out.jsonl")


def row(number: int, answer: str = "", **more: object) -> dict[str, Any]:
    return {"id": f"r{number}", "question": f"q{number}?", "answer": answer or f"a{number}", **more}


def write(rows: Iterable[object], path: str = "rows.jsonl") -> None:
    Path(path).write_text("".join(f"{json.dumps(each)}\n" for each in rows))


def read(path: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def last(err: str) -> str:
    return re.sub(r"\d+ s", "N s", err.splitlines()[-1])


def test_rows_become_results_and_a_second_run_judges_what_is_missing_changed_or_failed(
    served: Served,
) -> None:
    def answer(asked: Asked) -> Answer:
        return fails(400) if "unlucky" in asked.text else by_content(asked)

    write([row(1), row(2, "x\nTODO", verdict="mine"), row(3, "unlucky"), row(4, " "), row(5)])
    done, asked = served(answer, *INTO)
    assert (done.code, len(asked)) == (2, 7)  # 2 to reject, 3 to fail
    assert "text from answer, description from question; not used: verdict" in done.err
    assert last(done.err) == (
        "5 rows in out.jsonl: 2 accept, 1 reject, 2 undetermined; 5 judged in N s, 0 reused; cost unknown"
    )
    first = read()
    assert [each["id"] for each in first] == ["r1", "r2", "r3", "r4", "r5"]
    assert (first[1]["row.verdict"], first[1]["verdict"], first[1]["answer"]) == (
        "mine",
        "reject",
        "x\nTODO",
    )
    assert first[1]["scores"] == {"semantic": 1, "pragmatic": 1, "syntactic": 2}
    assert first[1]["judged"]["schema"] == "judgekit/verdict@1"
    assert first[3]["error"] == "answer: empty; nothing to judge"
    assert "row r3 has no verdict: quick" in done.err
    assert " (and 1 more)\n" in done.err
    assert "r1" not in asked[0].text, "a row's id tells a model nothing"

    write([row(1), row(2, "better"), row(3, "lucky"), row(4, "full"), row(5), row(6)])
    done, asked = served(by_content, *INTO, "--no-cache")
    assert (done.code, len(asked)) == (0, 4)
    assert last(done.err) == (
        "6 rows in out.jsonl: 6 accept; 4 judged in N s, 2 reused; cost unknown"
    )
    assert [each["id"] for each in read()] == ["r1", "r2", "r3", "r4", "r5", "r6"]
    assert read()[0] == first[0]
    for more, number in (
        (("--mode", "strict"), 12),
        (("--fresh", "--mode", "strict"), 12),
        ((), 6),
    ):
        done, asked = served(by_content, *INTO, "--no-cache", *more)
        assert (len(asked), len(read())) == (number, 6), more


def test_csv_says_the_same_as_json_lines(served: Served) -> None:
    write([row(1), row(2, "TODO\nTODO", tags=["x"])])
    served(by_content, *INTO)
    served(by_content, *JUDGE, "--out", "out.csv", "--full")
    with Path("out.csv").open(newline="") as file:
        table = [*csv.DictReader(file)]
    for cells, found in zip(table, read(), strict=True):
        assert {name: cells[name] for name in ("id", "verdict", "answer")} == {
            name: found[name] for name in ("id", "verdict", "answer")
        }
        assert {name: float(cells[f"score.{name}"]) for name in found["scores"]} == found["scores"]
        assert json.loads(cells["judged"])["scores"] == found["scores"]
    assert Path("out.csv").stat().st_mode & 0o77 == 0
    done, asked = served(by_content, *JUDGE, "--out", "out.csv", "--no-cache")
    assert (len(asked), last(done.err).partition(";")[0]) == (
        0,
        "2 rows in out.csv: 1 accept, 1 reject",
    )


def header_of(path: str) -> list[str]:
    with Path(path).open(newline="") as file:
        return next(csv.reader(file))


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_table_for_people_is_lean(served: Served, ending: str) -> None:
    write([row(1)])
    served(by_content, *JUDGE, "--out", f"out.{ending}")
    header = Path(f"out.{ending}").read_text().split("\n")[0]
    assert "reasoning" in header
    assert "judged" not in header


def test_a_report_of_a_lean_table_has_tiers_and_texts(served: Served, judgekit: Run) -> None:
    write([row(1), row(2, "TODO")])
    served(by_content, *JUDGE, "--out", "out.csv")
    found = judgekit("report", "out.csv", "--json").json
    assert found["file"] == "out.csv"
    assert found["tiers"]["quick"]["answered"] == 2
    assert found["judged_by"]


def test_a_report_of_a_changed_table_is_about_the_table(served: Served, judgekit: Run) -> None:
    write([row(1), row(2, "TODO")])
    served(by_content, *JUDGE, "--out", "out.csv")
    lines = Path("out.csv").read_bytes().split(b"\r\n")
    Path("out.csv").write_bytes(b"\r\n".join(lines[:2]))
    found = judgekit("report", "out.csv", "--json").json
    assert (found["rows"], found["tiers"]) == (1, {})


def test_the_same_run_with_full_writes_the_table_again(served: Served) -> None:
    write([row(1)])
    served(by_content, *JUDGE, "--out", "out.csv")
    _, asked = served(by_content, *JUDGE, "--out", "out.csv", "--full")
    assert asked == []
    assert "judged" in header_of("out.csv")
    served(by_content, *JUDGE, "--out", "out.csv")
    assert "judged" not in header_of("out.csv")


@pytest.mark.parametrize("more", [("--out", "out.jsonl"), ()])
def test_full_is_for_lean_tables(judgekit: Run, more: tuple[str, ...]) -> None:
    write([row(1)])
    done = judgekit(*JUDGE, "--full", *more)
    assert (done.code, "--full is for an --out in CSV or TSV" in done.err) == (64, True)


def test_without_out_results_are_printed(served: Served) -> None:
    write([row(1), row(2, "TODO\nTODO")])
    done, _ = served(by_content, *JUDGE)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert sorted(each["verdict"] for each in lines) == ["accept", "reject"]
    assert last(done.err).startswith("2 rows in standard output: 1 accept, 1 reject; 2 judged in")


WRONG: dict[str, tuple[list[Any], str]] = {
    "no object": (["[1]"], "rows.jsonl: row 1: expected a JSON object, got a list"),
    "same id": (
        [row(1), row(2), row(1)],
        "rows.jsonl: row 3, column id: row 1 has the same id 'r1'",
    ),
    "two": (
        [row(1), row(2) | {"answer": [1]}, row(3) | {"answer": {}}],
        "(1 more row cannot be read)",
    ),
    "none": ([], "rows.jsonl: no rows; nothing to judge"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_named_before_any_model_is_asked(served: Served, case: str) -> None:
    rows, message = WRONG[case]
    Path("rows.jsonl").write_text(
        "".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows)
    )
    done, asked = served(by_content, *INTO)
    assert (done.code, len(asked), Path("out.jsonl").exists()) == (65, 0, False)
    assert message in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--map text=nope", "rows.jsonl has no such column"),
        ("--id nope", "--id nope: rows.jsonl has no such column"),
        ("good.md", "--data and a path do not go together"),
        ("--task-id t", "--data and --task-id do not go together"),
        ("--max-cost 1", "no price is known for custom/stand-in"),
        ("--out rows.jsonl", "the rows are read from this file"),
        ("--out good.md", "unknown ending of a file of results"),
    ],
)
def test_options_that_do_not_fit_are_refused(served: Served, words: str, message: str) -> None:
    write([row(1)])
    done, asked = served(by_content, *JUDGE, *words.split())
    assert (done.code, len(asked)) == (64, 0)
    assert message in done.err


def test_no_second_name_of_the_rows_takes_results(served: Served) -> None:
    write([row(1)])
    Path("same.jsonl").hardlink_to("rows.jsonl")
    done, asked = served(by_content, *JUDGE, "--out", "same.jsonl", "--fresh")
    assert (done.code, len(asked), read("rows.jsonl")) == (64, 0, [row(1)])


def test_a_folder_that_is_not_there_is_said(served: Served) -> None:
    write([row(1)])
    done, asked = served(by_content, *JUDGE, "--out", "no/out.jsonl")
    assert (done.code, len(asked)) == (65, 0)
    assert (
        "no/out.jsonl: cannot be written (No such file or directory); make its folder" in done.err
    )


def test_options_of_rows_need_rows(judgekit: Run) -> None:
    for words in (("--map", "text=a"), ("--limit", "2"), ("--fresh",)):
        done = judgekit("judge", "good.md", *words)
        assert (done.code, f"{words[0]} is for rows" in done.err) == (64, True)


@pytest.mark.parametrize(
    ("answers", "words", "code"),
    [
        ("x TODO x", "", 0),
        ("x TODO x", "--exit-on reject", 1),
        ("x unlucky", "", 2),
        ("x unlucky TODO", "--exit-on reject", 1),
        ("x unlucky TODO", "--exit-on undetermined", 2),
        ("x unlucky TODO", "--exit-on never", 0),
        ("x middling", "--exit-on reject", 0),
        ("x middling", "--exit-on improve", 2),
    ],
)
def test_the_exit_code_is_for_the_outcomes_that_are_named(
    served: Served, answers: str, words: str, code: int
) -> None:
    def answer(asked: Asked) -> Answer:
        if "middling" in asked.text:
            return says(scores(3, 2, 3))
        return fails(400) if "unlucky" in asked.text else by_content(asked)

    write(row(number, f"\n{word}") for number, word in enumerate(answers.split()))
    assert served(answer, *JUDGE, *words.split())[0].code == code
    for name, word in (("a.md", "\nTODO"), ("b.md", "\nx")):
        Path(name).write_text(word)
    for names, more, expected in (
        ("a.md b.md", "", 1),
        ("a.md b.md", "--exit-on never", 0),
        ("a.md", "--exit-on undetermined", 0),
    ):
        assert (
            served(answer, "judge", *names.split(), "--no-cache", *more.split())[0].code == expected
        )


def test_a_cost_limit_is_for_the_run_and_the_next_run_goes_on(
    isolated: Path, served: Served
) -> None:
    profile = (files.get_data_folder("providers") / "openai-compatible.yaml").read_text(
        encoding="utf-8"
    )
    own = isolated / "judgekit" / "providers" / "openai-compatible.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f"{profile}\nprice: {{stand: {{input: 1000000, output: 0}}}}\n")
    write(row(number) for number in range(20))
    done, asked = served(by_content, *INTO, "--max-cost", "55", "-j", "1")  # 11 USD a call
    assert (done.code, len(asked), len(read())) == (2, 5, 5)
    assert last(done.err).endswith("55.00 USD; 15 rows not judged, because --max-cost is reached")
    done, asked = served(by_content, *INTO, "--max-cost", "0")
    assert last(done.err).startswith("5 rows in out.jsonl: 5 accept; 0 judged in N s, 5 reused")
    done, asked = served(by_content, *INTO, "-j", "4")
    assert (done.code, len(asked), len({each["id"] for each in read()})) == (0, 15, 20)


@pytest.mark.slow
def test_standard_input_is_judged_as_it_comes(use: Use) -> None:
    with Loopback(by_content) as server:
        use(server)
        words = [sys.executable, "-m", "judgekit", *JUDGE, "--data", "-"]
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert child.stdin is not None
        assert child.stdout is not None
        for number in (1, 2):
            child.stdin.write(f"{json.dumps(row(number))}\n".encode())
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["id"] == f"r{number}"
        child.stdin.write(f"{{\n{json.dumps(row(3))}\n".encode())
        _, err = child.communicate(timeout=60)
        assert child.returncode == 65
        assert b"standard input: row 3: expected a JSON object" in err
        assert err.splitlines()[-1].startswith(b"2 rows in standard output: 2 accept")


def test_columns_conversations_and_what_a_rubric_does_not_take(served: Served) -> None:
    turns = [
        {"role": "user", "content": "Which port?"},
        {"role": "assistant", "content": "Port 5432."},
    ]
    write([{"n": 7, "messages": turns, "gold": "5432", "label": "accept"}])
    done, asked = served(by_content, *JUDGE, "--id", "n", "--show-prompt")
    assert not asked
    assert "kls@1.0.0 takes no reference: no model sees gold" in done.err
    assert "5432\n" not in done.out
    by_reference = (*JUDGE[:3], "--rubric", "answer-correctness", "--id", "n")
    done, _ = served(by_content, *by_reference, "--show-prompt")
    assert "5432\n" in done.out
    assert "takes no" not in done.err
    done, asked = served(by_content, *JUDGE, "--id", "n")
    assert last(done.err).endswith("1 of 1 labels agree (100%)")
    assert "Which port?" in asked[0].text
    assert json.loads(done.out)["id"] == 7


def test_pairs_of_a_dataset_are_compared(served: Served) -> None:
    def better(asked: Asked) -> Answer:
        [name] = re.findall(r"The text (\w+):\s+<[^>]*>\s+good", asked.text)
        return says(json.dumps({"reasoning": "It is better.", "better": name}))

    write(
        [
            {"prompt": "p", "answer_a": "good", "answer_b": "bad", "winner": "A"},
            {"prompt": "p", "answer_a": "bad", "answer_b": "good", "winner": "A"},
        ]
    )
    done, _ = served(better, "compare", "--data", "rows.jsonl", "--out", "out.jsonl")
    assert done.code == 0, done.err
    assert [each["id"] for each in read()] == [1, 2]
    assert last(done.err).endswith("1 of 2 labels agree (50%)")
    done, asked = served(
        better, "compare", "--data", "rows.jsonl", "--out", "out.jsonl", "--no-cache"
    )
    assert not asked


class Held:
    """Answers the first rows, and then holds all others until it is released."""

    def __init__(self, free: int) -> None:
        self.free, self.count, self.lock = free, 0, threading.Lock()
        self.reached, self.released = threading.Event(), threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        with self.lock:
            self.count += 1
            held = self.count > self.free
            if self.count == self.free + 4:
                self.reached.set()
        if held:
            self.released.wait(60)
        return by_content(asked)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["0", "1"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_goes_on_where_it_was(
    use: Use, monkeypatch: pytest.MonkeyPatch, engine: str, number: signal.Signals
) -> None:
    rows = 60
    write(row(each) for each in range(rows))
    words = [sys.executable, "-m", "judgekit", *INTO, "--no-cache", "-j", "4"]
    held = Held(25)
    with private_folder() as folder, Loopback(held) as server:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        monkeypatch.setenv("JUDGEKIT_ENGINE", engine)
        use(server)
        child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert held.reached.wait(60)
        child.send_signal(number)
        _, err = child.communicate(timeout=30)
        found = Counter(each["id"] for each in read())
        assert set(found.values()) <= {1}
        if number == signal.SIGINT:
            assert child.returncode == 130
            assert last(err).startswith("interrupted: ")
            assert last(err).endswith("run the same command to continue")
        else:
            assert child.returncode == -number
        held.released.set()
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert Counter(each["id"] for each in read()) == dict.fromkeys(
            (f"r{each}" for each in range(rows)), 1
        )
        assert held.count <= rows + 4
        assert f"{len(found)} reused" in last(done.stderr)


@pytest.mark.slow
def test_ctrl_c_gives_what_is_in_flight_its_time(use: Use) -> None:
    write(row(each) for each in range(30))
    held = Held(10)
    with Loopback(held) as server:
        use(server)
        words = [sys.executable, "-m", "judgekit", *INTO, "-j", "4"]
        child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert held.reached.wait(60)
        child.send_signal(signal.SIGINT)
        held.released.set()
        _, err = child.communicate(timeout=30)
        count = len(read())
        assert child.returncode == 130
        assert 14 <= count < 30  # one or two more are taken before the signal is seen
        assert f"interrupted: {count} rows in out.jsonl: {count} accept; {count} judged in" in err


def test_one_row_is_one_row_and_a_need_of_rows_is_said_for_rows(served: Served) -> None:
    write([row(1)])
    done, _ = served(by_content, *INTO)
    assert last(done.err).startswith("1 row in out.jsonl: 1 accept; ")
    done, asked = served(by_content, "judge", "--data", "rows.jsonl", "--rubric", "groundedness")
    assert (done.code, asked) == (2, [])
    assert "row r1 has no verdict: not judged: groundedness@1.0.0 needs sources; " in done.err
    assert "--map sources=COLUMN" in done.err
    write([{"chosen": "a", "rejected": "b", "prompt": "p"}], "pairs.jsonl")
    done, _ = served(by_content, "judge", "--data", "pairs.jsonl")
    assert (done.code, "compare these texts with judgekit compare --data" in done.err) == (64, True)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_progress_stays_on_one_line(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("judgekit.cli.progress.is_watched", lambda: True)
    words = Counter(accept=31_234, improve=4_000, reject=6_000, undetermined=32)
    run: Any = SimpleNamespace(
        judged_count=41_234,
        kept_count=800,
        verdict_counts=words,
        spent_usd=12.5,
        is_local=False,
        unpriced_count=3,
        waits_for="",
    )
    with progress.follow(
        lambda: row_summary.describe_progress(run, 1_000_000, time.monotonic() - 60)
    ):
        pass
    shown = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", capsys.readouterr().err).strip().split("\r")
    assert {len(line) <= width for line in shown} == {True}
    assert all(line.startswith("42,034 of 1,000,000 rows") for line in filter(str.strip, shown))
    assert len({*filter(str.strip, shown)}) <= 2  # two moments, not two halves


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
def test_a_folder_of_rows_stays_inside_itself(
    served: Served, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("private")
    write([row(9, "private")], str(outside / "history.jsonl"))
    Path("_data/deep").mkdir(parents=True)
    write([row(1)], "_data/a.jsonl")
    write([row(2)], "_data/deep/b.jsonl")
    write([row(3)], "_data/deep/_hidden.jsonl")
    Path("_data/link.jsonl").symlink_to(outside / "history.jsonl")
    Path("_data/linked").symlink_to(outside)
    Path("_data/near.jsonl").symlink_to("a.jsonl")
    Path("also").symlink_to("_data")
    here = Path.cwd()
    for name in (
        "_data",
        "./_data",
        "_data/",
        "also",
        str(here / "_data"),
        (here / "_data").as_uri(),
    ):
        done, asked = served(by_content, *KLS_ROWS, name, "--out", "out.jsonl", "--fresh")
        assert (done.code, [each["id"] for each in read()]) == (0, ["r1", "r2"]), (name, done.err)
        assert not any("private" in each.text for each in asked)


FORMULAS = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    " =2",
    "\uff1d1",
    "'=1",
    "- a list",
    "-1",
)


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_no_spreadsheet_calculates_what_a_row_says(served: Served, ending: str) -> None:
    write([{"id": text, "=answer": text, "number": -1.5} for text in FORMULAS])
    out, sheet = f"out.{ending}", f"sheet.{ending}"
    done, _ = served(by_content, *JUDGE, "--map", "text==answer", "--out", out)
    assert done.code == 0, done.err
    with Path(out).open(newline="") as file:
        cells = list(csv.reader(file, delimiter="," if ending == "csv" else "\t"))
    assert (cells[0][0], cells[0][1]) == ("'=answer", "number")
    shown = [*(f"'{text}" for text in FORMULAS[:-1]), "-1"]
    assert [line[0] for line in cells[1:]] == shown
    assert {line[1] for line in cells[1:]} == {"-1.5"}
    done, _ = served(by_content, "report", out, "--sample", "99", "--labels", sheet)
    assert (done.code, f"{len(FORMULAS)} rows added" in done.out) == (0, True), done.err
    text = Path(sheet).read_text()
    assert "'=answer" in text
    done, _ = served(by_content, "report", out, "--sample", "99", "--labels", sheet)
    assert "0 rows added" in done.out, "each id is known"
    write([{"id": text, "label": "accept"} for text in FORMULAS], "labels.jsonl")
    done, _ = served(by_content, "report", out, "--labels", "labels.jsonl", "--json")
    assert f'"labelled": {len(FORMULAS)}' in done.out or str(len(FORMULAS)) in done.out


BOMBS = {
    "one text in all rows": lambda pa: pa.DictionaryArray.from_arrays(pa.array([0] * 64), [TEXT]),
    "a list of one text": lambda pa: pa.ListArray.from_arrays(
        pa.array([0, 64]), pa.DictionaryArray.from_arrays(pa.array([0] * 64), [TEXT])
    ),
    "texts that compress": lambda pa: pa.array([TEXT] * 30),
    "a long list of nothing": lambda pa: pa.ListArray.from_arrays(
        pa.array([0, 30_000_000], pa.int32()), pa.nulls(30_000_000, pa.int8())
    ),
    "a text inside": lambda pa: pa.StructArray.from_arrays(
        [pa.DictionaryArray.from_arrays(pa.array([0] * 64), [TEXT])], ["text"]
    ),
}
TEXT = "x" * 40_000_000


MEASURED = """
import resource, subprocess, sys
command = [sys.executable, "-m", "judgekit", *sys.argv[1:]]
nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
done = subprocess.run(command, stdout=nothing, stderr=pipe, check=False)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.stderr.decode())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="where kilobytes are counted")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_of_parquet_takes_no_gigabytes(bomb: str) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"id": BOMBS[bomb](pa)}), "bomb.parquet", compression="zstd")
    assert Path("bomb.parquet").stat().st_size < 200_000
    command = [sys.executable, "-c", MEASURED, "report", "bomb.parquet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, kilobytes, told = done.stdout.split(" ", 2)
    assert (code, "Traceback" in told) == ("65", False), told
    assert int(kilobytes) < 900_000


ONE_TEXT = "x" * 50_000_000
READERS = {
    "judge": (
        "judge",
        "--data",
        "bomb.parquet",
        "--rubric",
        "kls",
        "--mode",
        "lenient",
        "--limit",
        "1",
    ),
    "report": ("report", "bomb.parquet"),
}


def repeat_in_dictionary(pa: Any, parquet: Any, path: str) -> None:  # noqa: ANN401 - modules
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 64), [ONE_TEXT])
    write_bomb(pa, parquet, path, texts)


def repeat_by_prefix(pa: Any, parquet: Any, path: str) -> None:  # noqa: ANN401 - modules
    options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    write_bomb(pa, parquet, path, pa.array([ONE_TEXT] * 40), **options)


def repeat_fixed(pa: Any, parquet: Any, path: str) -> None:  # noqa: ANN401 - modules
    value = b"x" * 5_000_000
    write_bomb(pa, parquet, path, pa.array([value] * 200, pa.binary(len(value))))


def write_bomb(pa: Any, parquet: Any, path: str, texts: Any, **options: Any) -> None:  # noqa: ANN401
    count = len(texts)
    verdicts = pa.array(["reject"] * count)
    table = pa.table({"id": pa.array(range(count)), "text": texts, "verdict": verdicts})
    options.setdefault("use_dictionary", ["text"])
    parquet.write_table(table, path, compression="zstd", **options)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="where kilobytes are counted")
@pytest.mark.parametrize("repeat", [repeat_in_dictionary, repeat_by_prefix, repeat_fixed])
@pytest.mark.parametrize("reader", READERS)
def test_a_long_text_in_all_rows_is_in_memory_a_few_times(
    reader: str, repeat: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    repeat(pa, parquet, "bomb.parquet")
    assert Path("bomb.parquet").stat().st_size < 20_000
    monkeypatch.setenv("JUDGEKIT_ENGINE", "0")
    command = [sys.executable, "-c", MEASURED, *READERS[reader]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, kilobytes, told = done.stdout.split(" ", 2)
    assert "Traceback" not in told
    assert code in ["0", "2", "64", "65", "78"]
    assert int(kilobytes) < 900_000


# Files of rows as people see them


@pytest.mark.parametrize("key", ["functionCall", "functionResponse", "function"])
@pytest.mark.parametrize("value", ["x", [1], 7])
def test_a_part_that_is_no_call_is_named_with_row_and_column(
    judgekit: Run, key: str, value: object
) -> None:
    part = {"type": "function_call", key: value} if key == "function" else {key: value}
    messages = [{"role": "user", "content": "q"}, {"role": "model", "parts": [part]}]
    write([{"id": 1, "messages": messages}])
    done = judgekit(*JUDGE, "--show-prompt")
    assert done.code == 65
    assert "row 1, column messages:" in done.err
    assert f"expected an object as {key}, got " in done.err


@pytest.mark.parametrize("separator", [";", ",", "\t"])
def test_the_first_line_of_excel_is_no_header(judgekit: Run, separator: str) -> None:
    lines = [f"sep={separator}", f"id{separator}answer", f"1{separator}x"]
    Path("rows.csv").write_bytes("\r\n".join(lines).encode())
    done = judgekit(*KLS_ROWS, "rows.csv", "--show-prompt")
    assert "text from answer" in done.err
    assert "=== judge row 1:" in done.out


def test_rows_of_nothing_but_commas_are_no_rows(served: Served) -> None:
    Path("rows.csv").write_text("id,answer\n1,x\n,\n,\n")
    done, _ = served(by_content, *KLS_ROWS, "rows.csv", "--out", "out.jsonl")
    assert done.code == 0
    assert [each["id"] for each in read()] == ["1"]


def test_a_column_with_a_blank_is_quoted_in_what_to_type(judgekit: Run) -> None:
    write([{"id": 1, " Output": "x", " Response": "y"}])
    done = judgekit(*JUDGE)
    assert "choose with --map 'text= Output' or --map 'text= Response'" in done.err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_document_in_utf_16_is_named(judgekit: Run, encoding: str) -> None:
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    Path("a.md").write_bytes(mark + "# Title".encode(encoding))
    done = judgekit("judge", "a.md", "--rubric", "kls", "--mode", "lenient")
    assert done.code == 65
    assert "a.md: this is UTF-16; save it as UTF-8" in done.err
