"""How long texts are cut into sections, and how the section that answers is found, named and counted."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.retrieval import index_file, search, sections

if TYPE_CHECKING:
    from judgekit.retrieval.confidence import Candidate

HANDBOOK = """---
title: Handbook
---

# Handbook

Everything about the service.

## Deploying

### Rolling back

The previous image is put back with `make rollback`.

## Backups

The database is copied every night to the second data centre.
"""
TALK = """Date: 8 May 2023

Ann: Good morning!
Ben: Hello, did you sleep well?
Ann: Not at all, the dog barked.
Ben: I bought a telescope yesterday.
Ann: Which one?
Ben: A small refractor.
Ann: Show it to me on Sunday.
"""


def headings_of(text: str) -> list[str]:
    return [section.heading for section in sections.cut_sections(text)]


def first_lines(text: str) -> list[str]:
    found = sections.cut_sections(text)
    return [text[section.start :].partition("\n")[0] for section in found]


def find(folder: Path, query: str, limit: int = 5) -> list[Candidate]:
    ranked = search.search(
        query,
        [str(folder)],
        project=str(folder.parent),
        limit=limit,
        trusted=[str(folder)],
        snippets=True,
    )
    return ranked.candidates


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "handbook.md").write_text(HANDBOOK, encoding="utf-8")
    (folder / "talk.txt").write_text(TALK, encoding="utf-8")
    return folder


def test_a_section_has_the_headings_above_it() -> None:
    assert headings_of(HANDBOOK.partition("---\n\n")[2]) == [
        "Handbook",
        "Handbook > Deploying > Rolling back",
        "Handbook > Backups",
    ]


def test_a_text_of_one_section_is_not_cut() -> None:
    assert sections.cut_sections("# Title\n\nA few words.\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "# A\n\n```sh\n# no heading\nmake\n```\n\nText.\n",
        "# A\n\n<!-- \n# no heading\n-->\n\nText.\n",
        "# A\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
        "# A\n\n- an item\n-----\n\nText.\n",
        "# A\n\n#hashtag\n\nText.\n",
    ],
)
def test_what_is_no_heading(text: str) -> None:
    assert headings_of(text) == []


def test_underlined_headings_of_restructured_text() -> None:
    text = "Guide\n=====\n\nIntro.\n\nInstalling\n----------\n\nRun it.\n\nOn Linux\n~~~~~~~~\n\nApt.\n"
    assert headings_of(text) == ["Guide", "Guide > Installing", "Guide > Installing > On Linux"]


def test_a_heading_is_named_without_its_links_and_id() -> None:
    text = "# [Guide](guide.md) {#guide}\n\nText.\n\n## See [more](more.md) here\n\nText.\n"
    assert headings_of(text) == ["Guide", "Guide > See more here"]


def test_long_text_below_one_heading_is_cut_at_a_paragraph() -> None:
    text = "# A\n\n" + "\n\n".join(f"Paragraph {number}. {'word ' * 60}" for number in range(12))
    found = first_lines(text)
    assert len(found) > 2
    assert all(line.startswith(("# A", "Paragraph")) for line in found)


def test_sections_cover_a_text_to_its_end() -> None:
    text = "start\n" + "\n".join(f"line {number} {'x' * 90}" for number in range(500)) + "\nend"
    found = sections.cut_sections(text)
    assert "".join(text[section.start : section.end] for section in found) == text


def test_three_turns_of_a_conversation_are_a_section() -> None:
    assert first_lines(TALK)[:2] == ["Ann: Good morning!", "Ben: Hello, did you sleep well?"]
    assert sections.cut_sections(TALK)[0].heading == "Date: 8 May 2023"


@pytest.mark.parametrize(
    "text",
    [
        "Status: open\nOwner: Ann\nDue: Monday\nPlace: Bern\nTopic: tea\n",
        "# A\n\nNote: one\nMany lines\nfollow\nhere\nNote: two\nand so on\nTip: x\nTip: y\nas usual\n",
        "```yaml\nOn: a\nOff: b\nOn: c\nOff: d\nOn: e\n```\n",
    ],
)
def test_what_is_no_conversation(text: str) -> None:
    assert len(sections.cut_sections(text)) <= 1


@pytest.mark.parametrize(
    "text",
    [
        "#" * 400_000,
        "# a\n" * 100_000,
        "a\n-\n" * 100_000,
        "a\n---\n" * 70_000,
        "[" * 300_000,
        "# " + "[a](" * 100_000,
        "# " + "[a](b)" * 60_000,
        "A: b\nC: d\n" * 40_000,
        "<!--" * 100_000,
        "x " * 200_000,
    ],
    ids=range(10),
)
def test_hostile_texts_are_cut_in_linear_time(text: str) -> None:
    assert len(sections.cut_sections(text)) <= len(text)


def test_a_hit_names_its_section_and_the_line_of_the_file(notes: Path) -> None:
    [hit] = find(notes, "how do we put the previous image back")
    assert hit.sections[0].heading == "Deploying > Rolling back"
    line = HANDBOOK.split("\n")[hit.sections[0].line_number - 1]
    assert line == "### Rolling back"


def test_a_passage_is_of_that_section(notes: Path) -> None:
    [hit] = find(notes, "second data centre")
    assert "every night" in hit.snippet
    assert "rollback" not in hit.snippet


def test_a_window_of_a_talk_names_its_date_and_line(notes: Path) -> None:
    [hit] = find(notes, "who bought a telescope")
    assert hit.sections[0].heading == "Date: 8 May 2023"
    window = TALK.split("\n")[hit.sections[0].line_number - 1 :][:3]
    assert any("telescope" in line for line in window)


def test_a_short_text_names_no_section(notes: Path) -> None:
    (notes / "short.md").write_text("# Parking\n\nBehind the house.\n", encoding="utf-8")
    [hit] = find(notes, "parking")
    assert hit.sections == []


def test_a_second_section_that_is_nearly_as_good_is_named(notes: Path) -> None:
    text = "# Keys\n\n## Office\n\nThe yellow key.\n\n## Cellar\n\nThe yellow key.\n\n## Roof\n\nNone.\n"
    (notes / "keys.md").write_text(text, encoding="utf-8")
    [hit] = find(notes, "yellow key")
    assert [section.heading for section in hit.sections] == ["Office", "Cellar"]


def test_a_file_counts_once_however_many_sections_match(notes: Path) -> None:
    parts = "\n".join(f"## Part {number}\n\nThe yellow key.\n" for number in range(20))
    (notes / "keys.md").write_text(f"# Keys\n\n{parts}", encoding="utf-8")
    assert [hit.relative_path for hit in find(notes, "yellow key")] == ["keys.md"]


def test_the_end_of_a_long_file_is_found_and_named(notes: Path) -> None:
    filler = "\n\n".join(
        f"## Chapter {number}\n\n{'common words of a page ' * 40}" for number in range(60)
    )
    (notes / "long.md").write_text(f"# Long\n\n{filler}\n\n## Epilogue\n\nA zeppelin lands.\n")
    [hit] = find(notes, "zeppelin")
    assert hit.sections[0].heading == "Epilogue"


@pytest.mark.parametrize("word", ["aardvark", "zeppelin"])
@pytest.mark.parametrize("header", ["", "---\ntitle: Log\ndescription: All that happened.\n---\n"])
def test_a_line_is_named_also_behind_a_middle_that_is_left_out(
    notes: Path, word: str, header: str
) -> None:
    filler = [f"## Day {number}\n\nNothing {'much ' * 20}happened.\n" for number in range(6_000)]
    text = "\n".join(
        [
            f"{header}# Log\n",
            *filler[:9],
            "## Found\n\nAn aardvark.\n",
            *filler,
            "## End\n",
            "A zeppelin.",
        ]
    )
    (notes / "log.md").write_text(text, encoding="utf-8")
    [hit] = find(notes, word)
    lines = text.split("\n")
    assert lines[hit.sections[0].line_number - 1] in ("## Found", "## End")
    assert word in " ".join(lines[hit.sections[0].line_number - 1 :][:4])


def test_a_long_page_does_not_win_by_common_words(notes: Path) -> None:
    words = ("release", "database", "password", "network")
    chapters = [f"## On {word}\n\n{f'The {word} is often mentioned here. ' * 30}" for word in words]
    (notes / "everything.md").write_text("# Everything\n\n" + "\n\n".join(chapters))
    answer = "The database password of the release is on the network share."
    text = f"# Runbook\n\n## Network\n\n{answer}\n\n## Else\n\nNo.\n"
    (notes / "runbook.md").write_text(text, encoding="utf-8")
    first, *_ = find(notes, "database password of the release")
    assert first.relative_path == "runbook.md"


def test_a_name_of_several_words_finds_its_file(notes: Path) -> None:
    (notes / "coffee-machine.md").write_text("# Kitchen\n\nDescale it monthly.\n", encoding="utf-8")
    [hit] = find(notes, "coffee machine")
    assert hit.relative_path == "coffee-machine.md"


def test_an_edit_moves_the_line(notes: Path) -> None:
    find(notes, "second data centre")
    (notes / "handbook.md").write_text(HANDBOOK.replace("# Handbook\n", "# Handbook\n\nNew.\n"))
    [hit] = find(notes, "second data centre")
    before = HANDBOOK.split("\n").index("## Backups") + 1
    assert hit.sections[0].line_number == before + 2


def test_sections_go_with_their_file(notes: Path) -> None:
    find(notes, "second data centre")
    (notes / "handbook.md").unlink()
    find(notes, "second data centre")
    path = index_file.find_index_file(str(notes.resolve()))
    assert path is not None
    with closing(sqlite3.connect(path)) as connection:
        left = connection.execute(
            "SELECT count(*) FROM section WHERE file NOT IN (SELECT number FROM file)"
        )
        assert left.fetchone() == (0,)


def test_an_index_of_the_version_before_answers_without_sections(notes: Path) -> None:
    find(notes, "second data centre")
    root = str(notes.resolve())
    path = index_file.find_index_file(root)
    assert path is not None
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE section")
        connection.execute("ALTER TABLE file DROP COLUMN sections")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    new = Path(path)
    new.rename(new.with_name("v5.0.sqlite"))
    for number in range(600):  # more than a transaction, so that the new index isn't whole at once
        (notes / f"note-{number}.md").write_text(f"# Note {number}\n\nAbout tea.\n")
    ranked = search.search(
        "second data centre", [root], project=root, limit=5, trusted=[root], patience=0.0
    )
    assert [hit.relative_path for hit in ranked.candidates] == ["handbook.md"]
    assert ranked.candidates[0].sections == []


def test_records_have_sections_without_lines(tmp_path: Path) -> None:
    store = tmp_path / "memory"
    (store / "decisions").mkdir(parents=True)
    record = {
        "category": "decision",
        "title": "Queues",
        "record_status": "active",
        "content": {"decision": "## Broker\n\nWe use one broker.\n\n## Retries\n\nThree of them."},
    }
    (store / "decisions" / "queues.json").write_text(json.dumps(record), encoding="utf-8")
    (store / "index.md").write_text("- [DECISION] Queues -> decisions/queues.json\n")
    [hit] = find(store, "how many retries of queues")
    assert (hit.sections[0].heading, hit.sections[0].line_number) == ("Retries", 0)


def test_sections_of_other_languages(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    text = "# 手册\n\n## 备份\n\n数据库每天晚上备份。\n\n## 部署\n\n周五不部署。\n"
    (folder / "a.md").write_text(text, encoding="utf-8")
    [hit] = find(folder, "数据库备份")
    assert hit.sections[0].heading == "备份"
