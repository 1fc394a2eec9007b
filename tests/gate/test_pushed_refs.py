"""Real pushes: which refs go where, and what of it is new to the remote."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from pushing import BLOCKING, bad, good

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow

# What Python, and nobody else, takes for the end of a line in a name that git allows.
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
    assert {verdict["gate"]["ref"] for verdict in push.verdicts} == {"refs/heads/main, refs/heads/topic"}
    assert len(world.push("origin", "main", "copy", judged={"a.md": "GO"}).verdicts) == 1
    world.work.commit("another version", a_md=bad("a"))
    before = len(world.ledger())
    assert world.run("origin", "main", "topic").returncode == 1
    assert {each["task_id"].partition("@")[0] for each in world.ledger()[before:]} == {"a.md", "b.md"}


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
    """What one remote has is new to the other, as far as that one was fetched."""
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
    """Neither one of somebody else nor the one that is pushed to."""
    for separator in SEPARATORS:
        world.origin("update-ref", f"refs/heads/zz{separator}y", world.work("rev-parse", "main"))
    world.work("fetch", "--quiet", "origin")
    world.work.commit("one", a_md=bad("a"))
    for name in ("main", *(f"refs/heads/new{separator}y" for separator in SEPARATORS)):
        world.push("origin", f"main:{name}", judged={"a.md": "NO-GO"}, code=1)
