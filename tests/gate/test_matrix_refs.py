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


def test_a_commit_on_a_branch_the_remote_has(world: World) -> None:
    oid = world.work.commit("one", a_md=good("a"))
    push = world.push(judged={"a.md": "GO"})
    (verdict,) = push.verdicts
    assert verdict["commit"] == oid
    assert verdict["gate"] == {
        "mode": "blocking",
        "remote": "../origin.git",
        "ref": "refs/heads/main",
        "cached": False,
    }


def test_a_bad_document_is_held_up(world: World) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)


def test_a_new_branch_brings_only_what_no_ref_of_the_remote_has(world: World) -> None:
    world.work.commit("on main", a_md=bad("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work("switch", "--quiet", "--create", "topic")
    world.work.commit("on topic", b_md=good("b"))
    world.push("origin", "topic", judged={"b.md": "GO"})


def test_a_new_branch_without_a_commit_of_its_own(world: World) -> None:
    world.push("origin", "main:refs/heads/copy")


def test_several_refs_at_once(world: World) -> None:
    first = world.work.commit("on main", a_md=good("a"))
    world.work("switch", "--quiet", "--create", "topic", "HEAD~")
    second = world.work.commit("on topic", b_md=bad("b"))
    push = world.push("origin", "main", "topic", judged={"a.md": "GO", "b.md": "NO-GO"}, code=1)
    assert {verdict["commit"] for verdict in push.verdicts} == {first, second}
    assert {verdict["gate"]["ref"] for verdict in push.verdicts} == {"refs/heads/main, refs/heads/topic"}


def test_the_same_change_on_two_refs_is_judged_once(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    world.work("branch", "copy")
    push = world.push("origin", "main", "copy", judged={"a.md": "GO"})
    assert len(push.verdicts) == 1


def test_two_versions_of_a_file_on_two_refs_are_both_judged(world: World) -> None:
    world.work.commit("good", a_md=good("a"))
    world.work("switch", "--quiet", "--create", "topic", "HEAD~")
    world.work.commit("bad", a_md=bad("a"))
    before = len(world.ledger())
    assert world.run("origin", "main", "topic").returncode == 1
    assert {each["verdict"] for each in world.ledger()[before:]} == {"accept", "reject"}


def test_a_forced_push_after_an_amend(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    world.work.write("a.md", good("a, again"))
    world.work("commit", "--quiet", "--all", "--amend", "-m", "better")
    push = world.push("--force", "origin", "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["commit"] == world.work("rev-parse", "main")


def test_an_amend_that_changes_the_message_alone(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    world.work("commit", "--quiet", "--amend", "-m", "better said")
    world.push("--force", "origin", "main")


def test_a_forced_push_back_to_an_older_commit(world: World) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.push("--force", "origin", "main~:main")


def test_a_rejected_push_that_is_not_forced(world: World) -> None:
    """Git asks the hook only for what it is going to send."""
    world.work.commit("one", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    world.work("reset", "--quiet", "--hard", "HEAD~")
    world.work.commit("two", b_md=good("b"))
    world.push("origin", "main", code=1)


def test_a_deletion(world: World) -> None:
    world.work("push", "--quiet", "--no-verify", "origin", "main:refs/heads/old")
    world.push("origin", "--delete", "old")
    assert "refs/heads/old" not in world.refs()


def test_a_deletion_beside_an_update(world: World) -> None:
    world.work("push", "--quiet", "--no-verify", "origin", "main:refs/heads/old")
    world.work.commit("one", a_md=good("a"))
    push = world.push("origin", ":old", "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["gate"]["ref"] == "refs/heads/main"


def test_a_light_tag(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    world.work("tag", "v1")
    world.push("origin", "v1", judged={"a.md": "GO"})


def test_an_annotated_tag(world: World) -> None:
    oid = world.work.commit("one", a_md=bad("a"))
    world.work("tag", "--annotate", "-m", "first", "v1")
    push = world.push("origin", "v1", judged={"a.md": "NO-GO"}, code=1)
    assert push.verdicts[0]["commit"] == oid


def test_a_tag_of_a_commit_that_the_remote_has(world: World) -> None:
    world.work("tag", "--annotate", "-m", "first", "v1")
    world.push("origin", "v1")


def test_a_tag_of_a_blob_and_one_of_a_tree(world: World) -> None:
    world.work("tag", "config", "main:.judgekit/config.yaml")
    world.work("tag", "folder", "main:.judgekit")
    world.push("origin", "config", "folder")
    assert "refs/tags/folder" in world.refs()


def test_all_tags(world: World) -> None:
    for name in ("a", "b"):
        world.work.commit(name, **{f"{name}_md": good(name)})
        world.work("tag", name)
    world.push("origin", "--tags", judged={"a.md": "GO", "b.md": "GO"})


def test_head_as_what_is_pushed(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    world.push("origin", "HEAD:refs/heads/topic", judged={"a.md": "GO"})


def test_a_detached_head(world: World) -> None:
    world.work("switch", "--quiet", "--detach")
    world.work.commit("one", a_md=good("a"))
    world.push("origin", "HEAD:main", judged={"a.md": "GO"})


def test_a_bare_object_id_as_what_is_pushed(world: World) -> None:
    oid = world.work.commit("one", a_md=bad("a"))
    world.push("origin", f"{oid}:refs/heads/topic", judged={"a.md": "NO-GO"}, code=1)


def test_an_expression_with_spaces_as_what_is_pushed(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    world.push("origin", "main@{0 seconds ago}:refs/heads/topic", judged={"a.md": "GO"})


def test_a_ref_that_is_no_branch(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    push = world.push("origin", "HEAD:refs/for/main", judged={"a.md": "GO"})
    assert push.verdicts[0]["gate"]["ref"] == "refs/for/main"


def test_a_branch_whose_name_is_not_ascii(world: World) -> None:
    world.work("switch", "--quiet", "--create", "thème/ärger")
    world.work.commit("one", a_md=good("a"))
    push = world.push("origin", "thème/ärger", judged={"a.md": "GO"})
    assert push.verdicts[0]["gate"]["ref"] == "refs/heads/thème/ärger"


def test_nothing_to_push(world: World) -> None:
    push = world.push()
    assert "Everything up-to-date" in push.err
    assert "judgekit" not in push.err


def test_a_dry_run_is_judged_and_sends_nothing(world: World) -> None:
    refs = world.refs()
    world.work.commit("one", a_md=good("a"))
    world.push("--dry-run", "origin", "main", judged={"a.md": "GO"})
    assert world.refs() == refs


def test_a_dry_run_of_a_bad_document(world: World) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.push("--dry-run", "origin", "main", judged={"a.md": "NO-GO"}, code=1)


def test_all_branches(world: World) -> None:
    for name in ("one", "two"):
        world.work("switch", "--quiet", "--create", name, "main")
        world.work.commit(name, **{f"{name}_md": good(name)})
    world.push("--all", "origin", judged={"one.md": "GO", "two.md": "GO"})


def test_a_mirror(world: World) -> None:
    world.work("switch", "--quiet", "--create", "topic")
    world.work.commit("one", a_md=good("a"))
    world.work("tag", "v1")
    world.push("--mirror", "origin", judged={"a.md": "GO"})
    assert "refs/tags/v1" in world.refs()


def test_an_atomic_push_of_a_good_and_a_bad_branch(world: World) -> None:
    world.work.commit("good", a_md=good("a"))
    world.work("switch", "--quiet", "--create", "topic", "HEAD~")
    world.work.commit("bad", b_md=bad("b"))
    world.push("--atomic", "origin", "main", "topic", judged={"a.md": "GO", "b.md": "NO-GO"}, code=1)


def test_a_push_without_the_hook(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    world.push("--no-verify", "origin", "main")


def test_the_first_push_to_an_empty_remote(bare_world: World) -> None:
    bare_world.install()
    bare_world.work.write(".judgekit/config.yaml", BLOCKING)
    bare_world.work.commit("root", a_md=good("a"), b_md=bad("b"))
    bare_world.push(judged={"a.md": "GO", "b.md": "NO-GO"}, code=1)


def test_an_orphan_branch(world: World) -> None:
    world.work("switch", "--quiet", "--orphan", "pages")
    world.work.commit("root", a_md=good("a"))
    world.push("origin", "pages", judged={"a.md": "GO"})


def test_a_remote_that_is_a_url(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    url = world.origin.folder.as_uri()
    push = world.push(url, "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["gate"]["remote"] == url


def test_two_remotes(world: World) -> None:
    """What one remote has is new to the other, as far as that one was fetched."""
    other = GitRepo(world.folder / "other.git", "--bare")
    world.work("remote", "add", "other", str(other.folder))
    world.work("push", "--quiet", "--no-verify", "other", "main")
    world.work.commit("one", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    push = world.push("other", "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["gate"]["remote"] == str(other.folder)


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


def test_a_shallow_clone(world: World) -> None:
    for name in ("a", "b", "c"):
        world.work.commit(name, **{f"{name}_md": bad(name)})
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work("clone", "--quiet", "--depth=1", world.origin.folder.as_uri(), "../shallow")
    shallow = GitRepo(world.folder / "shallow")
    world.install(shallow)
    shallow.commit("mine", d_md=good("d"))
    world.push(of=shallow, judged={"d.md": "GO"})


def test_a_partial_clone(world: World) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.origin("config", "uploadpack.allowFilter", "true")
    world.work("clone", "--quiet", "--filter=blob:none", world.origin.folder.as_uri(), "../partial")
    partial = GitRepo(world.folder / "partial")
    world.install(partial)
    partial.commit("mine", b_md=good("b"))
    world.push(of=partial, judged={"b.md": "GO"})


def test_a_linked_worktree(world: World) -> None:
    world.work("worktree", "add", "--quiet", "-b", "topic", "../linked")
    linked = GitRepo(world.folder / "linked")
    linked.commit("one", a_md=bad("a"))
    world.push("origin", "topic", of=linked, judged={"a.md": "NO-GO"}, code=1)
    assert len({each["project"] for each in world.ledger()}) == 1


def test_a_folder_below_the_top(world: World) -> None:
    world.work.write("docs/a.md", good("a"))
    world.work.commit("one")
    below = GitRepo(world.work.folder / "docs")
    before = len(world.ledger())
    done = below.run("push", "origin", "main", JUDGEKIT_REPLAY=str(world.record(world.work)))
    assert done.returncode == 0, os.fsdecode(done.stderr)
    assert [each["task_id"].partition("@")[0] for each in world.ledger()[before:]] == ["docs/a.md"]


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


def test_git_speaks_to_programs_undisturbed(world: World) -> None:
    world.work.commit("one", a_md=good("a"))
    push = world.push("--porcelain", "origin", "main", judged={"a.md": "GO"})
    assert "judgekit" not in push.out
    assert "GO" not in push.out
    assert "GO" in push.err


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_branch_of_somebody_else_named_with_a_line_separator_disarms_nothing(
    world: World, separator: str
) -> None:
    name = f"refs/heads/zz{separator}y"
    world.origin("update-ref", name, world.work("rev-parse", "main"))
    world.work("fetch", "--quiet", "origin")
    world.work.commit("one", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_what_is_pushed_to_a_name_with_a_line_separator_is_judged(world: World, separator: str) -> None:
    world.work.commit("one", a_md=bad("a"))
    world.push("origin", f"main:refs/heads/zz{separator}y", judged={"a.md": "NO-GO"}, code=1)


def test_a_trailer_with_a_line_separator_is_one_trailer(world: World) -> None:
    world.work.write("a.md", good("a"))
    world.work("add", "--all")
    trailer = "Reviewed-by: Ann\u2028Co-Authored-By: Claude <noreply@anthropic.com>"
    world.work("commit", "--quiet", "-m", f"one\n\n{trailer}\n")
    push = world.push(judged={"a.md": "GO"})
    assert push.verdicts[0]["author"]["family"] is None
