"""Stores as people have them: old decisions, logs that grow, wrong lists, locked folders."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore

from judgekit.retrieval import search as api
from judgekit.retrieval.confidence import Candidate, RankedCandidates
from judgekit.retrieval.sources import force, markdown
from judgekit.retrieval.sources.front_matter import read_front_matter

if TYPE_CHECKING:
    from pathlib import Path


def find(query: str, project: Path, *roots: str, scorer: str = "fts5") -> RankedCandidates:
    options = {"project": str(project), "limit": 10, "trusted": roots, "scorer": scorer}
    return api.search(query, roots or ["docs"], **options)  # type: ignore[arg-type]  # as the hook gives them


def titles(ranked: RankedCandidates) -> list[str]:
    return [candidate.title for candidate in ranked.candidates]


def note(project: Path, name: str, text: str) -> Path:
    path = project / "docs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


_STATUS_FORMS = [
    ("---\nsuperseded_by: ADR-167\n---\n# T", "superseded"),
    ("---\nSuperseded-By: [ADR-167, ADR-168]\n---\n# T", "superseded"),
    ("---\nsupersededBy: 0009-x.md\n---\n# T", "superseded"),
    ("---\nreplaced by: '[9](9.md)'\n---\n# T", "superseded"),
    ("---\nsuperseded: ADR-9\n---\n# T", "superseded"),
    ("---\nsuperseded: false\n---\n# T", ""),
    ("---\nadr-status: rejected\n---\n# T", "rejected"),
    ("---\nsuperseded_by:\n---\n# T", ""),
    ("---\nsuperseded_by: null\n---\n# T", ""),
    ("---\nsuperseded_by: none\n---\n# T", ""),
    ("---\nsuperseded_by: []\n---\n# T", ""),
    ("---\nsupersedes: ADR-1\n---\n# T", ""),
    ("---\ndeprecated: true\n---\n# T", "deprecated"),
    ("---\nobsolete: Yes\n---\n# T", "deprecated"),
    ("---\ndeprecated: 2025-01-01\n---\n# T", "deprecated"),
    ("---\nsuperseded: true\n---\n# T", "superseded"),
    ("---\nrejected: false\n---\n# T", ""),
    ("---\nrejected: [Jenkins, Travis]\n---\n# T", ""),
    ("+++\ndeprecated = true\n+++\n# T", "deprecated"),
    ('---\nstatus: "\N{CROSS MARK} Deprecated"\n---\n# T', "deprecated"),
    ("---\nstatus: accepted (superseded by ADR-9)\n---\n# T", "superseded"),
    ("---\nstatus: accepted -> superseded\n---\n# T", "superseded"),
    ("---\nstatus: proposed, accepted, rejected, deprecated\n---\n# T", ""),
    ("# T\n\n| Status | Date |\n|:--|--:|\n| Superseded by [9](9.md) | 2025 |\n", "superseded"),
    ("# T\n\n| Date | **Status** |\n|---|---|\n| 2025 | Deprecated |\n", "deprecated"),
    ("# T\n\n| Status | Rejected |\n|---|---|\n| Date | 2025 |\n", "rejected"),
    ("# T\n\n| Field | Value |\n|---|---|\n| Status | ~~Accepted~~ Deprecated |\n", "deprecated"),
    ("# T\n\n|   |   |\n|---|---|\n| Superseded by | ADR-9 |\n", "superseded"),
    ("# T\n\n| Superseded by | |\n|---|---|\n| Status | Accepted |\n", ""),
    ("# T\n\n| Date | Status |\n|--|--|\n| 2024 | Accepted |\n| 2025 | Rejected |\n", "rejected"),
    ("# All\n\n| ADR | Status |\n|--|--|\n| 1 | Accepted |\n| 2 | Superseded |\n", ""),
    ("# T\n\n## Status\n\n| Status | Means |\n|--|--|\n| active | a |\n| retired | b |\n", ""),
    ("# T\n\n| Option | Verdict |\n|---|---|\n| Jenkins | Rejected |\n", ""),
    ("# T\n\n**Status:** \N{CROSS MARK} Deprecated\n", "deprecated"),
    ("# T\n\nStatus: :x: Deprecated\n", "deprecated"),
    ("# T\n\nStatus: \N{WARNING SIGN}\N{VARIATION SELECTOR-16} **Superseded**\n", "superseded"),
    ("# T\n\n## Status\n\n\N{LARGE RED CIRCLE} Rejected\n", "rejected"),
    ("# T\n\n- **Status**: ~~accepted~~ superseded by [12](12.md)\n", "superseded"),
    ("# T\n\nStatus: <del>accepted</del> deprecated\n", "deprecated"),
    ("# T\n\nStatus: ~~deprecated~~ accepted again\n", ""),
    ("# T\n\nSuperseded by: [9](9.md)\n", "superseded"),
    ("# T\n\n* Superseded by: -\n", ""),
    ("# T\n\n> **Superseded** by [9](9.md) on 2025-01-01.\n", "superseded"),
    ("# T\n\n> [!WARNING]\n> This ADR has been superseded by [9](9.md).\n", "superseded"),
    ("# T\n\n> [!caution] Deprecated: use the other one\n", "deprecated"),
    ("# T\n\n:::warning Deprecated\nUse the other one.\n:::\n", "deprecated"),
    ('# T\n\n!!! danger "Superseded by 9"\n', "superseded"),
    ("# T\n\n**Superseded** by [9](9.md)\n", "superseded"),
    ("T\n=\n\n:Status: Rejected\n", "rejected"),
    ("# T\n\n> Deprecated endpoints answer with 410.\n", ""),
    ("# T\n\n**Rejected**: Jenkins\n", ""),
    ("# T\n\n## Options\n\n> **Rejected** by all\n", ""),
]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('---\nstatus: "superseded by ADR-0021"\n---\n# T', "superseded"),
        ("---\nstatus: deprecated\n---\n# T", "deprecated"),
        ("---\nstatus: Rejected\n---\n# T", "rejected"),
        ("---\nstatus: [superseded]\n---\n# T", "superseded"),
        (
            "# 5. T\n\n## Status\n\nSuperseded by [12. Other](0012.md)\n\n## Decision\n\nText",
            "superseded",
        ),
        (
            "# 5. T\n\nDate: 2020\n\n## Status\n\nAccepted\n\nSuperceded by [12. Other](0012.md)\n",
            "superseded",
        ),
        ("# T\n\n## Status\n\n~~Accepted~~\n\n**Deprecated** since 2.0\n", "deprecated"),
        ("# T\n\n* Status: rejected\n* Deciders: Ann\n", "rejected"),
        ("# T\n\n**Status:** Deprecated, use the other one\n", "deprecated"),
        ("T\n=\n\nStatus\n------\n\nRejected\n", "rejected"),
        ("# T\n\n## Statut\n\nRemplacé par ADR 7\n", "superseded"),
        ("# T\n\n## 状态\n\n已废弃\n", "deprecated"),
        ("# T\n\n## Status\n\nAccepted\n\nSupersedes [4. Old](0004.md)\n", ""),
        ("# T\n\n* Status: [proposed | rejected | accepted | superseded by [ADR-5](5.md)]\n", ""),
        ("# T\n\n## Status\n\nDeprecated endpoints answer with 410.\n", ""),
        ("# T\n\n## Status\n\nAccepted\n\n## Options\n\nRejected: Jenkins\n", ""),
        ("# T\n\n```\nStatus: rejected\n```\n", ""),
        ("---\nstatus: accepted\n---\n# T\n\nDeprecated things are said here.", ""),
        *_STATUS_FORMS,
    ],
)
def test_a_decision_says_whether_it_is_in_force(text: str, status: str) -> None:
    header = read_front_matter(text)
    assert force.find_status(header.fields, header.body) == status


@pytest.mark.parametrize("scorer", ["fts5", "keyword"])
def test_what_is_not_in_force_comes_last_and_is_marked(tmp_path: Path, scorer: str) -> None:
    note(
        tmp_path,
        "1.md",
        "---\nstatus: superseded by 2\n---\n# Jenkins builds\n\nJenkins builds, builds, builds.",
    )
    note(tmp_path, "2.md", "---\nstatus: accepted\n---\n# Actions run the builds\n\nText.")
    ranked = find("Jenkins builds", tmp_path, scorer=scorer)
    assert titles(ranked) == ["Actions run the builds", "Jenkins builds"]
    assert [candidate.build_result_fields().get("status") for candidate in ranked.candidates] == [
        None,
        "superseded",
    ]
    note(tmp_path, "1.md", "# Jenkins builds\n\nJenkins builds, builds, builds.")
    assert titles(find("Jenkins builds", tmp_path, scorer=scorer))[0] == "Jenkins builds"


def test_a_record_of_a_store_may_be_superseded_too(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    path = store.add("old", "Retries of the client", "Ten tries")
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"content": record["content"] | {"status": "superseded"}}))
    store.write_index()
    [candidate] = find("retries of the client", tmp_path, ".claude/memory").candidates
    assert candidate.status == "superseded"


@pytest.mark.parametrize("said", [{"superseded_by": "new"}, {"superseded": True}])
def test_a_record_may_name_its_successor(tmp_path: Path, said: dict[str, object]) -> None:
    store = MemoryStore(tmp_path)
    path = store.add("old", "Retries of the client", "Ten tries")
    path.write_text(json.dumps(json.loads(path.read_text()) | said))
    store.write_index()
    [candidate] = find("retries of the client", tmp_path, ".claude/memory").candidates
    assert candidate.status == "superseded"


def test_a_list_in_utf_16_is_read(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    store.add("old", "Retries of the client", "Ten tries", listed=False)
    (store.root / "team").mkdir()
    (store.root / "team" / "b.json").write_text('{"title": "The walrus"}')
    index = store.root / "index.md"
    index.write_bytes("- [DECISION] The walrus -> team/b.json\n".encode("utf-16"))
    assert titles(find("walrus", tmp_path, ".claude/memory")) == ["The walrus"]


def test_a_second_header_counts_and_other_names_find_a_note(tmp_path: Path) -> None:
    header = "---\ntitle: Retry policy\ntags: [retries]\naliases:\n  - Dead letters\n---\n"
    path = note(
        tmp_path, "n17.md", f"---\npermalink: p/n17\ntype: note\n---\n\n{header}\nThree tries."
    )
    found = read_front_matter(path.read_text())
    assert found.fields["title"] == ["Retry policy"]
    assert found.fields["permalink"] == ["p/n17"]
    assert found.body.strip() == "Three tries."
    [candidate] = find("what are dead letters?", tmp_path).candidates
    assert (candidate.title, candidate.tags) == ("Retry policy", ("retries",))
    assert candidate.title_terms
    for text in (
        "---\ntitle: T\n---\n---\n\nA text below a line.\n\n---\n\nNote: more",
        "---\ntitle: T\n---\n\n---\nNote that this is: a sentence\n---\n",
    ):
        found = read_front_matter(text)
        assert found.fields == {"title": ["T"]}
        assert found.body.lstrip().startswith("---")


def test_a_second_header_may_end_with_three_dots(tmp_path: Path) -> None:
    first = "---\npermalink: p/n18\n---\n"
    note(tmp_path, "n18.md", f"{first}---\ntitle: Retry policy\ntags: [retries]\n...\nThree tries.")
    [candidate] = find("how many tries?", tmp_path).candidates
    assert (candidate.title, candidate.tags) == ("Retry policy", ("retries",))
    text = "---\nA line with three dots below it.\n...\nMore about tries."
    note(tmp_path, "n18.md", f"{first}{text}")
    [candidate] = find("how many tries?", tmp_path).candidates
    assert api.read_body(candidate, None) == text


def test_a_header_that_never_ends_is_text(tmp_path: Path) -> None:
    text = "---\ntags: [a, b, c]\n\nWe retry five times, then give up."
    note(tmp_path, "n19.md", text)
    [candidate] = find("how often do we retry?", tmp_path).candidates
    assert api.read_body(candidate, None) == text


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# Retries {#retries}", "Retries"),
        ("## Retries {: #r .x } ##", "Retries"),
        ("# Use {braces}", "Use {braces}"),
        ("# Retries {/* #retries */}", "Retries"),
        ("{/* # Old */}\n# Retries", "Retries"),
        ("{/*\n# Old\n*/}\n## Retries", "Retries"),
        ("<!--\n# Old\n-->\n# Retries <!-- omit in toc -->", "Retries"),
        ("```\n<!--\n```\n# Retries", "Retries"),
    ],
)
def test_an_id_or_a_comment_is_no_part_of_a_heading(line: str, title: str) -> None:
    assert markdown.find_title(line) == title


def test_the_end_of_a_long_log_is_found_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    entries = "".join(f"## entry {number}\nalpha beta gamma delta\n\n" for number in range(9_000))
    path = note(
        tmp_path, "log.md", f"# Log\n\nQuagga first\n\n{entries}## Kafka replaced by NATS\nCosts.\n"
    )
    for query in ("Kafka NATS", "quagga"):
        ranked = find(query, tmp_path)
        assert [candidate.relative_path for candidate in ranked.candidates] == ["log.md"], query
        assert not ranked.candidates[0].is_damaged
        [line] = ranked.notes
        assert line.startswith(
            f"log.md: only 200,000 of its {path.stat().st_size:,} bytes are searched"
        )
    path.write_text("# Log\n\n## Kafka replaced by NATS\n")
    assert find("Kafka NATS", tmp_path).notes == []


def test_records_in_folders_that_the_list_names_are_found_and_what_is_missing_is_said(
    tmp_path: Path,
) -> None:
    store = MemoryStore(tmp_path)
    store.add("jwt", "JWT refresh", "Text")
    record = {
        "category": "runbook",
        "id": "quokka",
        "title": "Quokka caching",
        "content": {"steps": ["Warm it"]},
    }
    for folder, name in (("custom", "quokka"), ("tech_debts/old", "wombat")):
        path = store.root / folder / f"{name}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record | {"id": name, "title": f"{name.title()} caching"}))
        store.list(f"{name.title()} caching", f".claude/memory/{folder}/{name}.json")
    store.list("Gone", ".claude/memory/decisions/gone.json")
    store.list("Elsewhere", "../../etc/passwd.json")
    store.write_index()
    ranked = find("quokka wombat caching warm", tmp_path, ".claude/memory")
    assert sorted(titles(ranked)) == ["Quokka caching", "Wombat caching"]
    assert {candidate.category for candidate in ranked.candidates} == {"runbook"}
    assert ranked.notes == [
        "index.md names files that do not exist: decisions/gone.json, ../../etc/passwd.json"
    ]
    store.lines = [line for line in store.lines if "gone" not in line and "etc" not in line]
    store.write_index()
    assert find("quokka", tmp_path, ".claude/memory").notes == []


def test_a_line_of_the_clients_list_is_found_when_its_topic_goes(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    note(tmp_path, "MEMORY.md", "- [Rota](team/rota.md) - who is release captain\n")
    note(tmp_path, "team/rota.md", "---\nname: rota\n---\nAnn in odd weeks, Bob in even weeks.\n")
    note(tmp_path, "other.md", "---\nname: other\n---\nMore.\n")
    assert titles(find("odd weeks", tmp_path)) == ["rota"]
    assert titles(find("release captain", tmp_path)) == []
    (folder / "team" / "rota.md").unlink()
    assert titles(find("release captain", tmp_path)) == ["MEMORY.md"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is locked for root")
def test_a_folder_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    note(tmp_path, "a.md", "# Alpha\n")
    locked = note(tmp_path, "locked/b.md", "# Alpha too\n").parent
    locked.chmod(0)
    try:
        ranked = find("alpha", tmp_path)
    finally:
        locked.chmod(0o700)
    assert titles(ranked) == ["Alpha"]
    assert ranked.notes == ["locked: this folder may not be read, so nothing in it is searched"]


def test_a_store_that_git_ignores_serves_linked_worktrees(tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked"
    main.mkdir()

    def git(*words: str) -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=main, check=True, capture_output=True)

    git("init", "-q")
    (main / ".gitignore").write_text("docs/\n")
    git("add", ".")
    git("commit", "-q", "-m", "begin")
    note(main, "a.md", "# Alpha\n")
    git("worktree", "add", "-q", str(linked))
    [candidate] = find("alpha", linked).candidates
    assert candidate.file == str(main / "docs" / "a.md")
    note(linked, "b.md", "# Alpha here\n")
    assert titles(find("alpha", linked)) == ["Alpha here"]


def test_what_is_not_in_force_is_never_injected(tmp_path: Path) -> None:
    from judgekit.hooks import context  # noqa: PLC0415 - a room above

    old = Candidate("1", "Old", "document", (), 0.0, str(tmp_path), "1.md", "markdown")
    new = Candidate("2", "New", "document", (), 0.0, str(tmp_path), "2.md", "markdown")
    old.status = "superseded"
    ranked = RankedCandidates([new, old], [])
    for inject in ("tiered", "top_k"):
        configured = {"max_inject": 3, "inject": inject, "hint_on_zero": True}
        injected, mentioned = context.choose_without_judge(ranked, configured)  # type: ignore[arg-type]  # its keys
        assert [*injected, *mentioned] == [new]
    text = context.render_context([old], ([], []), str(tmp_path), {})
    assert "Old (superseded)" in text
