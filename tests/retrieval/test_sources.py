"""The kinds of stores, the files listed of each, and the entries read from them."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import pytest
from memory_store import NOW, MemoryStore, jwt_store, listed

from judgekit.config import files
from judgekit.errors import ConfigError
from judgekit.retrieval import compiled, profiles, scan, worktree
from judgekit.retrieval.sources import (
    Entry,
    Unreadable,
    auto_folder,
    auto_memory,
    claude_memory,
    markdown,
    resolve_inside,
)


def test_the_compiled_profiles_are_those_of_the_yaml_files() -> None:
    current = Path(compiled.BUNDLED).read_text(encoding="utf-8")
    assert current == profiles.render(), (
        "stale: run `make generate` (python -m judgekit.retrieval.profiles)"
    )


def copy(name: str, project: Path, *changes: tuple[str, str]) -> Path:
    text = (files.get_data_folder("retrieval") / f"{name}.yaml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = project / ".judgekit" / "retrieval" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_projects_files_win_whole(tmp_path: Path) -> None:
    path = copy("markdown", tmp_path, ("noise_floor: 0.25", "noise_floor: 0.5"))
    assert profiles.read_profile("markdown", tmp_path).noise_floor == 0.5
    assert profiles.read_profile("claude-memory", tmp_path).noise_floor == 0.25
    copy("english", tmp_path, ("  py: [python]", "  py: [python]\n  zq: [zebra quorum]"))
    found = profiles.compile_profiles(tmp_path)
    assert found["profiles"]["markdown"]["noise_floor"] == 0.5
    assert found["languages"]["english"]["abbreviations"]["zq"] == "zebra quorum"
    path.write_text("rubric: kls\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="not a retrieval file"):
        profiles.read_profile("markdown", tmp_path)
    copy("markdown", tmp_path, ("language: english", "language: klingon"))
    with pytest.raises(ConfigError, match="language"):
        profiles.compile_profiles(tmp_path)


CLAUDE_MEMORY, AUTO_MEMORY, MARKDOWN = compiled.KINDS
PROFILES = compiled.Profiles(compiled.get_bundled_data())


def kind_of(root: Path) -> str:
    return scan.detect_kind(str(root), PROFILES)


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_each_kind_lists_its_files(tmp_path: Path) -> None:
    store = jwt_store(tmp_path / "project", 3)
    make(store.root, "decisions/notes.txt", "decisions/.hidden.json", "elsewhere/x.json")
    (store.root / "decisions" / "alias.json").symlink_to(store.root / "decisions" / "jwt.json")
    assert sorted(listed(store.root, CLAUDE_MEMORY).files) == [
        *("constraints/filler-1.json", "decisions/alias.json", "decisions/filler-0.json"),
        *("decisions/jwt.json", "preferences/filler-2.json"),
    ]
    docs = tmp_path / "docs"
    make(
        docs,
        "a.md",
        "deep/er/b.markdown",
        ".git/c.md",
        "node_modules/d.md",
        "e.txt",
        "f.rst",
        "g.py",
        ".hidden.md",
    )
    (docs / "deep" / "up").symlink_to(docs)
    assert sorted(listed(docs, MARKDOWN).files) == ["a.md", "deep/er/b.markdown", "e.txt", "f.rst"]
    make(tmp_path / "auto", "MEMORY.md", "topic.md", "sub/other.md")
    assert sorted(listed(tmp_path / "auto", AUTO_MEMORY).files) == [
        "MEMORY.md",
        "sub/other.md",
        "topic.md",
    ]


def test_links_that_lead_out_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = jwt_store(tmp_path / "project")
    decisions, outside = store.root / "decisions", tmp_path / "outside"
    make(outside, "secret.json")
    (decisions / "link.json").symlink_to(outside / "secret.json")
    (store.root / "runbooks").symlink_to(outside)
    os.mkfifo(decisions / "pipe.json")
    (decisions / "folder.json").mkdir()
    (decisions / "loop.json").symlink_to(decisions / "loop.json")
    (decisions / "dangling.json").symlink_to(decisions / "gone.json")
    with suppress(OSError):  # some file systems refuse such names
        os.close(os.open(os.fsencode(decisions) + b"/\xff.json", os.O_WRONLY | os.O_CREAT))
    found = listed(store.root, CLAUDE_MEMORY)
    assert sorted(found.files) == ["decisions/jwt.json"]
    assert sorted(problem.partition(":")[0] for problem in found.problems) == [
        "decisions/link.json",
        "runbooks",
    ]
    monkeypatch.setattr(os, "scandir", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert listed(store.root, CLAUDE_MEMORY).files == {}


def test_a_kind_is_not_read_from_links_or_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pipe", "link"):
        make(tmp_path / name, "a.md")
    os.mkfifo(tmp_path / "pipe" / "index.md")
    (tmp_path / "target").write_text("- [DECISION] A title -> decisions/a.json\n")
    (tmp_path / "link" / "index.md").symlink_to(tmp_path / "target")
    monkeypatch.setattr("builtins.open", lambda path, *_, **__: pytest.fail(f"{path} was opened"))
    assert [kind_of(tmp_path / name) for name in ("pipe", "link")] == [MARKDOWN, MARKDOWN]


TREE = ("a.md", "b.md", "drafts/a.md", "deep/drafts/b.md", "deep/er/a.md", "index.md")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("# comment\n\n   \n[\n\\\n", TREE),
        ("drafts/\r\n/a.md", ("b.md", "deep/er/a.md", "index.md")),
        ("*.md\n!b.md", ("b.md", "deep/drafts/b.md", "index.md")),
        ("deep/\n!deep/er/a.md", ("a.md", "b.md", "drafts/a.md", "index.md")),
        ("\ufeffdeep/**/*.md", ("a.md", "b.md", "drafts/a.md", "index.md")),
        ("\n".join(["*a" * 12 + "b", "**/" * 30 + "*a*a*a*ab", "[[:" * 1300, "?" * 90_000]), TREE),
    ],
)
def test_ignored_files_are_not_listed(
    tmp_path: Path, patterns: str, expected: tuple[str, ...]
) -> None:
    make(tmp_path, *TREE)
    (tmp_path / ".judgekitignore").write_text(patterns, encoding="utf-8", newline="")
    assert sorted(listed(tmp_path, MARKDOWN).files) == sorted(expected)


def test_of_too_many_files_the_rest_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_FILES", 3)
    found = listed(jwt_store(tmp_path, 6).root, CLAUDE_MEMORY)
    assert len(found.files) == 3
    assert [each.partition(": ")[2] for each in found.problems] == [
        "more than 3 files; the rest is ignored"
    ]


BY_KIND = compiled.Profiles(compiled.get_bundled_data()).by_kind
PROFILE = BY_KIND["claude-memory"]
JWT = "decisions/jwt.json"
TITLE = "JWT token refresh flow"


def read(store: MemoryStore, relative: str = JWT) -> Entry | None:
    return claude_memory.read(str(store.root.resolve()), relative, PROFILE)


def entry(store: MemoryStore, relative: str = JWT) -> Entry:
    found = read(store, relative)
    assert found is not None
    return found


BODIES: list[tuple[str, object, str]] = [
    (
        "session_summary",
        {"goal": "one", "completed": ["two"], "key_changes": ["three"]},
        "one two three",
    ),
    ("decision", {"decision": "one", "consequences": ["two", "three"]}, "one two three"),
    (
        "runbook",
        {"steps": [{"action": "one", "note": "two"}], "root_cause": "three"},
        "one two three",
    ),
    ("decision", {"decision": 7, "context": None, "rationale": [1, ["two"]], "other": "x"}, "two"),
    ("decision", "no object", ""),
]


def test_a_record_becomes_an_entry_and_its_body_is_the_categorys_fields(store: MemoryStore) -> None:
    found = entry(store)
    assert (found.id, found.title, found.category, found.tags) == (
        "jwt",
        TITLE,
        "decision",
        ("auth", "jwt"),
    )
    assert "rotating cookie" in found.body
    assert found.updated == datetime.fromisoformat(NOW).timestamp()
    assert found.problem is None
    for category, content, words in BODIES:
        path = store.add("other", "Other", category=category, content=content)
        assert entry(store, f"{path.parent.name}/other.json").body.split() == words.split(), content
    deep = {"a": ["one", {"x": ["two", ["three"]], "y": "four"}, 5, None], "b": "five"}
    assert (
        claude_memory.read_body_text({"content": deep}, ["a", "b", "c"], 100)
        == "one\ntwo\nthree\nfour\nfive"
    )
    assert claude_memory.read_body_text({"content": deep}, ["a", "b"], 9) == "one\ntwo\nt"


def test_only_active_records_come_out(store: MemoryStore) -> None:
    store.add("dated", "Dated", updated_at="soon")
    assert entry(store, "decisions/dated.json").updated == 0
    for status in ("retired", "archived", "Retired", "draft", 3, None):
        store.add("old", "Old", record_status=status)
        assert read(store, "decisions/old.json") is None, status


BROKEN = [
    *(b"", b'{"record_status": "active", ', b"{", b"\x00\x01\x02", b"[" * 100_000),
    b'{"title": "' + b"x" * 300_000,
]
STATUS = '"record_status": "retired"'
RETIRED = [
    b"[1]",
    f"{{{STATUS}".encode(),
    b'{"record_status": "reti\xffed"}',
    b'{"record_status" :\n "archived", ',
    b"{'record_status': 'retired'}",
    b'{"record_status": ',
    b'{"record_status": "active", "content": {}, "record_status": "retired"',
    b'{"title": "' + b"x" * 300_000 + b'", "record_status": "retired", ',
]


def test_a_broken_record_is_found_by_its_name_unless_it_says_that_it_is_retired(
    store: MemoryStore,
) -> None:
    for content in BROKEN:
        (store.root / JWT).write_bytes(content)
        found = entry(store)
        assert (found.title, found.tags, found.category, found.body) == ("jwt", (), "decision", "")
        assert found.problem is not None
        assert found.problem.endswith("found by name only")
    for content in RETIRED:
        (store.root / JWT).write_bytes(content)
        with pytest.raises(Unreadable):
            read(store)


@pytest.mark.parametrize(
    "content",
    [
        f"{{{STATUS}}}".encode("utf-16"),
        f'{{"title": "caf\xe9", {STATUS}}}'.encode("latin-1"),
    ],
)
def test_a_record_in_another_encoding_may_be_retired(store: MemoryStore, content: bytes) -> None:
    (store.root / JWT).write_bytes(content)
    assert read(store) is None


def test_of_a_long_record_the_beginning_is_read(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("long", "Long", "alpha " + "x" * PROFILE.max_bytes + " omega")
    found = entry(store, "decisions/long.json")
    assert (found.title, found.problem, len(found.body)) == ("Long", None, PROFILE.max_bytes)
    assert found.body.startswith("alpha ")
    monkeypatch.setattr(claude_memory, "MAX_RECORD_BYTES", 400_000)
    store.add("huge", "Huge", "x" * 400_000)
    with pytest.raises(Unreadable, match="larger than 400,000 bytes"):
        read(store, "decisions/huge.json")


def document(folder: Path, text: str | bytes, name: str = "a.md") -> Entry | None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return markdown.read(str(folder.resolve()), name, BY_KIND["markdown"])


def topic(folder: Path, text: str | bytes, name: str = "topic.md") -> Entry | None:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return auto_memory.read(str(folder.resolve()), name, BY_KIND["claude-auto-memory"])


@pytest.mark.parametrize(
    ("text", "title", "tags"),
    [
        ("# A heading\n\nText", "A heading", ()),
        (
            "---\ntitle: From the header\ntags: [a, 'b c']\n---\n# Other\n",
            "From the header",
            ("a", "b c"),
        ),
        ('---\ntitle: "Quoted: yes"\ntags: a, b\n---\nText', "Quoted: yes", ("a", "b")),
        ("---\ntitle: X\ntags:\n  - a\n  - b\n---\n", "X", ("a", "b")),
        ("---\nkeywords: [k]\n---\n## Second level ##\n", "Second level", ("k",)),
        ("```\n# no heading\n```\n# Heading", "Heading", ()),
        ("#hashtag\nno heading", "a", ()),
        ("=====\nTitle\n=====\n\nText\n\nNext\n====", "Title", ()),
        ("Title\n=====\n\n# not one", "Title", ()),
        ("```\na\n==\n```\n\n====\n\n# Heading", "Heading", ()),
        ("\ufeff# With a mark", "With a mark", ()),
        ("---\r\ntitle: Windows\r\n---\r\nText", "Windows", ()),
    ],
)
def test_title_and_tags(tmp_path: Path, text: str, title: str, tags: tuple[str, ...]) -> None:
    found = document(tmp_path, text)
    assert found is not None
    assert (found.title, found.tags) == (title, tags)


def test_a_document(tmp_path: Path) -> None:
    found = document(tmp_path, "---\ntitle: T\n---\nThe text", "deep/er/b.md")
    assert found is not None
    assert (found.id, found.body, found.category) == ("deep/er/b.md", "The text", "document")
    for content in (b"\x00\x01", "ферма ключ".encode("cp1251")):
        found = document(tmp_path, content, "rate-limits.md")
        assert found is not None
        assert (found.title, found.body) == ("rate-limits", "")
        assert found.problem is not None
    found = document(tmp_path, "# T\n" + "ä" * 5_000_000)
    assert found is not None
    assert 0 < len(found.body) <= BY_KIND["markdown"].max_bytes
    assert found.problem is None
    for status in ("status: retired", "record_status: Archived"):
        for text in ("Text", "caf\xe9"):  # the second is no UTF-8
            assert document(tmp_path, f"---\n{status}\n---\n{text}".encode("latin-1")) is None


@pytest.mark.parametrize("name", ["A.MD", "b.Markdown", "C.MDX", "d.RST", "E.TXT"])
def test_endings_in_capitals_are_endings(tmp_path: Path, name: str) -> None:
    make(tmp_path, name)
    assert [*listed(tmp_path, MARKDOWN).files] == [name]


ENCODED = "---\ntitle: Fähre\n---\nDas Boot fährt um 9 \U0001f6a2"


@pytest.mark.parametrize(
    "content",
    [
        ENCODED.encode(),
        ENCODED.encode("utf-8-sig"),
        ENCODED.encode("utf-16"),
        ENCODED.encode("utf-16-le"),
        ENCODED.encode("utf-16-be"),
        b"\xfe\xff" + ENCODED.encode("utf-16-be"),
        ENCODED.encode("utf-32"),
        ENCODED.replace("\n", "\r\n").encode("utf-16"),
    ],
)
def test_a_document_in_any_unicode_encoding_is_read(tmp_path: Path, content: bytes) -> None:
    found = document(tmp_path, content)
    assert found is not None
    assert found.title == "Fähre"
    assert found.body == "Das Boot fährt um 9 \U0001f6a2"
    assert found.problem is None
    assert found.note is None


@pytest.mark.parametrize("bad", [b"\xff", b"\xe9", b"\xed\xa0\x80", b"\x80\x80"])
def test_bad_bytes_cost_themselves_alone(tmp_path: Path, bad: bytes) -> None:
    found = document(tmp_path, b"# The ferry\n\nIt leaves at " + bad + b" nine.")
    assert found is not None
    assert found.title == "The ferry"
    assert found.body.split()[-1] == "nine."
    assert found.problem is None
    assert found.note is not None
    assert found.note.startswith("not UTF-8 in ")


def test_a_bad_byte_in_a_record_costs_itself_alone(store: MemoryStore) -> None:
    path = store.root / JWT
    path.write_bytes(path.read_bytes().replace(b"JWT token", b"JWT to\xffken"))
    found = entry(store)
    assert found.title.endswith("refresh flow")
    assert found.note == "not UTF-8 in 1 place; the rest is searched"


def test_of_a_long_text_in_utf_16_both_ends_are_read(tmp_path: Path) -> None:
    text = "# The ferry\n" + "filler words\n" * 20_000 + "It leaves at nine\n"
    found = document(tmp_path, text.encode("utf-16"))
    assert found is not None
    assert found.title == "The ferry"
    assert found.body.endswith("It leaves at nine\n")


def test_topics_of_auto_memory_and_what_its_list_says(tmp_path: Path) -> None:
    header = "name: Testing style\ndescription: prefers real git\nmetadata:\n  type: feedback"
    found = topic(tmp_path, f"---\n{header}\n---\nUse tmp repos.")
    assert found is not None
    assert (found.id, found.title, found.category) == ("topic", "Testing style", "feedback")
    assert found.body.split() == ["prefers", "real", "git", "Use", "tmp", "repos."]
    found = topic(tmp_path, "---\ntype: odd\n---\nText")
    assert found is not None
    assert (found.title, found.category) == ("topic", "memory")
    (tmp_path / "team").mkdir()
    for name in ("debug.md", "team/rota.md", "b c.md"):
        (tmp_path / name).write_text("Text")
    found = topic(
        tmp_path, "# Memory\n- [Debugging](debug.md)\nBuilds [need](x) pnpm.\n", "MEMORY.md"
    )
    assert found is not None
    assert "pnpm" in found.body
    assert "Debugging" not in found.body
    for line in (
        "- [Debugging](debug.md)",
        "- [A](a) [B](team/rota.md#now) - tips\n",
        "- [C](b%20c.md)",
    ):
        assert topic(tmp_path, f"# Memory\n{line}\n", "MEMORY.md") is None, line
    for target in ("gone.md", "../outside.md", "/etc/hosts.md", "elsewhere/debug.md"):
        found = topic(
            tmp_path, f"# Memory\n- [Password]({target}) - it rotates on Mondays\n", "MEMORY.md"
        )
        assert found is not None, target
        assert "Mondays" in found.body
    found = topic(tmp_path, "- [Rota](rota.md) - who is on call\n", "team/MEMORY.md")
    assert found is None, "a list in a folder leads to topics beside it"
    damaged = topic(tmp_path, b"\0\1")
    assert damaged is not None
    assert damaged.problem
    assert topic(tmp_path, b"---\nstatus: retired\n---\ncaf\xe9") is None


def test_auto_memory_lies_where_the_client_keeps_it(
    isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "-home-me-my-app-v1-2"
    assert (
        auto_folder.find_memory_folder("/home/me/my_app.v1 2")
        == f"{isolated}/.claude/projects/{name}/memory"
    )
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/elsewhere")
    assert (
        auto_folder.find_memory_folder("/home/me/my_app.v1 2")
        == f"/elsewhere/projects/{name}/memory"
    )
    monkeypatch.setenv("CLAUDE_CODE_PROJECT_DIR_NAME", "team_box-1")
    assert (
        auto_folder.find_memory_folder("/home/me/my_app.v1 2")
        == "/elsewhere/projects/team_box-1/memory"
    )
    monkeypatch.setenv("CLAUDE_CODE_PROJECT_DIR_NAME", "../../etc")
    assert (
        auto_folder.find_memory_folder("/home/me/my_app.v1 2")
        == f"/elsewhere/projects/{name}/memory"
    )


# The names that version 2.1.330 of the client gave such folders, or the hash that its function computes.
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me/grüße", "-home-me-gr--e"),
        ("/home/me/🎉", "-home-me---"),
        ("/" + "a" * 199, "-" + "a" * 199),
        ("/" + "a" * 200, "-" + "a" * 199 + "-b6ymvl"),
    ],
)
def test_a_folder_is_called_as_the_client_calls_it(path: str, name: str) -> None:
    assert auto_folder.make_folder_name(path) == name


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def worktrees(tmp_path: Path) -> tuple[Path, Path]:
    """Return the main working tree of a repository and a linked one."""
    main, linked = tmp_path / "main", tmp_path / "linked"
    main.mkdir()
    git(main, "init", "-q")
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    git(main, *identity, "commit", "-q", "--allow-empty", "-m", "begin")
    git(main, "worktree", "add", "-q", str(linked))
    return main, linked


def test_the_memory_of_a_linked_worktree_is_that_of_the_main_one(
    worktrees: tuple[Path, Path],
) -> None:
    main, linked = worktrees
    package = linked / "packages" / "one"
    package.mkdir(parents=True)
    for place in (main, linked, package):
        assert auto_folder.find_memory_folder(str(place)) == auto_folder.find_memory_folder(
            str(main)
        )


def test_a_file_that_only_poses_as_a_link_to_a_worktree_is_not_believed(
    worktrees: tuple[Path, Path], tmp_path: Path
) -> None:
    main, linked = worktrees
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / ".git").write_text((linked / ".git").read_text())
    assert worktree.find_main_worktree(str(archive)) == str(archive)
    assert worktree.find_main_worktree(str(linked)) == str(main)


def test_the_user_may_move_the_clients_memory(worktrees: tuple[Path, Path], isolated: Path) -> None:
    main, linked = worktrees
    usual = auto_folder.find_memory_folder(str(main))
    settings = isolated / ".claude" / "settings.json"
    settings.parent.mkdir()
    for value, folder in (
        ('"~/notes"', f"{isolated}/notes"),
        ('"/var/notes/"', "/var/notes"),
        ('"notes"', usual),
        ('"/"', usual),
        ("7", usual),
    ):
        settings.write_text(f'{{"autoMemoryDirectory": {value}}}')
        assert auto_folder.find_memory_folder(str(main)) == folder, value
    local = main / ".claude" / "settings.local.json"
    local.parent.mkdir()
    local.write_text('{"autoMemoryDirectory": "/var/local"}')
    assert auto_folder.find_memory_folder(str(main)) == "/var/local"
    assert auto_folder.find_memory_folder(str(linked)) == usual
    git(main, "add", ".claude")  # as a clone brings it
    assert auto_folder.find_memory_folder(str(main)) == usual
    (main / ".claude" / "settings.json").write_text('{"autoMemoryDirectory": "/var/shared"}')
    assert auto_folder.find_memory_folder(str(main)) == usual


def make_clone(folder: Path, tracked: str = ".claude/settings.local.json") -> Path:
    """Make a repository that tracks settings which name another folder of memories."""
    names = (".claude/settings.json", ".claude/settings.local.jsn", "zebra.md", tracked)
    make(folder, *names)
    (folder / tracked).write_text('{"autoMemoryDirectory": "/var/private"}')
    git(folder, "init", "-q")
    git(folder, "add", "-f", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "i")
    return folder


INDEX_FORMS = [
    ("update-index", "--split-index"),
    ("update-index", "--index-version", "4"),
    ("update-index", "--index-version", "3"),
    ("sparse-checkout", "set", "--cone", "--sparse-index", "docs"),
]


@pytest.mark.parametrize("words", INDEX_FORMS, ids=" ".join)
def test_settings_that_a_clone_brings_move_no_memory(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    clone = make_clone(tmp_path / "clone")
    git(clone, *words)
    make(clone, ".claude/settings.local.json")
    (clone / ".claude" / "settings.local.json").write_text(
        '{"autoMemoryDirectory": "/var/private"}'
    )
    assert auto_folder.find_memory_folder(str(clone)) != "/var/private"


@pytest.mark.parametrize("words", INDEX_FORMS, ids=" ".join)
def test_local_settings_of_the_user_count_in_any_form_of_gits_list(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    clone = make_clone(tmp_path / "clone", "docs/other.json")
    git(clone, *words)
    make(clone, ".claude/settings.local.json")
    (clone / ".claude" / "settings.local.json").write_text('{"autoMemoryDirectory": "/var/mine"}')
    assert auto_folder.find_memory_folder(str(clone)) == "/var/mine"


def test_settings_in_other_letters_are_those_that_a_clone_brings(tmp_path: Path) -> None:
    """A file system that ignores case opens them by the usual name."""
    clone = make_clone(tmp_path / "clone", ".Claude/Settings.Local.json")
    make(clone, ".claude/settings.local.json")
    (clone / ".claude" / "settings.local.json").write_text(
        '{"autoMemoryDirectory": "/var/private"}'
    )
    assert auto_folder.find_memory_folder(str(clone)) != "/var/private"


def test_settings_in_a_submodule_are_those_that_a_clone_brings(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "clone", "docs/other.json")
    inner = clone / ".claude"
    git(inner, "init", "-q")
    (inner / "settings.local.json").write_text('{"autoMemoryDirectory": "/var/private"}')
    assert auto_folder.find_memory_folder(str(clone)) != "/var/private"


def test_nothing_outside_is_contained(tmp_path: Path) -> None:
    (tmp_path / "store-2").mkdir()
    root = tmp_path.resolve() / "store"
    for relative in ("../x", "a/../../x", "/etc/passwd", ".", "", "../store-2/x"):
        assert resolve_inside(str(root), relative) is None, relative
    assert resolve_inside(str(root), "a/../b") == str(root / "b")
