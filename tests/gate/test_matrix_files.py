"""Real pushes: which files of a commit are judged, under which name, and as what they are pushed."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from pushing import bad, good, word

from judgekit.text import escaped

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow

NAMES = [
    "a b  c.md",
    'it\'s "one".md',
    "a\nb.md",
    "a\tb.md",
    "über/日本.md",
    "-rf.md",
    ":a.md",
    "[a]*?.md",
    "a\\b.md",
    "$(touch x).md",
    ".hidden/..a.md",
]
OTHER_NAMES = [b"\xff\xfe.md", b"\x1b[2J\x07\xe2\x80\xaeb.md"]

UNJUDGEABLE = {
    "zero.md": (b"# A\0\n", "binary"),
    "latin.md": ("# Ünfinished\n".encode("latin-1"), "not UTF-8"),
    "utf16.md": ("# A\n".encode("utf-16"), "binary"),
    "huge.md": (b"# A\n" * 1_100_000, "larger than 4 MB"),
    "pointer.md": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n",
        "Git LFS",
    ),
    "empty.md": (b"", "empty"),
    "blank.md": (b" \n\n", "empty"),
}


def share(world: World) -> None:
    """Push without asking the gate."""
    world.work("push", "--quiet", "--no-verify", "origin", "main")


def test_unusual_names(world: World) -> None:
    for name in NAMES:
        world.work.write(name, bad(name))
    world.work.commit("all")
    push = world.push(judged=dict.fromkeys(NAMES, "NO-GO"), code=1)
    ids = {verdict["subjects"][0]["path"]: verdict for verdict in push.verdicts}
    lines = [line for line in push.err.splitlines() if "or accept it: " in line]
    suggested = {shlex.split(line.partition("or accept it: ")[2])[2] for line in lines}
    for name in NAMES:
        assert f"NO-GO         {escaped(name)}  (" in push.err
        plain = name.isprintable() and not name.startswith("-")  # which a command would take for an option
        assert ids[name]["task_id" if plain else "id"] in suggested


@pytest.mark.skipif(sys.platform == "darwin", reason="this file system takes UTF-8 names alone")
def test_names_that_cannot_be_printed(world: World) -> None:
    for name in OTHER_NAMES:
        (world.work.folder / os.fsdecode(name)).write_text(bad("a"))
    world.work.commit("one")
    before = len(world.ledger())
    done = world.run("origin", "main")
    assert done.returncode == 1, done.stderr
    assert not [each for each in ("\x07", "\x1b", "\u202e") if each.encode() in done.stderr]
    assert [verdict["verdict"] for verdict in world.ledger()[before:]] == ["reject", "reject"]


def test_what_cannot_be_judged_is_said_and_blocks_nothing(world: World) -> None:
    for name, (content, _) in UNJUDGEABLE.items():
        world.work.write(name, content)
    world.work.commit("one", b_md=good("b"))
    push = world.push(judged={"b.md": "GO"})
    told = push.err.split("UNDETERMINED  ")
    for name, (_, reason) in UNJUDGEABLE.items():
        (one,) = [each for each in told if each.startswith(name)]
        assert reason in one


def test_text_with_other_beginnings(world: World) -> None:
    world.work.commit("one", a_md="\ufeff" + bad("a"), b_md=b"---\r\ntitle: a\r\n---\r\n" + bad("a").encode())
    world.push(judged={"a.md": "NO-GO", "b.md": "NO-GO"}, code=1)


def test_a_link_is_no_document(world: World) -> None:
    world.work.write("notes.txt", bad("a"))
    (world.work.folder / "link.md").symlink_to("notes.txt")
    world.work.commit("one", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    (world.work.folder / "a.md").unlink()
    (world.work.folder / "a.md").symlink_to("notes.txt")
    world.work.commit("a link")
    world.push()
    (world.work.folder / "a.md").unlink()
    world.work.commit("a document again", a_md=good("anew"))
    world.push(judged={"a.md": "GO"})


def test_moves(world: World) -> None:
    """A file that is only moved, or only made executable, is no new content; one that is also changed is."""
    world.work.commit("one", a_md=bad("a"))
    share(world)
    world.work("mv", "a.md", "b.md")
    (world.work.folder / "b.md").chmod(0o755)
    world.work.commit("moved")
    world.push()
    world.work("mv", "b.md", "c.md")
    world.work.commit("moved and changed", c_md=bad("a") + "more\n")
    world.push(judged={"c.md": "NO-GO"}, code=1)


def test_a_file_that_is_moved_to_where_the_gate_looks(world: World) -> None:
    world.work.write("a.txt", bad("a"))
    world.work.commit("one")
    world.push()
    world.work("mv", "a.txt", "a.md")
    world.work.commit("renamed")
    world.push(judged={"a.md": "NO-GO"}, code=1)


@pytest.mark.parametrize("names", [("a.md", "b.md", "c.md"), ("a.txt", "c.md")])
def test_a_file_that_is_moved_within_the_push_that_brings_it(world: World, names: tuple[str, ...]) -> None:
    world.work.write(names[0], bad("a"))
    made = world.work.commit("one")
    for old, new in itertools.pairwise(names):
        world.work("mv", old, new)
        world.work.commit("moved")
    before = len(world.ledger())
    assert world.run("origin", "main").returncode == 1
    (verdict,) = world.ledger()[before:]
    assert (verdict["subjects"][0]["path"], word(verdict)) == ("c.md", "NO-GO")
    assert verdict["commit"] == made


def test_what_comes_and_goes(world: World) -> None:
    world.work.commit("one", a_md=bad("a"), b_md=bad("b"))
    share(world)
    world.work.commit("in between", c_md=bad("c"), d_md=bad("d"))
    world.work("rm", "--quiet", "a.md", "c.md")
    mended = world.work.commit("gone and mended", d_md=good("d"))
    push = world.push(judged={"d.md": "GO"})
    assert push.verdicts[0]["commit"] == mended
    world.work.commit("the same twice", e_md=good("e"), f_md=good("e"))
    world.push(judged={"e.md": "GO", "f.md": "GO"})


def test_the_working_tree_is_never_judged(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"), c_md=good("c"))
    world.work.write("a.md", good("a"))
    world.work.write("b.md", bad("new"))
    world.work.write("c.md", bad("c"))
    world.work("add", "b.md")
    world.push(judged={"a.md": "NO-GO", "c.md": "GO"}, code=1)


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
