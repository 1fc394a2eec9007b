from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
import sample_store
from loopback import DRIP, RESET, SILENT, Answer, Asked, Loopback, fails, says
from memory_store import MemoryStore

from judgekit.retrieval import index_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome

QUERY = "refresh the JWT"
FIELDS = {
    "id",
    "path",
    "title",
    "category",
    "tags",
    "snippet",
    "bm25",
    "confidence",
    "confidence_label",
    "kept_by",
}


def keeping(title: str) -> Callable[[Asked], Answer]:
    """Keep the candidate of this title, whatever its label is."""

    def answer(asked: Asked) -> Answer:
        label = next(line[1:5] for line in asked.text.splitlines() if line.startswith("[") and title in line)
        return says(json.dumps({"keep": [label]}))

    return answer


def test_the_json_form_is_a_contract(judgekit: Callable[..., Outcome], project: Path) -> None:
    done = judgekit("search", QUERY, "--json")
    found = done.json
    assert set(found) == {"query", "mode", "degraded", "results", "duration_ms"}
    assert (found["query"], found["mode"], found["degraded"]) == (QUERY, "lenient", None)
    first = found["results"][0]
    assert set(first) == FIELDS
    assert (first["id"], first["title"]) == (sample_store.JWT.id, sample_store.JWT.title)
    assert first["path"] == sample_store.JWT.path
    assert (first["kept_by"], first["confidence_label"]) == ("bm25", "high")
    assert done.code == 0


def test_a_person_reads_titles_and_paths(judgekit: Callable[..., Outcome], project: Path) -> None:
    lines = judgekit("search", QUERY).out.splitlines()
    assert lines[0] == f" 1. {sample_store.JWT.title}"
    assert sample_store.JWT.path in lines[1]


def test_nothing_found_is_said(judgekit: Callable[..., Outcome], project: Path) -> None:
    done = judgekit("search", "zeppelin")
    assert (done.code, done.out) == (0, "nothing found\n")


