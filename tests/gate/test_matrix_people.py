"""Real pushes: whose changes are judged, after merges and the like, and which paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from loopback import Loopback
from pushing import bad, good
from scripted import by_content

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow

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
    authors = {verdict["subjects"][0]["path"]: verdict["author"]["name"][:3] for verdict in push.verdicts}
    assert authors == {"a.md": "Ada", "b.md": "Bob", "c.md": "Eve"}


def test_what_a_merge_itself_made_is_its_own(world: World) -> None:
    """One that settles a conflict, one that smuggles a change in, and an octopus."""
    world.work.commit("base", a_md=good("base"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
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
    assert {verdict["author"]["name"].split()[0] for verdict in push.verdicts} == {"one", "two", "three"}
    world.work("switch", "--quiet", "--create", "last")
    world.work.commit("on last", b_md=good("b"))
    world.work("switch", "--quiet", "main")
    world.work("merge", "--quiet", "--no-ff", "--no-commit", "last")
    world.work.commit("merge", a_md=bad("smuggled"))
    world.push(judged={"a.md": "NO-GO", "b.md": "GO"}, code=1)


def test_reverts(world: World) -> None:
    world.work.commit("base", a_md=good("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work.commit("bad", a_md=bad("a"))
    world.work("revert", "--no-edit", "HEAD")
    world.push()
    world.work.commit("bad again", a_md=bad("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work("revert", "--no-edit", "HEAD")
    world.push(judged={"a.md": "GO"})


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


def test_which_paths_are_judged(bare_world: World) -> None:
    bare_world.start('gate: {mode: blocking, paths: ["docs/", "/*.md", "!docs/api/", "!CHANGELOG.md"]}\n')
    for path in ("a.md", "docs/b.md", "docs/api/c.md", "CHANGELOG.md", "docs/d.txt", "other/e.md"):
        bare_world.work.write(path, good(path))
    bare_world.work.commit("all")
    bare_world.push(judged=dict.fromkeys(("a.md", "docs/b.md", "docs/d.txt"), "GO"))


def test_the_family_of_an_agent_that_wrote_is_noted(world: World) -> None:
    """A draft that was moved and mended by a person has two hands; what the remote has does not count."""
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
    assert {each["subjects"][0]["path"]: each["author"]["family"] for each in push.verdicts} == expected
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
        own = {"JUDGEKIT_REPLAY": "", "JUDGEKIT_API_BASE": model.base, "JUDGEKIT_MODEL": "claude-own"}
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
