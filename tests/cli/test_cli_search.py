from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
import sample_store
from loopback import DRIP, RESET, SILENT, Answer, Asked, Loopback, fails, says
from memory_store import MemoryStore

from judgekit.retrieval import update

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome

    Judgekit = Callable[..., Outcome]
    Use = Callable[[Loopback], None]

QUERY = "refresh the JWT"
FIELDS = "id path title category tags snippet bm25 confidence confidence_label kept_by"
LENIENT = "Is this memory related to the request, even indirectly?"
STRICT = "Is this memory directly relevant to the request"


def listed(asked: Asked) -> list[str]:
    """Return the lines of a request that list candidates, each with its label in brackets."""
    return [line for line in asked.text.splitlines() if re.match(r"\[\w{4}\] ", line)]


def keeping(*titles: str) -> Callable[[Asked], Answer]:
    """Keep the candidates of these titles, whatever their labels are."""

    def answer(asked: Asked) -> Answer:
        kept = [line[1:5] for line in listed(asked) if any(title in line for title in titles)]
        return says(json.dumps({"keep": kept}))

    return answer


keeping_all = keeping("")


def lanterns(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write memories that all speak of lanterns, each a little longer than the one before."""
    store = MemoryStore(project)
    for each in range(20):
        store.add(f"m{each:02}", f"Lantern {each:02}", " ".join(["lantern", *["oil"] * each]))
    monkeypatch.chdir(project)


def text_of(server: Loopback) -> str:
    return "\n".join(asked.text for asked in server.requests)


def test_the_json_form_is_a_contract_and_a_person_reads_titles_and_paths(
    judgekit: Judgekit, project: Path
) -> None:
    done = judgekit("search", QUERY, "--json")
    assert set(done.json) == {"query", "mode", "degraded", "results", "duration_ms"}
    assert (done.json["query"], done.json["mode"], done.json["degraded"]) == (QUERY, "lenient", None)
    first = done.json["results"][0]
    assert set(first) == set(FIELDS.split())
    assert (first["id"], first["title"]) == (sample_store.JWT.id, sample_store.JWT.title)
    assert first["path"] == sample_store.JWT.path
    assert (first["kept_by"], first["confidence_label"], done.code) == ("bm25", "high", 0)
    lines = judgekit("search", QUERY).out.splitlines()
    assert lines[0] == f" 1. {sample_store.JWT.title}"
    assert sample_store.JWT.path in lines[1]


def test_the_judge_decides_what_is_kept(judgekit: Judgekit, project: Path, use: Use) -> None:
    query = "JWT refresh queue backlog billing tables"
    alone = judgekit("search", query, "--json").json["results"]
    assert len(alone) >= 2
    with Loopback(keeping(alone[-1]["title"])) as server:
        use(server)
        judged = judgekit("search", query, "--judge", "--mode", "strict", "--json").json
    assert [each["id"] for each in judged["results"]] == [alone[-1]["id"]]
    assert (judged["results"][0]["kept_by"], judged["degraded"]) == ("deep", None)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "answer", [SILENT, DRIP, RESET, fails(401), fails(429, retry_after=9), fails(500), says("?")]
)
@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_when_no_model_answers_bm25_does(
    judgekit: Judgekit,
    project: Path,
    use: Use,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    mode: str,
) -> None:
    monkeypatch.setenv("JUDGEKIT_JUDGE_DEADLINE", "1")
    alone = judgekit("search", QUERY, "--json").json["results"]
    start = time.monotonic()
    with Loopback(answer) as server:
        use(server)
        done = judgekit("search", QUERY, "--judge", "--mode", mode, "--json")
    assert time.monotonic() - start < 20
    ids = [each["id"] for each in done.json["results"]]
    sure = [each["id"] for each in alone if each["confidence_label"] == "high"][:2]
    assert ids == (sure if mode == "strict" else [each["id"] for each in alone])
    assert re.match(r"quick(, deep, tiebreaker)?: \w+ \(", done.json["degraded"])
    assert done.err.startswith("judgekit: no model decided, so BM25 did: quick")
    assert (done.err.count("\n"), done.code) == (1, 0)


def test_without_a_provider_the_answer_is_bm25_and_says_so(judgekit: Judgekit, project: Path) -> None:
    done = judgekit("search", QUERY, "--judge", "--json")
    assert done.json["results"]
    assert done.json["degraded"].startswith("no model found: set a provider's key")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("query", [QUERY, "zeppelin"])
def test_without_full_text_search_no_model_is_asked(
    judgekit: Judgekit, project: Path, use: Use, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(update, "LAYOUT", ["CREATE VIRTUAL TABLE text USING fts5_that_is_missing(a)"])
    with Loopback() as server:
        use(server)
        done = judgekit("search", query, "--judge", "--json")
        assert server.requests == []
    assert (done.json["degraded"], done.code) == ("no model is asked without full-text search", 0)
    ids = [each["id"] for each in done.json["results"]]
    assert ids[:1] == ([sample_store.JWT.id] if query == QUERY else [])


def test_a_wrong_configuration_is_one_line(judgekit: Judgekit, project: Path) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text("retrieval:\n  pool: many\n")
    done = judgekit("search", QUERY)
    assert (done.code, done.out, done.err.count("\n")) == (78, "", 1)
    assert "config.yaml:2: retrieval.pool: expected a whole number" in done.err


@pytest.mark.parametrize("query", ['"', "NEAR(", "a OR b*", "\ud800 refresh", "x" * 1_000_000, "-"])
def test_hostile_queries_are_queries(judgekit: Judgekit, project: Path, query: str) -> None:
    assert judgekit("search", query, "--json").code == 0


def test_where_nothing_is_found_it_is_said(
    judgekit: Judgekit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = judgekit("search", QUERY)
    assert (done.code, done.out) == (0, "nothing found\n")
    assert done.err == "judgekit: no store found (.claude/memory); name one with --root\n"
    (tmp_path / ".claude" / "memory").mkdir(parents=True)
    for words in ((QUERY,), ("zeppelin",), (QUERY, "--root", "claude:auto")):
        done = judgekit("search", *words)
        assert (done.code, done.out) == (0, "nothing found\n")
        assert bool(done.err) is ("--root" in words)


def test_a_root_starts_at_the_current_folder_and_may_be_anywhere(
    judgekit: Judgekit,
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
    (project / "linked").symlink_to(notes)
    assert set(paths("src/docs", ".claude/memory")[:2]) == {"src/docs/jwt.md", sample_store.JWT.path}
    overlapping = paths(".claude/memory", str(project / ".claude" / "memory"))
    assert sample_store.JWT.path in overlapping
    assert len(overlapping) == len(set(overlapping))
    assert paths(str(notes)) == paths("linked") == [str(notes.resolve() / "jwt.md")]
    monkeypatch.chdir(inner)
    assert paths("docs") == ["src/docs/jwt.md"]
    assert paths("../.claude/memory")[0] == sample_store.JWT.path


def test_a_store_that_leads_out_is_left_out_and_said(
    judgekit: Judgekit, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "memory"
    store = project / ".claude" / "memory"
    store.rename(elsewhere)
    store.symlink_to(elsewhere)
    done = judgekit("search", QUERY)
    assert (done.code, done.out, done.err.count("\n")) == (0, "nothing found\n", 1)
    assert done.err.startswith("judgekit: .claude/memory: outside the project")


@pytest.mark.parametrize("root", ["missing", "good.md", "", "~nobody-of-this-name/x", "\ud800"])
def test_a_root_that_is_no_folder_is_bad_input(judgekit: Judgekit, project: Path, root: str) -> None:
    done = judgekit("search", QUERY, "--root", root, "--root", ".claude/memory")
    assert (done.code, done.out, done.err.count("\n")) == (65, "", 1)
    assert "no such folder" in done.err


@pytest.mark.parametrize(
    ("options", "text", "mode"),
    [
        ([], "", "lenient"),
        (["--mode", "strict"], "", "strict"),
        ([], "retrieval: {search_mode: strict}\n", "strict"),
    ],
)
def test_the_judge_is_asked_leniently_unless_told_otherwise(
    judgekit: Judgekit, project: Path, use: Use, options: list[str], text: str, mode: str
) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text(text)
    with Loopback(keeping_all) as server:
        use(server)
        assert judgekit("search", QUERY, "--judge", *options, "--json").json["mode"] == mode
    assert (LENIENT in text_of(server), STRICT in text_of(server)) == (mode == "lenient", mode == "strict")


@pytest.mark.parametrize("options", [[], ["--judge"]])
def test_the_judge_reads_bodies_and_a_person_the_passage_that_matches(
    judgekit: Judgekit, tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    filler = "word " * 300
    text = f"the beginning {filler} the lantern of the harbour {filler} beyond-the-limit"
    MemoryStore(tmp_path).add("deep", "Notes", text)
    monkeypatch.chdir(tmp_path)
    with Loopback(keeping_all) as server:
        use(server)
        (result,) = judgekit("search", "harbour lantern", *options, "--json").json["results"]
    assert ("lantern of the harbour" in text_of(server)) == bool(options)
    assert "beyond-the-limit" not in text_of(server)
    assert "lantern of the harbour" in result["snippet"]
    assert result["snippet"].startswith("…")
    assert len(result["snippet"]) <= 300


@pytest.mark.parametrize(("options", "most"), [([], 10), (["-n", "12"], 12), (["-n", "3"], 3)])
@pytest.mark.parametrize("judge", [[], ["--judge"]])
def test_ten_results_unless_another_number_is_asked_for(
    judgekit: Judgekit,
    tmp_path: Path,
    use: Use,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    most: int,
    judge: list[str],
) -> None:
    lanterns(tmp_path, monkeypatch)
    with Loopback(keeping_all) as server:
        use(server)
        done = judgekit("search", "lantern", *options, *judge, "--json")
    assert len(done.json["results"]) == most
    assert {each["kept_by"] for each in done.json["results"]} == ({"quick"} if judge else {"bm25"})
    shown = set(re.findall(r"Lantern \d\d", text_of(server)))
    assert len(shown) == (20 if judge else 0)  # the pool of a search; the hook's is configured


def test_a_judge_that_drops_the_first_lets_later_ones_in(
    judgekit: Judgekit, tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten of fifteen are shown, so what is dropped makes room for what ranked eleventh."""
    lanterns(tmp_path, monkeypatch)
    alone = [each["title"] for each in judgekit("search", "lantern", "-n", "20", "--json").json["results"]]
    with Loopback(keeping(*alone[3:])) as server:
        use(server)
        found = judgekit("search", "lantern", "--judge", "--json").json["results"]
    assert [each["title"] for each in found] == alone[3:13]