def test_the_judge_decides_what_is_kept(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    query = "JWT refresh queue backlog billing tables"
    alone = judgekit("search", query, "--json").json["results"]
    assert len(alone) >= 2
    with Loopback(keeping(alone[-1]["title"])) as server:
        use(server)
        judged = judgekit("search", query, "--judge", "--mode", "strict", "--json").json
    assert [each["id"] for each in judged["results"]] == [alone[-1]["id"]]
    assert judged["results"][0]["kept_by"] == "deep"
    assert judged["degraded"] is None
    assert len(server.requests) == 2


def test_several_roots_and_a_folder_of_markdown(judgekit: Callable[..., Outcome], project: Path) -> None:
    (project / "docs").mkdir()
    (project / "docs" / "jwt.md").write_text("# Refreshing a JWT by hand\n\nCall the refresh endpoint.\n")
    found = judgekit("search", QUERY, "--root", "docs", "--root", ".claude/memory", "--json").json
    assert {each["path"] for each in found["results"][:2]} == {"docs/jwt.md", sample_store.JWT.path}


@pytest.mark.parametrize(
    "answer", [SILENT, DRIP, RESET, fails(401), fails(429, retry_after=9), fails(500), says("?")]
)
@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_when_no_model_answers_bm25_does(
    judgekit: Callable[..., Outcome],
    project: Path,
    use: Callable[[Loopback], None],
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
    assert done.err.startswith("judgekit: degraded to BM25 where no model decided: quick")
    assert done.err.count("\n") == 1
    assert done.code == 0


def test_without_a_provider_the_answer_is_bm25_and_says_so(
    judgekit: Callable[..., Outcome], project: Path
) -> None:
    done = judgekit("search", QUERY, "--judge", "--json")
    assert done.json["results"]
    assert done.json["degraded"].startswith("no model found: set a provider's key")
    assert done.err.count("\n") == 1


def test_a_wrong_configuration_is_one_line(judgekit: Callable[..., Outcome], project: Path) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text("retrieval:\n  pool: many\n")
    done = judgekit("search", QUERY)
    assert (done.code, done.out) == (78, "")
    assert "config.yaml:2: retrieval.pool: expected a whole number" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("query", ['"', "NEAR(", "a OR b*", "\ud800 refresh", "x" * 1_000_000, "-"])
def test_hostile_queries_are_queries(judgekit: Callable[..., Outcome], project: Path, query: str) -> None:
    assert judgekit("search", query, "--json").code == 0


def test_no_store_finds_nothing(
    judgekit: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert judgekit("search", QUERY).out == "nothing found\n"


def test_a_root_starts_at_the_current_folder(
    judgekit: Callable[..., Outcome], project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inner = project / "src"
    (inner / "docs").mkdir(parents=True)
    (inner / "docs" / "jwt.md").write_text("# Refreshing a JWT by hand\n")
    monkeypatch.chdir(inner)
    found = judgekit("search", QUERY, "--root", "docs", "--json").json
    assert [each["path"] for each in found["results"]] == ["src/docs/jwt.md"]
    found = judgekit("search", QUERY, "--root", "../.claude/memory", "--json").json
    assert found["results"][0]["path"] == sample_store.JWT.path


def test_a_root_that_is_named_may_be_anywhere(
    judgekit: Callable[..., Outcome],
    project: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    notes = tmp_path_factory.mktemp("notes")
    (notes / "jwt.md").write_text("# Refreshing a JWT by hand\n")
    (project / "linked").symlink_to(notes)
    for root in (str(notes), "linked"):
        done = judgekit("search", QUERY, "--root", root, "--json")
        assert [each["path"] for each in done.json["results"]] == [str(notes.resolve() / "jwt.md")]
        assert done.err == ""


def test_a_store_that_leads_out_is_left_out_and_said(
    judgekit: Callable[..., Outcome], project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "memory"
    store = project / ".claude" / "memory"
    store.rename(elsewhere)
    store.symlink_to(elsewhere)
    done = judgekit("search", QUERY)
    assert (done.code, done.out) == (0, "nothing found\n")
    assert done.err.startswith("judgekit: .claude/memory: leads out of the project")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("root", ["missing", "good.md", "", "~nobody-of-this-name/x", "\ud800"])
def test_a_root_that_is_no_folder_is_bad_input(
    judgekit: Callable[..., Outcome], project: Path, root: str
) -> None:
    done = judgekit("search", QUERY, "--root", root, "--root", ".claude/memory")
    assert (done.code, done.out) == (65, "")
    assert "no such folder" in done.err
    assert done.err.count("\n") == 1


def test_the_clients_own_memory_may_be_missing(judgekit: Callable[..., Outcome], project: Path) -> None:
    done = judgekit("search", QUERY, "--root", "claude:auto")
    assert (done.code, done.out) == (0, "nothing found\n")


def test_overlapping_roots_list_a_file_once(judgekit: Callable[..., Outcome], project: Path) -> None:
    roots = ["--root", ".claude/memory", "--root", str(project / ".claude" / "memory")]
    paths = [each["path"] for each in judgekit("search", QUERY, *roots, "--json").json["results"]]
    assert sample_store.JWT.path in paths
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("query", [QUERY, "zeppelin"])
def test_without_full_text_search_no_model_is_asked(
    judgekit: Callable[..., Outcome],
    project: Path,
    use: Callable[[Loopback], None],
    monkeypatch: pytest.MonkeyPatch,
    query: str,
) -> None:
    monkeypatch.setattr(index_file, "_TEXT_TABLE", "CREATE VIRTUAL TABLE text USING fts5_that_is_missing(a)")
    with Loopback() as server:
        use(server)
        done = judgekit("search", query, "--judge", "--json")
        assert server.requests == []
    assert done.json["degraded"] == "without full-text search no model is asked"
    ids = [each["id"] for each in done.json["results"]]
    assert ids[:1] == ([sample_store.JWT.id] if query == QUERY else [])
    assert done.code == 0


# Search on demand, with the judge: lenient, whole bodies, ten results.

LENIENT = "Is this memory related to the request, even indirectly?"
STRICT = "Is this memory directly relevant to the request"


def keeping_all(asked: Asked) -> Answer:
    lines = [line for line in asked.text.splitlines() if re.match(r"\[\w{4}\] ", line)]
    return says(json.dumps({"keep": [line[1:5] for line in lines]}))


def many(project: Path, number: int) -> None:
    """Write memories that all speak of lanterns, each a little longer than the one before."""
    store = MemoryStore(project)
    for each in range(number):
        store.add(f"m{each:02}", f"Lantern {each:02}", " ".join(["lantern", *["oil"] * each]))


def text_of(server: Loopback) -> str:
    return "\n".join(asked.text for asked in server.requests)


@pytest.mark.parametrize(("options", "mode"), [([], "lenient"), (["--mode", "strict"], "strict")])
def test_the_judge_is_asked_leniently_unless_told_otherwise(
    judgekit: Callable[..., Outcome],
    project: Path,
    use: Callable[[Loopback], None],
    options: list[str],
    mode: str,
) -> None:
    with Loopback(keeping_all) as server:
        use(server)
        found = judgekit("search", QUERY, "--judge", *options, "--json").json
    assert found["mode"] == mode
    assert (LENIENT in text_of(server), STRICT in text_of(server)) == (mode == "lenient", mode == "strict")


def test_the_configuration_may_make_searches_strict(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text("retrieval: {search_mode: strict}\n")
    with Loopback(keeping_all) as server:
        use(server)
        assert judgekit("search", QUERY, "--judge", "--json").json["mode"] == "strict"
    assert STRICT in text_of(server)


def test_the_judge_reads_bodies_not_excerpts(
    judgekit: Callable[..., Outcome],
    tmp_path: Path,
    use: Callable[[Loopback], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filler = "word " * 300
    MemoryStore(tmp_path).add(
        "deep", "Lantern", f"lantern {filler} inside-the-limit {filler} beyond-the-limit"
    )
    monkeypatch.chdir(tmp_path)
    with Loopback(keeping_all) as server:
        use(server)
        (result,) = judgekit("search", "lantern", "--judge", "--json").json["results"]
    assert "inside-the-limit" in text_of(server)
    assert "beyond-the-limit" not in text_of(server)
    assert "inside-the-limit" not in result["snippet"]


@pytest.mark.parametrize("options", [[], ["--judge"]])
def test_the_excerpt_is_the_passage_that_matches(
    judgekit: Callable[..., Outcome],
    tmp_path: Path,
    use: Callable[[Loopback], None],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
) -> None:
    filler = "something else entirely " * 200
    MemoryStore(tmp_path).add("deep", "Notes", f"{filler} the lantern of the harbour {filler}")
    monkeypatch.chdir(tmp_path)
    with Loopback(keeping_all) as server:
        use(server)
        (result,) = judgekit("search", "harbour lantern", *options, "--json").json["results"]
    assert "lantern of the harbour" in result["snippet"]
    assert result["snippet"].startswith("…")
    assert len(result["snippet"]) <= 300


@pytest.mark.parametrize(("options", "most"), [([], 10), (["-n", "12"], 12), (["-n", "3"], 3)])
@pytest.mark.parametrize("judge", [[], ["--judge"]])
def test_ten_results_unless_another_number_is_asked_for(
    judgekit: Callable[..., Outcome],
    tmp_path: Path,
    use: Callable[[Loopback], None],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    most: int,
    judge: list[str],
) -> None:
    many(tmp_path, 20)
    monkeypatch.chdir(tmp_path)
    with Loopback(keeping_all) as server:
        use(server)
        done = judgekit("search", "lantern", *options, *judge, "--json")
    assert len(done.json["results"]) == most
    assert {each["kept_by"] for each in done.json["results"]} == ({"quick"} if judge else {"bm25"})
    shown = set(re.findall(r"Lantern \d\d", text_of(server)))
    assert len(shown) == (20 if judge else 0)  # the pool of a search; the hook's is configured


def test_a_judge_that_drops_the_first_lets_later_ones_in(
    judgekit: Callable[..., Outcome],
    tmp_path: Path,
    use: Callable[[Loopback], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten of fifteen are shown, so what is dropped makes room for what ranked eleventh."""
    many(tmp_path, 20)
    monkeypatch.chdir(tmp_path)
    alone = [each["title"] for each in judgekit("search", "lantern", "-n", "15", "--json").json["results"]]

    def dropping(asked: Asked) -> Answer:
        lines = [line for line in asked.text.splitlines() if re.match(r"\[\w{4}\] ", line)]
        kept = [line[1:5] for line in lines if not any(title in line for title in alone[:3])]
        return says(json.dumps({"keep": kept}))

    with Loopback(dropping) as server:
        use(server)
        found = judgekit("search", "lantern", "--judge", "--json").json["results"]
    assert [each["title"] for each in found] == alone[3:13]


def test_that_there_is_no_store_is_said(
    judgekit: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = judgekit("search", QUERY)
    assert (done.code, done.out) == (0, "nothing found\n")
    assert done.err == "judgekit: no store here (.claude/memory); name one with --root\n"
    (tmp_path / ".claude" / "memory").mkdir(parents=True)
    assert judgekit("search", QUERY).err == ""
