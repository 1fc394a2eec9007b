"""Pushes for which it is not plain whose rules hold: the strictest known, or a line that says more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from pushing import BLOCKING, bad, good

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow

LAX = "gate: {mode: advisory}\n"
UNSURE = "gate: {mode: blocking, undetermined: block}\n"


def lax_commit(world: World, **files: str) -> None:
    """Commit files, and rules that would let them pass."""
    world.work.write(".judgekit/config.yaml", LAX)
    world.work.commit("lax", **files)


def test_a_push_by_address_goes_by_the_rules_of_that_remote(world: World) -> None:
    lax_commit(world, bad_md=bad("a"))
    for form in ("{}", "file://{}", "{}/", "{}/../origin.git"):
        url = form.format(world.origin.folder)
        world.push(url, "main", judged={"bad.md": "NO-GO"}, code=1)
        world.push(url, "main:new", judged={"bad.md": "NO-GO"}, code=1)


def test_a_second_name_of_a_remote_brings_no_other_rules(world: World) -> None:
    lax_commit(world, bad_md=bad("a"))
    world.work("remote", "add", "second", str(world.origin.folder))
    world.push("second", "main", judged={"bad.md": "NO-GO"}, code=1)
    world.work("update-ref", "refs/remotes/second/main", "HEAD~1")
    world.push("second", "main:new", judged={"bad.md": "NO-GO"}, code=1)


def test_without_a_default_branch_the_strictest_branch_decides(world: World) -> None:
    world.work("push", "--quiet", "--no-verify", "origin", "main:refs/heads/strict")
    lax_commit(world)
    world.work("push", "--quiet", "--no-verify", "origin", "main:refs/heads/topic")
    world.work("update-ref", "-d", "refs/remotes/origin/main")
    world.work("update-ref", "-d", "refs/remotes/origin/HEAD")
    world.work.commit("more", bad_md=bad("a"))
    world.push("origin", "main:topic", judged={"bad.md": "NO-GO"}, code=1)


def test_rules_that_cannot_be_read_put_no_others_out_of_force(world: World) -> None:
    world.work("push", "--quiet", "--no-verify", "origin", "main:refs/heads/strict")
    world.work.write(".judgekit/config.yaml", "gate: {mode: maybe}\n")
    world.work.commit("damaged")
    world.work("push", "--quiet", "--no-verify", "origin", "main:refs/heads/damaged")
    world.work("update-ref", "-d", "refs/remotes/origin/main")
    world.work("update-ref", "-d", "refs/remotes/origin/HEAD")
    world.work.commit("more", bad_md=bad("a"))
    world.push("origin", "main:topic", judged={"bad.md": "NO-GO"}, code=1)


def test_capitals_hide_no_file(world: World) -> None:
    names = ["BAD.MD", "docs/bad.Md"]
    for name in names:
        world.work.write(name, bad("a"))
    world.work.commit("capitals")
    world.push(judged=dict.fromkeys(names, "NO-GO"), code=1)


def test_a_tag_on_no_commit_is_said_not_to_be_judged(world: World) -> None:
    world.work.commit("good", a_md=good("a"))
    for name, what in (("tree", "main^{tree}"), ("blob", "main:a.md")):
        world.work("tag", name, world.work("rev-parse", what))
        done = world.push("origin", name)
        assert f"UNDETERMINED: refs/tags/{name}: it points to no commit" in done.err


def test_teams_may_let_nothing_pass_that_is_not_judged(world: World) -> None:
    world.work.write(".judgekit/config.yaml", UNSURE)
    world.work.commit("rules")
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work.commit("binary", a_md="a\0b")
    done = world.push(judged={}, code=1)
    assert "blocked: 1 UNDETERMINED" in done.err
    world.work("reset", "--quiet", "--hard", "HEAD~1")
    world.work("tag", "odd", world.work("rev-parse", "main^{tree}"))
    assert "blocked: 1 UNDETERMINED" in world.push("origin", "odd", code=1).err
    world.work.commit("good", a_md=good("a"))
    world.push(judged={"a.md": "GO"})


def test_that_is_not_lowered_by_a_project_or_a_push(world: World) -> None:
    world.work.write(".judgekit/config.yaml", BLOCKING.replace("}", ", undetermined: pass}"))
    world.work.commit("rules")
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    config = world.home / "config" / "judgekit" / "config.yaml"
    world.work.commit("binary", a_md="a\0b")
    world.push(judged={}, code=1, JUDGEKIT_GATE_UNDETERMINED="block")
    assert not config.exists()
    world.push(judged={})


def test_a_fault_of_ours_is_not_passed_there_either(world: World) -> None:
    world.work.write(".judgekit/config.yaml", UNSURE.replace("}", ", rubric: no-such}"))
    world.work.commit("rules")
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work.commit("good", a_md=good("a"))
    done = world.push(code=1)
    assert "nothing was judged" in done.err


def test_another_place_is_another_remote(world: World) -> None:
    """A new remote that nothing is known of goes by the rules of the others, and its commits are new."""
    other = GitRepo(world.folder / "other.git", "--bare")
    world.work.commit("bad", bad_md=bad("a"))
    world.push(str(other.folder), "main", judged={"bad.md": "NO-GO"}, code=1)
