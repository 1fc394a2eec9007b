"""`judgekit search` and `index`; without any package the plugin's `search` answers as with them."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
import sample_store
from loopback import SILENT, Answer, Asked, fails, says
from memory_store import MemoryStore
from outcome import Outcome, Run, Served, by_project

import judgekit as package
from judgekit import environment
from judgekit.cli import plain
from judgekit.judging.search import Result
from judgekit.retrieval import update

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(package.__file__).parents[1]
QUERY = "refresh the JWT"
STORE = ".claude/memory"


def keeping(*titles: str) -> Callable[[Asked], Answer]:

    def answer(asked: Asked) -> Answer:
        listed = [line for line in asked.text.splitlines() if re.match(r"\[\w{4}\] ", line)]
        return says(
            json.dumps(
                {"keep": [line[1:5] for line in listed if any(each in line for each in titles)]}
            )
        )

    return answer


keeping_all = keeping("")


def test_the_json_form_is_a_contract_and_people_read_titles_and_paths(
    judgekit: Run, project: Path
) -> None:
    done = judgekit("search", QUERY, "--json")
    assert set(done.json) == {"query", "mode", "degraded", "results", "duration_ms"}
    assert (done.json["query"], done.json["mode"], done.json["degraded"]) == (
        QUERY,
        "lenient",
        None,
    )
    first = done.json["results"][0]
    # These are said only of what is long, out of force, old, alike or judged.
    now_and_then = ("section", "line", "also", "status", "age", "alike", "alike_paths", "because")
    always = [name for name in Result.model_fields if name not in now_and_then]
    assert [name for name in first if name not in now_and_then] == always
    assert (first["id"], first["title"]) == (sample_store.JWT.id, sample_store.JWT.title)
    assert first["path"] == sample_store.JWT.path
    assert (first["kept_by"], first["confidence_label"], done.code) == ("bm25", "high", 0)
    lines = judgekit("search", QUERY).out.splitlines()
    assert lines[0] == f" 1. {sample_store.JWT.title}"
    assert sample_store.JWT.path in lines[1]
    for query in ('"', "NEAR(", "a OR b*", "\ud800 refresh", "x" * 1_000_000, "-"):
        assert judgekit("search", query, "--json").code == 0


@pytest.mark.parametrize("answer", [SILENT, fails(500), says("?")])
def test_when_no_model_answers_bm25_does(
    judgekit: Run, project: Path, served: Served, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setenv("JUDGEKIT_JUDGE_DEADLINE", "1")
    alone = judgekit("search", QUERY, "--json").json["results"]
    start = time.monotonic()
    done, _ = served(answer, "search", QUERY, "--judge", "--json")
    assert time.monotonic() - start < 20
    assert [each["id"] for each in done.json["results"]] == [each["id"] for each in alone]
    assert re.match(r"quick(, deep, tiebreaker)?: \w+ \(", done.json["degraded"])
    assert done.err.startswith("judgekit: no model decided, so BM25 did: quick")
    assert (done.err.count("\n"), done.code) == (1, 0)


def test_without_judge(
    judgekit: Run, project: Path, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    layout = tmp_path / "index.sql"
    layout.write_text("CREATE VIRTUAL TABLE text USING fts5_that_is_missing(a)", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(update, "LAYOUT", str(layout))
        for query, first in ((QUERY, [sample_store.JWT.id]), ("zeppelin", [])):
            done, asked = served(says("{}"), "search", query, "--judge", "--json")
            assert (done.json["degraded"], done.code) == (
                "no model is asked without full-text search",
                0,
            )
            assert ([each["id"] for each in done.json["results"]][:1], asked) == (first, [])
    monkeypatch.delenv("JUDGEKIT_API_BASE")
    monkeypatch.delenv("JUDGEKIT_MODEL")
    done = judgekit("search", QUERY, "--judge", "--json")
    assert done.json["results"]
    assert done.json["degraded"].startswith("no model found: set a provider's key")
    assert done.err.count("\n") == 1


def test_nothing_found_is_said(
    judgekit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = judgekit("search", QUERY)
    assert (done.code, done.out) == (0, "nothing found\n")
    assert done.err == "judgekit: no store found (.claude/memory); name one with --root\n"
    (tmp_path / STORE).mkdir(parents=True)
    for words in ((QUERY,), ("zeppelin",), (QUERY, "--root", "claude:auto")):
        done = judgekit("search", *words)
        assert (done.code, done.out) == (0, "nothing found\n")
        assert done.err.count("\n") == 1
    by_project("retrieval:\n  pool: many\n")
    done = judgekit("search", QUERY)
    assert (done.code, done.out, done.err.count("\n")) == (78, "", 1)
    assert "config.yaml:2: retrieval.pool: expected a whole number" in done.err


@pytest.mark.parametrize("names", [(), ("report.pdf", "code.py"), ("node_modules/a.md",)])
def test_a_folder_with_nothing_that_is_read_says_so(
    judgekit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    for name in names:
        path = tmp_path / "notes" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("# The walrus\n")
    done = judgekit("search", "walrus", "--root", "notes")
    assert done.out == "nothing found\n"
    assert done.err.startswith(
        f"judgekit: {tmp_path}/notes: nothing to search in it; judgekit reads "
    )
    assert ".md, .mdx, .rst, .txt" in done.err


def test_the_doctor_names_the_memory_that_a_pin_may_mean(judgekit: Run, project: Path) -> None:
    name = sample_store.JWT.id
    by_project(f"retrieval: {{pin: ['{name}', '{name}x']}}\n")
    lines = [line for line in judgekit("doctor").out.splitlines() if "retrieval.pin" in line]
    assert len(lines) == 1
    place = sample_store.JWT.path.removeprefix(f"{STORE}/")
    assert lines[0].endswith(f"did you mean '{place}'?")


def test_the_doctor_says_that_a_store_holds_nothing(judgekit: Run, project: Path) -> None:
    shutil.rmtree(project / STORE)
    (project / STORE).mkdir()
    done = judgekit("doctor")
    assert f"note   store {STORE}: {project / STORE}: nothing to search in it" in done.out
    assert f"ok     store {STORE}" not in done.out


def test_a_wrong_path_in_a_stores_list_hides_no_memory(judgekit: Run, project: Path) -> None:
    store = project / STORE
    (store / "team").mkdir()
    (store / "team" / "walrus.json").write_text('{"title": "The walrus swims"}')
    with (store / "index.md").open("a") as file:
        file.write("- [DECISION] The walrus swims -> .claude/memory/teams/walrus.json\n")
    done = judgekit("search", "walrus")
    assert "The walrus swims" in done.out
    assert "teams/walrus.json (found at team/walrus.json)" in done.err


@pytest.mark.parametrize(
    "words", [("search", QUERY, "--no-engine"), ("judge", "good.md"), ("cache", "clear")]
)
def test_a_python_without_sqlite_is_said_in_one_sentence(
    project: Path, isolated: Path, words: tuple[str, ...]
) -> None:
    code = "import sys; sys.modules['_sqlite3'] = None; from judgekit.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=project, capture_output=True, timeout=60, check=False)
    assert done.returncode == 78
    lines = done.stderr.decode().splitlines()
    assert [line for line in lines if "SQLite" in line] == lines
    assert "internal error" not in lines[0]


def test_a_root_starts_at_the_current_folder_and_may_be_anywhere(
    judgekit: Run,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def paths(*roots: str) -> list[str]:
        options = [word for root in roots for word in ("--root", root)]
        done = judgekit("search", QUERY, *options, "--json")
        assert done.err == ""
        return [each["path"] for each in done.json["results"]]

    inner, notes = project / "src", tmp_path_factory.mktemp("notes")
    (inner / "docs").mkdir(parents=True)
    for folder in (inner / "docs", notes):
        (folder / "jwt.md").write_text("# Refreshing a JWT by hand\n\nCall the refresh endpoint.\n")
    assert set(paths("src/docs", STORE)[:2]) == {"src/docs/jwt.md", sample_store.JWT.path}
    assert paths(str(notes)) == [str(notes.resolve() / "jwt.md")]
    monkeypatch.chdir(inner)
    assert paths("docs") == ["src/docs/jwt.md"]
    assert paths(f"../{STORE}")[0] == sample_store.JWT.path
    monkeypatch.chdir(project)
    for root in ("missing", "good.md", "", "~nobody-of-this-name/x", "\ud800"):
        done = judgekit("search", QUERY, "--root", root, "--root", STORE)
        assert (done.code, done.out, done.err.count("\n")) == (65, "", 1)
        assert "no such folder" in done.err
    (project / STORE).rename(notes / "memory")
    (project / STORE).symlink_to(notes / "memory")
    done = judgekit("search", QUERY)
    assert (done.code, done.out, done.err.count("\n")) == (0, "nothing found\n", 1)
    assert done.err.startswith("judgekit: .claude/memory: outside the project")


def test_how_many_results(
    judgekit: Run, tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(tmp_path)
    for each in range(20):  # each a little longer than the one before
        store.add(f"m{each:02}", f"Lantern {each:02}", " ".join(["lantern", *["oil"] * each]))
    monkeypatch.chdir(tmp_path)
    for number, most in (([], 10), (["-n", "12"], 12), (["-n", "3"], 3)):
        for judge, kept_by in ((["--judge"], {"quick"}), ([], {"bm25"})):
            done, asked = served(keeping_all, "search", "lantern", *number, *judge, "--json")
            assert len(done.json["results"]) == most
            assert {each["kept_by"] for each in done.json["results"]} == kept_by
            shown = {word for each in asked for word in re.findall(r"Lantern \d\d", each.text)}
            assert len(shown) == (
                20 if judge else 0
            )  # the pool of a search; the hook's is configured
    found = judgekit("search", "lantern", "-n", "20", "--json").json["results"]
    alone = [each["title"] for each in found]
    done, _ = served(
        keeping(*alone[3:]), "search", "lantern", "--judge", "--mode", "strict", "--json"
    )
    assert [each["title"] for each in done.json["results"]] == alone[3:13]


@pytest.mark.parametrize(
    ("mode", "because"),
    [("lenient", "quick needs no confirmation"), ("strict", "quick and deep agree")],
)
@pytest.mark.usefixtures("project")
def test_each_result_says_why_its_judging_ended(served: Served, mode: str, because: str) -> None:
    done, _ = served(keeping_all, "search", QUERY, "--judge", "--mode", mode, "--json")
    assert {result["because"] for result in done.json["results"]} == {because}


@pytest.mark.usefixtures("project")
def test_a_result_on_which_no_tier_decided_says_why(served: Served) -> None:
    done, _ = served(fails(400), "search", QUERY, "--judge", "--json")
    reasons = {(result["kept_by"], result["because"]) for result in done.json["results"]}
    assert reasons == {("bm25", "a confirmation is missing")}


@pytest.mark.usefixtures("project")
def test_what_no_model_judged_has_no_reason(judgekit: Run) -> None:
    done = judgekit("search", QUERY, "--json")
    assert not any("because" in result for result in done.json["results"])


KEYS = {
    *("root", "path", "kind", "entries", "files", "pending", "problems", "bytes", "generation"),
    *("updated", "stale"),
}


def test_status_says_what_a_query_has_read(judgekit: Run, project: Path) -> None:
    store = (project / STORE).resolve()

    def status() -> tuple[dict[str, object], str]:
        (found,) = judgekit("index", "status", "--json").json["roots"]
        return found, judgekit("index", "status").out

    found, shown = status()
    assert (set(found), found["root"], found["path"], found["stale"]) == (
        KEYS,
        str(store),
        None,
        True,
    )
    assert not Path(environment.INDEXES.path()).exists()
    judgekit("search", QUERY)
    found, shown = status()
    assert (found["kind"], found["pending"], found["stale"]) == ("claude-memory", 0, False)
    assert 0 < int(str(found["entries"])) <= int(str(found["files"]))
    assert (str(found["updated"]).endswith("+00:00"), "up to date" in shown) == (True, True)
    (store / "decisions" / "broken.json").write_text("{")
    for _ in range(2):  # it is left so
        found, shown = status()
        assert (found["stale"], "stale" in shown) == (True, True)
    judgekit("search", QUERY)
    found, shown = status()
    assert "problem: decisions/broken.json: not valid JSON; found by name only" in shown
    Path(str(found["path"])).write_bytes(b"garbage" * 1000)
    done = judgekit("index", "status")
    assert (done.code, "the index is damaged" in done.out) == (0, True)


def test_a_locked_index_says_so_in_one_line(judgekit: Run, project: Path) -> None:
    judgekit("search", QUERY)
    (found,) = judgekit("index", "status", "--json").json["roots"]
    with closing(sqlite3.connect(found["path"], isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("UPDATE about SET value = value")
        (locked,) = judgekit("index", "status", "--json").json["roots"]
        searched = judgekit("search", QUERY)
    assert locked["problems"] == [
        "another process has locked the index; until it ends, queries read the files themselves"
    ]
    assert sample_store.JWT.path in searched.out
    assert searched.err == ""


def test_index_rebuild(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    store = (project / STORE).resolve()
    judgekit("search", QUERY)
    done = judgekit("index", "rebuild")
    assert (done.code, done.err) == (0, "")
    assert f"{store}: claude-memory, " in done.out
    (found,) = judgekit("index", "status", "--json").json["roots"]
    assert (found["generation"], found["stale"]) == (1, False)
    done = judgekit("index", "rebuild", "--root", ".", "--root", str(store))
    kinds = [line.partition(",")[0].rpartition(": ")[2] for line in done.out.splitlines()]
    assert kinds == ["markdown", "claude-memory"]
    missing = judgekit("index", "status", "--root", "none")
    assert (missing.code, "none: no such folder" in missing.err) == (65, True)
    monkeypatch.chdir(isolated)
    done = judgekit("index", "status")
    assert (done.code, done.out) == (0, "")
    assert "no store found; name one with --root" in done.err


@pytest.fixture
def alone(project: Path) -> Run:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.modules['pydantic'] = None\n"
    code += "from judgekit.cli import plain; sys.exit(plain.main(sys.argv[1:]))"

    def call(*arguments: str) -> Outcome:
        command = [sys.executable, "-I", "-S", "-c", code, *arguments]
        done = subprocess.run(command, cwd=project, capture_output=True, timeout=60, check=False)
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.mark.parametrize(
    "options",
    [
        (QUERY,),
        (QUERY, "-n", "1"),
        ("database tables", "--mode", "strict"),
        ("quokka",),
        ("document", "--root", "."),
        ("refresh", "--root", STORE, "--root", "claude:auto", "--no-judge"),
        ("ü \ud83d\ude00 🎉 refresh".encode("utf-16", "surrogatepass").decode("utf-16"),),
    ],
)
def test_its_json_is_the_real_commands_json(
    judgekit: Run, alone: Run, options: tuple[str, ...]
) -> None:
    expected, outcome = judgekit("search", "--json", *options), alone("search", "--json", *options)
    assert (outcome.code, outcome.err) == (expected.code, expected.err)
    assert outcome.code == 0
    missing = "no such folder, so it is not searched"
    assert all("claude:auto: " in line and missing in line for line in outcome.err.splitlines())
    assert bool(outcome.err) == ("claude:auto" in options)
    assert outcome.json | {"duration_ms": 0} == expected.json | {"duration_ms": 0}
    assert list(outcome.json) == list(expected.json)


def test_a_person_reads_titles_and_paths_and_that_no_model_judged(
    alone: Run, project: Path
) -> None:
    lines = alone("search", QUERY).out.splitlines()
    assert (lines[0], lines[1].split()[0]) == (sample_store.JWT.title, sample_store.JWT.path)
    done = alone("search", QUERY, "--judge", "--json")
    assert done.json["degraded"] == "the plugin has no judge"
    assert (done.code, done.err) == (0, "judgekit: the plugin has no judge\n")
    by_project("retrieval: {max_inject: 2}\n")  # which a Python without packages cannot read
    done = alone("search", QUERY, "--json")
    assert (done.code, done.json["results"][0]["title"]) == (0, sample_store.JWT.title)
    assert (done.err.count("\n"), "defaults" in done.err) == (1, True)


def test_what_is_wrong_is_one_line(alone: Run) -> None:
    for words, code in (
        ("search", 64),
        ("search x --no-j", 64),  # options have one spelling
        ("search x -n many", 64),
        ("search x --mode mild", 64),
        ("search x --root nosuch", 65),
        ("", 78),
        ("judge a.md", 78),
        ("--version", 78),
    ):
        done = alone(*words.split())
        assert (done.code, done.out, done.err.count("\n")) == (code, "", 1), words
        assert done.err.startswith("judgekit: ")
        assert (f"pip install '{ROOT}'" in done.err) == (code == 78)
    done = alone("hook", "--explain", "How do we refresh the JWT?")
    assert (done.code, sample_store.JWT.title in done.out) == (0, True)
    done = alone("search", "--help")
    assert (done.code, "--root" in done.out) == (0, True)


def test_what_an_agent_may_run_unasked_stays_so(
    judgekit: Run, alone: Run, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (project / "linked").symlink_to(tmp_path_factory.mktemp("notes"))
    out = "outside the project"
    for options, said in (
        (("--judge",), "--judge and --no-judge cannot be combined"),
        *((("--root", root), out) for root in ("..", "linked")),
        *((("--root", STORE, "--root", "/"), out), (("--root=~",), out)),
    ):
        for words in (("--no-judge", "--json", *options), (*options, "--json", "--no-judge")):
            for run in (judgekit, alone):
                done = run("search", "x", *words)
                assert (done.code, done.out, done.err.count("\n")) == (64, "", 1)
                assert said in done.err


@pytest.mark.usefixtures("project")
def test_broken_pipes_and_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.dup2", lambda old, new: None)
    told = "judgekit: internal error (ZeroDivisionError: by nothing)\n"
    faults = {BrokenPipeError(): (141, ""), ZeroDivisionError("by nothing"): (70, told)}
    for fault, expected in faults.items():
        monkeypatch.setattr(plain, "_print", Mock(side_effect=fault))
        assert (plain.main(["search", QUERY]), capsys.readouterr().err) == expected
