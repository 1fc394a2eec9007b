"""Real pushes: which refs go where, which files are new to the remote, and whose changes they are."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from loopback import Loopback
from pushing import BLOCKING, bad, good, word
from scripted import by_content

from judgekit.text import escape_name

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow

# Only Python takes these for the end of a line, and git allows them in a name.
SEPARATORS = ("\u2028", "\u2029", "\u0085")


def share(world: World, *refs: str) -> None:
    """Push without asking the gate."""
    world.work("push", "--quiet", "--no-verify", "origin", *(refs or ("main",)))


def test_whatever_names_what_is_pushed(world: World) -> None:
    names = [
        ("main", "refs/heads/main"),
        ("HEAD:refs/heads/topic", "refs/heads/topic"),
        ("main@{0 seconds ago}:refs/heads/when", "refs/heads/when"),
        ("{oid}:refs/heads/id", "refs/heads/id"),
        ("HEAD:refs/for/main", "refs/for/main"),
        ("HEAD:refs/heads/thème/ärger", "refs/heads/thème/ärger"),
    ]
    for number, (name, ref) in enumerate(names):
        oid = world.work.commit("one", **{f"{number}_md": good(str(number))})
        push = world.push("origin", name.replace("{oid}", oid), judged={f"{number}.md": "GO"})
        (verdict,) = push.verdicts
        assert verdict["commit"] == oid
        about = {"mode": "blocking", "remote": "../origin.git", "ref": ref, "cached": False}
        assert verdict["gate"] == about
        share(world)
    world.work("switch", "--quiet", "--detach")
    world.work.commit("bad", bad_md=bad("a"))
    world.push("origin", "HEAD:main", judged={"bad.md": "NO-GO"}, code=1)


def test_several_refs_at_once(world: World) -> None:
    first = world.work.commit("on main", a_md=good("a"))
    world.work("branch", "copy")
    world.work("switch", "--quiet", "--create", "topic", "HEAD~")
    second = world.work.commit("on topic", b_md=bad("b"))
    judged = {"a.md": "GO", "b.md": "NO-GO"}
    push = world.push("--atomic", "origin", "main", "topic", judged=judged, code=1)
    assert {verdict["commit"] for verdict in push.verdicts} == {first, second}
    assert {verdict["gate"]["ref"] for verdict in push.verdicts} == {
        "refs/heads/main, refs/heads/topic"
    }
    assert len(world.push("origin", "main", "copy", judged={"a.md": "GO"}).verdicts) == 1
    world.work.commit("another version", a_md=bad("a"))
    before = len(world.ledger())
    assert world.run("origin", "main", "topic").returncode == 1
    assert {each["task_id"].partition("@")[0] for each in world.ledger()[before:]} == {
        "a.md",
        "b.md",
    }


@pytest.mark.parametrize("option", ["--all", "--mirror", "--tags"])
def test_all_branches_and_tags(world: World, option: str) -> None:
    for name in ("one", "two"):
        world.work("switch", "--quiet", "--create", name, "main")
        world.work.commit(name, **{f"{name}_md": good(name)})
        world.work("tag", f"v-{name}")
    world.push(option, "origin", judged={"one.md": "GO", "two.md": "GO"})
    assert ("refs/tags/v-one" in world.refs()) == (option != "--all")


def test_a_new_branch_brings_only_what_no_ref_of_the_remote_has(world: World) -> None:
    world.work.commit("on main", a_md=bad("a"))
    share(world)
    world.push("origin", "main:refs/heads/copy")
    world.work("switch", "--quiet", "--create", "topic")
    world.work.commit("on topic", b_md=good("b"))
    world.push("origin", "topic", judged={"b.md": "GO"})
    world.work("switch", "--quiet", "--orphan", "pages")
    world.work.commit("root", c_md=good("c"))
    world.push("origin", "pages", judged={"c.md": "GO"})


def test_forced_pushes(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    world.work.write("a.md", good("a, again"))
    world.work("commit", "--quiet", "--all", "--amend", "-m", "better")
    world.push(code=1)  # git asks the hook only for what it is going to send
    push = world.push("--force", "origin", "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["commit"] == world.work("rev-parse", "main")
    world.work("commit", "--quiet", "--amend", "-m", "better said")
    world.push("--force", "origin", "main")
    world.work.commit("bad", b_md=bad("b"))
    share(world)
    world.push("--force", "origin", "main~:main")


def test_deletions_and_tags(world: World) -> None:
    share(world, "main:refs/heads/old", "main:refs/heads/older")
    world.push("origin", "--delete", "old")
    assert "refs/heads/old\n" not in world.refs()
    world.work("tag", "--annotate", "-m", "known", "v0")
    world.push("origin", "v0")
    for name, what in (("config", "main:.judgekit/config.yaml"), ("folder", "main:.judgekit")):
        world.work("tag", name, what)
        push = world.push("origin", name)
        assert f"UNDETERMINED: refs/tags/{name}: it points to no commit" in push.err
        assert f"refs/tags/{name}" in world.refs()
    world.work.commit("one", a_md=good("a"))
    push = world.push("--dry-run", "origin", ":older", "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["gate"]["ref"] == "refs/heads/main"
    world.work("tag", "v1")
    world.push("origin", "v1", judged={"a.md": "GO"})
    oid = world.work.commit("two", b_md=bad("b"))
    world.work("tag", "--annotate", "-m", "second", "v2")
    push = world.push("origin", "v2", judged={"a.md": "GO", "b.md": "NO-GO"}, code=1)
    assert {verdict["commit"] for verdict in push.verdicts} >= {oid}


def test_pushes_of_nothing_and_past_the_hook(world: World) -> None:
    push = world.push()
    assert "Everything up-to-date" in push.err
    assert "judgekit" not in push.err
    refs = world.refs()
    world.work.commit("one", a_md=good("a"))
    push = world.push("--dry-run", "--porcelain", "origin", "main", judged={"a.md": "GO"})
    assert world.refs() == refs
    assert "judgekit" not in push.out, "programs read it"
    assert "GO" not in push.out
    assert "GO" in push.err
    world.work.commit("bad", a_md=bad("a"))
    world.push("--dry-run", "origin", "main", judged={"a.md": "NO-GO"}, code=1)
    world.push("--no-verify", "origin", "main")


def test_the_first_push_to_an_empty_remote(bare_world: World) -> None:
    bare_world.install()
    bare_world.work.write(".judgekit/config.yaml", BLOCKING)
    bare_world.work.commit("root", a_md=good("a"), b_md=bad("b"))
    bare_world.push(judged={"a.md": "GO", "b.md": "NO-GO"}, code=1)


def test_other_remotes(world: World) -> None:
    """A file that one remote has may still be new to the other one."""
    world.work.commit("one", a_md=good("a"))
    url = world.origin.folder.as_uri()
    push = world.push(url, "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["gate"]["remote"] == url
    other = GitRepo(world.folder / "other.git", "--bare")
    world.work("remote", "add", "other", str(other.folder))
    world.work("push", "--quiet", "--no-verify", "other", "main~:refs/heads/main")
    push = world.push("other", "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["gate"]["remote"] == str(other.folder)
    unknown = GitRepo(world.folder / "unknown.git", "--bare")  # goes by the rules of the others
    world.work.commit("bad", bad_md=bad("a"))
    world.push(str(unknown.folder), "main", judged={"bad.md": "NO-GO"}, code=1)


def test_a_bare_mirror_that_is_pushed_on(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    mirror = GitRepo(world.folder / "mirror.git", "--bare")
    world.work("push", "--quiet", "--no-verify", "../mirror.git", "main")
    mirror("remote", "add", "--mirror=push", "origin", "../origin.git")
    world.install(mirror)
    world.push("--mirror", "origin", of=mirror, judged={"a.md": "GO"})


def test_a_repository_of_sha256(bare_world: World) -> None:
    origin = GitRepo(bare_world.folder / "o256.git", "--bare", "--object-format=sha256")
    work = GitRepo(bare_world.folder / "w256", "--object-format=sha256")
    work("remote", "add", "origin", str(origin.folder))
    work.write(".judgekit/config.yaml", BLOCKING)
    work.commit("root", a_md=good("a"))
    bare_world.install(work)
    push = bare_world.push(of=work, judged={"a.md": "GO"})
    assert len(push.verdicts[0]["commit"]) == 64
    work.commit("two", b_md=bad("b"))
    bare_world.push(of=work, judged={"b.md": "NO-GO"}, code=1)


@pytest.mark.parametrize("option", ["--depth=1", "--filter=blob:none"])
def test_shallow_and_partial_clones(world: World, option: str) -> None:
    for name in ("a", "b"):
        world.work.commit(name, **{f"{name}_md": bad(name)})
    share(world)
    world.origin("config", "uploadpack.allowFilter", "true")
    world.work("clone", "--quiet", option, world.origin.folder.as_uri(), "../clone")
    clone = GitRepo(world.folder / "clone")
    world.install(clone)
    clone.commit("mine", d_md=good("d"))
    world.push(of=clone, judged={"d.md": "GO"})


def test_a_linked_worktree_and_a_folder_below_the_top(world: World) -> None:
    world.work("worktree", "add", "--quiet", "-b", "topic", "../linked")
    linked = GitRepo(world.folder / "linked")
    linked.commit("one", a_md=bad("a"))
    world.push("origin", "topic", of=linked, judged={"a.md": "NO-GO"}, code=1)
    world.work.write("docs/a.md", good("a"))
    world.work.commit("one")
    below = GitRepo(world.work.folder / "docs")
    before = len(world.ledger())
    done = below.run("push", "origin", "main", JUDGEKIT_REPLAY=str(world.record(world.work)))
    assert done.returncode == 0, os.fsdecode(done.stderr)
    assert [each["task_id"].partition("@")[0] for each in world.ledger()[before:]] == ["docs/a.md"]
    assert len({each["project"] for each in world.ledger()}) == 1


def test_a_submodule_and_what_points_to_it(world: World) -> None:
    inner = GitRepo(world.folder / "inner.git", "--bare")
    seed = GitRepo(world.folder / "seed")
    seed.write(".judgekit/config.yaml", BLOCKING)
    seed.commit("rules")
    seed("push", "--quiet", str(inner.folder), "main")
    allow = ("-c", "protocol.file.allow=always")
    world.work(*allow, "submodule", "--quiet", "add", str(inner.folder), "docs.md")
    world.work.commit("a submodule where a document could be", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    submodule = GitRepo(world.work.folder / "docs.md")
    world.install(submodule)
    submodule.commit("inside", b_md=bad("b"))
    world.push("origin", "HEAD:main", of=submodule, judged={"b.md": "NO-GO"}, code=1)


def test_a_branch_named_with_a_line_separator_disarms_nothing(world: World) -> None:
    for separator in SEPARATORS:
        world.origin("update-ref", f"refs/heads/zz{separator}y", world.work("rev-parse", "main"))
    world.work("fetch", "--quiet", "origin")
    world.work.commit("one", a_md=bad("a"))
    for name in ("main", *(f"refs/heads/new{separator}y" for separator in SEPARATORS)):
        world.push("origin", f"main:{name}", judged={"a.md": "NO-GO"}, code=1)


NAMES = [
    "a b  c.md",
    'it\'s "one".md',
    "a\nb.md",
    "a\tb.md",
    "über/日本.md",
    "-rf.md",
    ":a.md",
    "[a]*?.md",
]
NAMES += ["a\\b.md", "$(touch x).md", ".hidden/..a.md", "BAD.MD", "docs/bad.Md"]
OTHER_NAMES = [b"\xff\xfe.md", b"\x1b[2J\x07\xe2\x80\xaeb.md"]

UNJUDGEABLE = {
    "zero.md": (b"# A\0\n", "binary"),
    "latin.md": ("# Ünfinished\n".encode("latin-1"), "not UTF-8"),
    "utf16.md": ("# A\n".encode("utf-16"), "UTF-16"),
    "huge.md": (b"# A\n" * 1_100_000, "larger than 4 MB"),
    "pointer.md": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n",
        "Git LFS",
    ),
    "old_pointer.md": (
        b"version https://hawser.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n",
        "Git LFS",
    ),
    "annexed.md": (b"/annex/objects/SHA256E-s9--" + b"7" * 64 + b".md\n", "git-annex"),
    "linked.md": (b"../.git/annex/objects/0a/1b/SHA256E-s9--77/SHA256E-s9--77", "git-annex"),
    "fat.md": (b"#$# git-fat " + b"0" * 40 + b"                    9\n", "git-fat"),
    "empty.md": (b"", "empty"),
    "blank.md": (b" \n\n", "empty"),
}


def test_unusual_names(world: World) -> None:
    for name in NAMES:
        world.work.write(name, bad(name))
    world.work.commit("all")
    push = world.push(judged=dict.fromkeys(NAMES, "NO-GO"), code=1)
    ids = {verdict["subjects"][0]["path"]: verdict for verdict in push.verdicts}
    lines = [line for line in push.err.splitlines() if "or accept it: " in line]
    suggested = {shlex.split(line.partition("or accept it: ")[2])[2] for line in lines}
    for name in NAMES:
        assert f"NO-GO         {escape_name(name)}  (" in push.err
        plain = name.isprintable() and not name.startswith(
            "-"
        )  # which a command would take for an option
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
    other: dict[str, str | bytes] = {
        "b_md": "\ufeff" + good("b"),
        "c_md": b"---\r\ntitle: a\r\n---\r\n" + good("c").encode(),
    }
    world.work.commit("one", **other)
    push = world.push(judged={"b.md": "GO", "c.md": "GO"})
    told = push.err.split("UNDETERMINED  ")
    for name, (_, reason) in UNJUDGEABLE.items():
        (one,) = [each for each in told if each.startswith(name)]
        assert reason in one


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
    world.work.write("c.md", good("c"))
    world.work.write("a.txt", bad("a"))
    world.work.commit("mended")
    world.push(judged={"c.md": "GO"})
    world.work("mv", "a.txt", "a.md")
    world.work.commit("moved to where the gate looks")
    world.push(judged={"a.md": "NO-GO"}, code=1)


@pytest.mark.parametrize("names", [("a.md", "b.md", "c.md"), ("a.txt", "c.md")])
def test_a_file_that_is_moved_within_the_push_that_brings_it(
    world: World, names: tuple[str, ...]
) -> None:
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


def test_no_filter_and_no_replaced_object_hides_what_is_pushed(world: World) -> None:
    world.work("config", "filter.shout.clean", "tr A-Z a-z")
    world.work("config", "filter.shout.smudge", "tr a-z A-Z")
    world.work.write(".gitattributes", "*.md filter=shout diff=shout -text\n")
    world.work("config", "diff.shout.textconv", "touch ran; cat")
    world.work("config", "diff.shout.command", "touch ran; true")
    world.work.commit("one", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    assert not (world.work.folder / "ran").exists()
    world.work("rm", "--quiet", "--cached", ".gitattributes")
    (world.work.folder / ".gitattributes").unlink()
    world.work.commit("bad", a_md=bad("a"))
    fine = world.work("hash-object", "-w", "--stdin", stdin=good("a").encode())
    world.work("replace", "HEAD:a.md", fine)
    before = len(world.ledger())
    assert world.run("origin", "main").returncode == 1
    assert {each["verdict"] for each in world.ledger()[before:]} == {"reject"}


BOB = ("Bob", "bob@example.org")
AGENT = ("Agent", "agent@example.org")
CLAUDE = "Co-Authored-By: Claude <noreply@anthropic.com>"


def clone(world: World, name: str) -> GitRepo:
    world.work("clone", "--quiet", "../origin.git", f"../{name}")
    return GitRepo(world.folder / name)


@pytest.mark.parametrize("way", ["--no-rebase", "--rebase", "not pulled"])
def test_nobody_is_blamed_for_the_remotes_commits(world: World, way: str) -> None:
    theirs = clone(world, "theirs")
    theirs.commit("theirs", BOB, b_md=bad("b"))
    theirs("push", "--quiet", "origin", "main")
    world.work.commit("mine", a_md=good("a"))
    if way == "not pulled":  # the remote has moved on, and this clone does not know
        push = world.push("--force", "origin", "main", judged={"a.md": "GO"})
    else:
        world.work("pull", "--quiet", way, "--no-edit", "origin", "main")
        push = world.push(judged={"a.md": "GO"})
    assert push.verdicts[0]["author"]["name"] == "Ada <ada@example.org>"


def test_commits_of_others_come_under_their_authors(world: World) -> None:
    fork = clone(world, "fork")
    fork.commit("theirs", BOB, b_md=bad("b"))
    world.work.commit("mine", a_md=good("a"))
    world.work("pull", "--quiet", "--no-rebase", "--no-edit", "../fork", "main")
    other = clone(world, "other")
    other.commit("picked", ("Eve", "eve@example.org"), c_md=good("c"))
    world.work("fetch", "--quiet", "../other", "main")
    world.work("cherry-pick", "FETCH_HEAD")
    push = world.push(judged={"a.md": "GO", "b.md": "NO-GO", "c.md": "GO"}, code=1)
    authors = {
        verdict["subjects"][0]["path"]: verdict["author"]["name"][:3] for verdict in push.verdicts
    }
    assert authors == {"a.md": "Ada", "b.md": "Bob", "c.md": "Eve"}


def test_what_a_merge_itself_made_is_its_own(world: World) -> None:
    """One that settles a conflict, one that smuggles a change in, and an octopus."""
    world.work.commit("base", a_md=good("base"))
    share(world)
    world.work("switch", "--quiet", "--create", "topic")
    world.work.commit("on topic", BOB, a_md=bad("topic"))
    world.work("switch", "--quiet", "main")
    world.work.commit("on main", a_md=bad("main"))
    assert world.work.run("merge", "topic").returncode == 1
    merge = world.work.commit("merge", a_md=good("both"))
    push = world.push(judged={"a.md": "GO"})
    assert push.verdicts[0]["commit"] == merge
    for name in ("one", "two", "three"):
        world.work("switch", "--quiet", "--create", name, "main")
        world.work.commit(name, (name, f"{name}@example.org"), **{f"{name}_md": good(name)})
    world.work("switch", "--quiet", "main")
    world.work("merge", "--quiet", "one", "two", "three")
    push = world.push(judged={f"{name}.md": "GO" for name in ("one", "two", "three")})
    assert {verdict["author"]["name"].split()[0] for verdict in push.verdicts} == {
        "one",
        "two",
        "three",
    }
    world.work("switch", "--quiet", "--create", "last")
    world.work.commit("on last", b_md=good("b"))
    world.work("switch", "--quiet", "main")
    world.work("merge", "--quiet", "--no-ff", "--no-commit", "last")
    world.work.commit("merge", a_md=bad("smuggled"))
    world.push(judged={"a.md": "NO-GO", "b.md": "GO"}, code=1)


def test_whose_changes_are_judged(bare_world: World) -> None:
    """By the author, the committer, a co-author, or any other trailer; a word in a message is none."""
    bare_world.start('gate: {mode: blocking, authors: ["generated-by: *", "agent <*"]}\n')
    work = bare_world.work
    work.commit("by a person", a_md=bad("a"))
    work.commit("by an agent", AGENT, b_md=good("b"))
    work.commit("together\n\nCo-authored-by: Agent <agent@example.org>", c_md=good("c"))
    work.commit("made\n\nGenerated-By: tool", ("X", "x@other.invalid"), d_md=good("d"))
    work.commit("Generated-By: tool\n\nnot a trailer", e_md=bad("e"))
    bare_world.push(judged=dict.fromkeys(("b.md", "c.md", "d.md"), "GO"))


def test_the_family_of_an_agent_that_wrote_is_noted(world: World) -> None:
    """A draft that a person moved and mended has two authors; those of the remote's commits don't count."""
    ada = ("Ada", "ada@example.org")
    both = "Generated-By: Claude Code\nCo-authored-by: Codex <codex@openai.com>"
    table = [
        (f"mine\n\n{CLAUDE}", ada, "anthropic"),
        (f"mine\n\n{both}", ada, "openai, anthropic"),
        ("mine\n\nCo-authored-by: Copilot <1+Copilot@users.noreply.github.com>", ada, "unknown"),
        ("mine", ("Codex", "codex@openai.com"), "openai"),
        ("mine\n\nReviewed-by: Claude <noreply@anthropic.com>", ada, None),
        (f"mine\n\nReviewed-by: Ann\u2028{CLAUDE}", ada, None),
        ("mine: Claude <noreply@anthropic.com> had no hand in it", ada, None),
    ]
    expected: dict[str, str | None] = {}
    for number, (message, author, family) in enumerate(table):
        world.work.commit(message, author, **{f"{number}_md": good(str(number))})
        expected[f"{number}.md"] = family
    world.work("mv", "0.md", "moved.md")
    world.work.commit("move it")
    world.work.commit("mend it", moved_md=good("moved"))
    expected["moved.md"] = expected.pop("0.md")
    push = world.push(judged=dict.fromkeys(expected, "GO"))
    assert {
        each["subjects"][0]["path"]: each["author"]["family"] for each in push.verdicts
    } == expected
    world.work.commit("written anew", moved_md=good("anew"))
    push = world.push(judged={"moved.md": "GO"})
    assert push.verdicts[0]["author"]["family"] is None


@pytest.mark.parametrize("wrote", [True, False])
def test_where_the_rules_require_it_nothing_goes_by_the_word_of_its_authors_family(
    bare_world: World,
    wrote: bool,  # noqa: FBT001 - a column of the table
) -> None:
    bare_world.start("gate: {mode: blocking}\njudge: {independence: require}\n")
    trailer = f"\n\n{CLAUDE}" if wrote else ""
    bare_world.work.commit(f"mine{trailer}", a_md=good("a"))
    with Loopback(by_content) as model:
        own = {
            "JUDGEKIT_REPLAY": "",
            "JUDGEKIT_API_BASE": model.base,
            "JUDGEKIT_MODEL": "claude-own",
        }
        bare_world.environ.update(own)
        push = bare_world.push(judged={"a.md": "UNDETERMINED" if wrote else "GO"})
        assert ("judge.independence is require" in push.err + push.out) == wrote
        bare_world.work.commit(f"bad{trailer}", b_md=bad("b"))
        bare_world.push(judged={"b.md": "NO-GO"}, code=1)
        with Loopback(by_content) as other:
            keys = {"OPENAI_API_KEY": "jk-test-0123456789", "OPENAI_BASE_URL": other.base}
            bare_world.work.commit(f"good again{trailer}", b_md=good("b"))
            bare_world.environ.update(keys)
            push = bare_world.push(judged={"b.md": "GO"})
            assert bool(other.requests) == wrote
            assert ("openai: used in place of" in push.err + push.out) == wrote
