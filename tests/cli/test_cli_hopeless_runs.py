"""Runs over rows that can't succeed, or that give only a part of OUT: when they stop, and their messages."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, fails
from scripted import by_content

import judgekit as library
from judgekit.errors import JudgekitError

if TYPE_CHECKING:
    from loopback import Answer, Asked
    from outcome import Served, Use

pytestmark = pytest.mark.usefixtures("project")
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient", "-j", "4")
INTO = (*JUDGE, "--out", "out.jsonl")
COUNT = 40


def write(count: int = COUNT) -> None:
    rows = [{"id": n, "answer": f"answer {n}."} for n in range(count)]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


REFUSALS = [
    (401, "authentication"),
    pytest.param(403, "permission", marks=pytest.mark.slow),
    pytest.param(404, "not_found", marks=pytest.mark.slow),
    (410, "not_found"),
    (402, "payment"),
    pytest.param(451, "permission", marks=pytest.mark.slow),
    pytest.param(400, "bad_request", marks=pytest.mark.slow),
    pytest.param(418, "bad_request", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("status", "kind"), REFUSALS)
def test_a_run_stops_when_the_first_rows_are_all_refused_and_goes_on_later(
    served: Served, status: int, kind: str
) -> None:
    write()
    done, _ = served(fails(status), *INTO)
    assert (done.code, kind in done.err) == (78, True)
    assert "rows that were sent failed alike" in done.err
    assert "interrupted" not in done.err
    rows = read()
    assert 20 <= len(rows) < COUNT
    assert {row["verdict"] for row in rows} == {"undetermined"}
    assert (
        f"{COUNT - len(rows)} rows not judged, because the first {len(rows)}"
        in done.err.splitlines()[-1]
    )
    done, _ = served(by_content, *INTO)
    assert (done.code, len(read())) == (0, COUNT)
    assert {row["verdict"] for row in read()} == {"accept"}


@pytest.mark.parametrize("exit_on", ["never", "reject"])
def test_a_run_that_was_given_up_is_no_success_whatever_ends_a_build(
    served: Served, exit_on: str
) -> None:
    write()
    done, _ = served(fails(401), *INTO, "--exit-on", exit_on)
    assert done.code == 78


def test_one_answer_among_the_first_lets_a_run_go_on(served: Served) -> None:
    def answer(asked: Asked) -> Answer:
        return by_content(asked) if "answer 3." in asked.text else fails(401)

    write(24)
    done, _ = served(answer, *INTO)
    assert (done.code, len(read())) == (2, 24)


def test_requests_that_are_refused_in_other_words_stop_no_run(served: Served) -> None:
    def answer(asked: Asked) -> Answer:
        odd = " oddly" if "answer 3." in asked.text else ""
        return fails(400, f"it went{odd} wrong")

    write(24)
    done, _ = served(answer, *INTO)
    assert done.code == 2
    assert len(read()) == 24


STATUSES = {
    400: "bad_request",
    402: "payment",
    406: "bad_request",
    410: "not_found",
    415: "bad_request",
    418: "bad_request",
    423: "bad_request",
    431: "bad_request",
    451: "permission",
    501: "not_found",
}


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
def test_a_status_that_says_wrong_or_gone_is_asked_once_a_tier(
    served: Served, status: int, kind: str
) -> None:
    judge = ("judge", "good.md", "--no-cache", "--mode", "lenient", "--format", "json")
    done, asked = served(fails(status, "No more of that"), *judge)
    [verdict] = done.json
    assert {round_["failure"]["kind"] for round_ in verdict["rounds"]} == {kind}
    assert len(asked) == 3


@pytest.mark.parametrize(
    "key", ["sk-\u0430bcdefghijkl", "sk-abc…xyz", "“sk-abcdefghijkl”", "sk-abc def"]
)
def test_a_key_that_no_header_carries_is_named_before_any_call(
    served: Served, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("JUDGEKIT_API_KEY", key)
    done, asked = served(by_content, "judge", "good.md", "--no-cache", "--format", "json")
    failure = done.json[0]["rounds"][0]["failure"]
    assert failure["kind"] == "authentication"
    assert "the key in JUDGEKIT_API_KEY" in failure["message"]
    assert not asked


@pytest.mark.slow
def test_comparisons_stop_too(served: Served) -> None:
    rows = [{"id": n, "answer_a": f"a{n}", "answer_b": f"b{n}"} for n in range(COUNT)]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done, _ = served(fails(401), "compare", "--data", "rows.jsonl", "--out", "out.jsonl", "-j", "4")
    assert (done.code, len(read()) < COUNT) == (78, True)


def test_python_gets_an_error_and_the_rows_before_it(use: Use) -> None:
    rows = [{"id": n, "answer": f"answer {n}"} for n in range(COUNT)]
    found: list[Any] = []
    with Loopback(fails(401)) as server:
        use(server)
        with pytest.raises(JudgekitError, match="failed alike"):
            found.extend(library.judge_rows(rows, rubric="kls"))


def test_no_verdict_at_all_is_no_success_where_a_reject_fails_a_build(served: Served) -> None:
    write(3)
    assert served(fails(400), *JUDGE, "--exit-on", "reject")[0].code == 2
    assert served(fails(400), *JUDGE, "--exit-on", "never")[0].code == 0
    assert served(by_content, *JUDGE, "--no-cache", "--exit-on", "reject")[0].code == 0


def test_rows_of_another_model_or_beyond_the_limit_are_said(served: Served) -> None:
    write(30)
    served(by_content, *INTO, model="first")
    done, _ = served(by_content, *INTO, "--limit", "20", model="second")
    line = done.err.splitlines()[-1]
    assert line.startswith("20 of 30 rows in out.jsonl: 20 accept; 20 judged in")
    assert "rows that this run did not come to: 10 by kls@1.0.0, lenient, " in line
    done, _ = served(by_content, *INTO, model="second")
    assert done.err.splitlines()[-1].startswith("30 rows in out.jsonl: 30 accept; 10 judged in")
    assert "did not come to" not in done.err


@pytest.mark.slow
def test_a_narrow_terminal_shows_rejects_and_failures(use: Use) -> None:
    def answer(asked: Asked) -> Answer:
        return fails(400) if "answer 5." in asked.text else by_content(asked)

    rows = [{"id": n, "answer": f"answer {n}.\n{'TODO' * (n == 2)}"} for n in range(60)]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with Loopback(answer) as server:
        use(server)
        main, other = pty.openpty()
        command = [sys.executable, "-m", "judgekit", *JUDGE, "--out", "out.jsonl", "-j", "1"]
        environ = os.environ | {"COLUMNS": "80", "TERM": "xterm", "JUDGEKIT_ENGINE": "0"}
        process = subprocess.Popen(command, stderr=other, stdout=subprocess.DEVNULL, env=environ)
        os.close(other)
        shown = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:  # the terminal is closed
                break
            if not piece:
                break
            shown += piece
        process.wait()
        os.close(main)
    assert b"60 rows: 1 reject, " in shown, shown
