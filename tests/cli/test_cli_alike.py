"""Memories that say the same share one place in a search, and old ones show their age."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import alike_notes
import pytest
from alike_notes import NEWEST, OLDER, QUESTION, put
from memory_store import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return alike_notes.write(tmp_path / "notes")


def found(judgekit: Run, query: str = QUESTION, *roots: str) -> list[dict[str, Any]]:
    options = [f"--root={root}" for root in roots or ("notes",)]
    results: list[dict[str, Any]] = judgekit("search", query, *options, "--json").json["results"]
    return results


def names(results: list[dict[str, Any]]) -> list[str]:
    return [result["path"].rpartition("/")[2] for result in results]


@pytest.mark.usefixtures("notes")
def test_the_newest_stands_for_all_that_say_the_same(judgekit: Run) -> None:
    assert names(found(judgekit)) == [NEWEST, "deploy-docs.md"]


@pytest.mark.usefixtures("notes")
def test_json_counts_and_names_the_others(judgekit: Run) -> None:
    first, second = found(judgekit)
    assert first["alike"] == 2
    assert [path.rpartition("/")[2] for path in first["alike_paths"]] == OLDER
    assert "alike" not in second
    assert "alike_paths" not in second


@pytest.mark.usefixtures("notes")
def test_people_read_how_many_are_alike(judgekit: Run) -> None:
    first = judgekit("search", QUESTION, "--root", "notes").out.splitlines()[0]
    assert first == f" 1. {alike_notes.TITLE} (and 2 alike)"


def test_copies_do_not_make_each_other_less_sure(judgekit: Run, notes: Path) -> None:
    with_copies, _ = found(judgekit)
    for name in OLDER:
        (notes / name).unlink()
    alone, _ = found(judgekit)
    assert with_copies["confidence"] > 0.9 * alone["confidence"]


def test_what_the_query_tells_apart_stays_apart(judgekit: Run, notes: Path) -> None:
    for name in ("alpha", "beta"):
        put(notes / f"{name}.md", f"{alike_notes.SAME} This is about the server {name}.")
    results = found(judgekit, "deploy to production on the server beta")
    assert names(results)[:2] == ["beta.md", "alpha.md"]


def test_a_newer_note_stands_for_what_it_was_before_an_addition(
    judgekit: Run, tmp_path: Path
) -> None:
    put(tmp_path / "old.md", alike_notes.SAME, days=20, title=alike_notes.TITLE)
    addition = "Ask Ada about the freeze in December, the calendar of the weeks, and holidays."
    put(tmp_path / "new.md", f"{alike_notes.SAME} {addition}", title=alike_notes.TITLE)
    (result,) = found(judgekit, QUESTION, str(tmp_path))
    assert result["path"].endswith("new.md")
    assert result["alike"] == 1


def test_an_older_note_that_says_more_stays(judgekit: Run, tmp_path: Path) -> None:
    addition = "Ask Ada about the freeze in December, the calendar of the weeks, and holidays."
    put(tmp_path / "old.md", f"{alike_notes.SAME} {addition}", days=20, title=alike_notes.TITLE)
    put(tmp_path / "new.md", alike_notes.SAME, title=alike_notes.TITLE)
    assert sorted(names(found(judgekit, QUESTION, str(tmp_path)))) == ["new.md", "old.md"]


def test_a_superseded_copy_comes_last_and_marked(judgekit: Run, notes: Path) -> None:
    put(notes / "deploy-0.md", f"{alike_notes.SAME}\n\nStatus: superseded")
    results = found(judgekit)
    assert names(results) == [NEWEST, "deploy-docs.md", "deploy-0.md"]
    assert results[0]["alike"] == 2
    assert results[-1]["status"] == "superseded"


def test_a_copy_in_another_store_shares_the_place(
    judgekit: Run, notes: Path, tmp_path: Path
) -> None:
    (tmp_path / "copies").mkdir()
    put(tmp_path / "copies" / "copy.md", alike_notes.SAME, days=-0.1)
    first, *_ = found(judgekit, QUESTION, "notes", "copies")
    assert first["path"].endswith("copies/copy.md")
    assert first["alike"] == 3


def test_texts_that_share_a_template_are_not_the_same(judgekit: Run, tmp_path: Path) -> None:
    for name, program in (("rpm", "dnf install"), ("deb", "apt install"), ("apk", "apk add")):
        text = (
            f"Add the repository of {name} packages, then run {program} with the name of the tool."
        )
        put(tmp_path / f"{name}.md", text)
    results = found(judgekit, "install the packages", str(tmp_path))
    assert sorted(names(results)) == ["apk.md", "deb.md", "rpm.md"]


@pytest.mark.parametrize(
    ("days", "age"),
    [
        (0, None),
        (89, None),
        (91, "3 months"),
        (213, "7 months"),
        (700, "23 months"),
        (735, "2 years"),
        (4_000, "10 years"),
        (-5, None),
        (20_600, None),
    ],
)
def test_what_is_old_says_its_age(
    judgekit: Run,
    tmp_path: Path,
    days: float,
    age: str | None,
) -> None:
    put(tmp_path / "violin.md", "Varnish the violin with amber.", days=days)
    (result,) = found(judgekit, "violin varnish", str(tmp_path))
    assert result.get("age") == age


def test_people_read_the_age_behind_the_confidence(judgekit: Run, tmp_path: Path) -> None:
    put(tmp_path / "violin.md", "Varnish the violin with amber.", days=213)
    done = judgekit("search", "violin varnish", "--root", str(tmp_path))
    assert done.out.splitlines()[1].endswith(", 7 months old)")


@pytest.mark.parametrize("key", ["updated", "lastmod", "date"])
def test_a_note_is_as_old_as_its_header_says(judgekit: Run, tmp_path: Path, key: str) -> None:
    text = f"---\ntitle: Violin\n{key}: 2016-05-01\n---\nVarnish it with amber."
    (tmp_path / "violin.md").write_text(text, encoding="utf-8")
    (result,) = found(judgekit, "violin varnish", str(tmp_path))
    assert result["age"].endswith(" years")


def test_a_date_to_come_is_no_age(judgekit: Run, tmp_path: Path) -> None:
    text = "---\ntitle: Violin\ndate: 2216-05-01\n---\nVarnish it with amber."
    (tmp_path / "violin.md").write_text(text, encoding="utf-8")
    (result,) = found(judgekit, "violin varnish", str(tmp_path))
    assert "age" not in result


def test_a_record_is_as_old_as_it_says(
    judgekit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(tmp_path / "project")
    store.add("violin", "Varnish of the violin", updated_at="2016-05-01T09:00:00Z")
    store.write_index()
    monkeypatch.chdir(store.project)
    (result,) = found(judgekit, "violin varnish", ".claude/memory")
    assert result["age"].endswith(" years")
