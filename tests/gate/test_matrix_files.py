"""Real pushes: which files of a commit are judged, under which name, and as what they are pushed."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from pushing import bad, good

from judgekit.text import escaped

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow

NAMES = {
    "spaces": "a b  c.md",
    "quotes": 'it\'s "one".md',
    "a newline": "a\nb.md",
    "a tab": "a\tb.md",
    "not ascii": "über/日本.md",
    "a leading dash": "-rf.md",
    "a leading colon": ":a.md",
    "a pattern": "[a]*?.md",
    "a backslash": "a\\b.md",
    "a dollar": "$(touch x).md",
    "dots": ".hidden/..a.md",
}
OTHER_NAMES = {"not utf-8": b"\xff\xfe.md", "escapes": b"\x1b[2J\x07\xe2\x80\xaeb.md"}

UNJUDGEABLE = {
    "binary": (b"# A\0\n", "binary"),
    "not utf-8": ("# Ünfinished\n".encode("latin-1"), "not UTF-8"),
    "utf-16": ("# A\n".encode("utf-16"), "binary"),
    "huge": (b"# A\n" * 1_100_000, "larger than 4 MB"),
    "an LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n",
        "Git LFS",
    ),
    "empty": (b"", "empty"),
    "blank": (b" \n\n", "empty"),
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_an_unusual_name(world: World, name: str) -> None:
    world.work.write(name, bad("a"))
    world.work.commit("one")
    push = world.push(judged={name: "NO-GO"}, code=1)
    assert f"NO-GO         {escaped(name)}  (" in push.err
    task = push.verdicts[0]["task_id"]
    suggested = shlex.split(push.err.partition("or accept it: ")[2].splitlines()[0])
    plain = name.isprintable() and not name.startswith("-")  # which a command would take for an option
    assert suggested[2] == (task if plain else push.verdicts[0]["id"])


@pytest.mark.skipif(sys.platform == "darwin", reason="this file system takes UTF-8 names alone")
@pytest.mark.parametrize("name", OTHER_NAMES.values(), ids=OTHER_NAMES)
def test_a_name_that_cannot_be_printed(world: World, name: bytes) -> None:
    (world.work.folder / os.fsdecode(name)).write_text(bad("a"))
    world.work.commit("one")
    before = len(world.ledger())
    done = world.run("origin", "main")
    assert done.returncode == 1, done.stderr
    assert not [each for each in ("\x07", "\x1b", "\u202e") if each.encode() in done.stderr]
    (verdict,) = world.ledger()[before:]
    assert verdict["verdict"] == "reject"


@pytest.mark.parametrize(("content", "reason"), UNJUDGEABLE.values(), ids=UNJUDGEABLE)
def test_what_cannot_be_judged_is_said_and_blocks_nothing(world: World, content: bytes, reason: str) -> None:
    world.work.commit("one", a_md=content, b_md=good("b"))
    push = world.push(judged={"b.md": "GO"})
    assert "UNDETERMINED  a.md" in push.err
    assert reason in push.err


@pytest.mark.parametrize("start", ["\ufeff", "---\r\ntitle: a\r\n---\r\n"], ids=["bom", "crlf"])
def test_text_with_other_beginnings(world: World, start: str) -> None:
    world.work.commit("one", a_md=start.encode() + bad("a").encode())
    world.push(judged={"a.md": "NO-GO"}, code=1)


def test_a_link_is_no_document(world: World) -> None:
    world.work.write("notes.txt", bad("a"))
    (world.work.folder / "a.md").symlink_to("notes.txt")
    world.work.commit("one")
    world.push()


def test_a_document_that_becomes_a_link_and_back(world: World) -> None:
    world.work.write("notes.txt", bad("a"))
    world.work.commit("one", a_md=good("a"))
    (world.work.folder / "a.md").unlink()
    (world.work.folder / "a.md").symlink_to("notes.txt")
    world.work.commit("a link")
    world.push()
    (world.work.folder / "a.md").unlink()
    world.work.commit("a document again", a_md=good("anew"))
    world.push(judged={"a.md": "GO"})


def test_a_file_that_is_only_moved(world: World) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work("mv", "a.md", "b.md")
    world.work.commit("moved")
    world.push()


def test_a_file_that_is_moved_and_changed(world: World) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work("mv", "a.md", "b.md")
    world.work.commit("moved", b_md=bad("a") + "more\n")
    world.push(judged={"b.md": "NO-GO"}, code=1)


def test_a_file_that_is_moved_to_where_the_gate_looks(world: World) -> None:
    world.work.write("a.txt", bad("a"))
    world.work.commit("one")
    world.push()
    world.work("mv", "a.txt", "a.md")
    world.work.commit("renamed")
    world.push(judged={"a.md": "NO-GO"}, code=1)


def test_a_file_that_is_moved_within_the_push_that_brings_it(world: World) -> None:
    made = world.work.commit("one", a_md=bad("a"))
    for old, new in (("a.md", "b.md"), ("b.md", "c.md")):
        world.work("mv", old, new)
        world.work.commit("moved")
    before = len(world.ledger())
    assert world.run("origin", "main").returncode == 1
    (verdict,) = world.ledger()[before:]
    assert (verdict["subjects"][0]["path"], verdict["commit"]) == ("c.md", made)


def test_a_file_that_is_brought_under_another_name_and_then_moved(world: World) -> None:
    world.work.write("a.txt", bad("a"))
    world.work.commit("one")
    world.work("mv", "a.txt", "a.md")
    world.work.commit("moved")
    before = len(world.ledger())
    assert world.run("origin", "main").returncode == 1
    assert [each["verdict"] for each in world.ledger()[before:]] == ["reject"]


def test_a_change_of_the_mode_alone(world: World) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    (world.work.folder / "a.md").chmod(0o755)
    world.work.commit("run it")
    world.push()


def test_a_removed_file(world: World) -> None:
    world.work.commit("one", a_md=bad("a"), b_md=bad("b"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work("rm", "--quiet", "a.md")
    world.work.commit("gone")
    world.push()


def test_a_file_that_comes_and_goes_within_a_push(world: World) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.work("rm", "--quiet", "a.md")
    world.work.commit("gone")
    world.push()


def test_a_file_mended_within_a_push_is_judged_as_it_is_pushed(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    mended = world.work.commit("good", a_md=good("a"))
    push = world.push(judged={"a.md": "GO"})
    assert push.verdicts[0]["commit"] == mended


def test_two_files_with_the_same_content(world: World) -> None:
    world.work.commit("one", a_md=good("a"), b_md=good("a"))
    world.push(judged={"a.md": "GO", "b.md": "GO"})


def test_the_working_tree_is_never_judged(world: World) -> None:
    world.work.commit("good", a_md=good("a"))
    world.work.write("a.md", bad("changed"))
    world.work.write("b.md", bad("new"))
    world.work("add", "b.md")
    world.push(judged={"a.md": "GO"})


def test_a_working_tree_that_hides_what_is_pushed(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    world.work.write("a.md", good("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)


def test_a_file_that_a_filter_changes_is_judged_as_it_is_kept(world: World) -> None:
    world.work("config", "filter.shout.clean", "tr A-Z a-z")
    world.work("config", "filter.shout.smudge", "tr a-z A-Z")
    world.work.write(".gitattributes", "*.md filter=shout diff=shout -text\n")
    world.work("config", "diff.shout.textconv", "touch ran; cat")
    world.work("config", "diff.shout.command", "touch ran; true")
    world.work.commit("one", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    assert not (world.work.folder / "ran").exists()


def test_a_replaced_object_hides_nothing(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    fine = world.work("hash-object", "-w", "--stdin", stdin=good("a").encode())
    world.work("replace", "HEAD:a.md", fine)
    before = len(world.ledger())
    assert world.run("origin", "main").returncode == 1
    assert {each["verdict"] for each in world.ledger()[before:]} == {"reject"}


def test_many_files(world: World) -> None:
    world.work.commit("many", **{f"{number}_md": good(str(number)) for number in range(60)})
    world.push(judged={f"{number}.md": "GO" for number in range(60)})
