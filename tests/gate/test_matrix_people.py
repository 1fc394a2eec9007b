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
AUTHORED = "gate: {mode: blocking, authors: [%s]}\n"


def clone(world: World, name: str = "theirs") -> GitRepo:
    world.work("clone", "--quiet", "../origin.git", f"../{name}")
    return GitRepo(world.folder / name)


def test_a_merge_of_the_remotes_commits_blames_nobody_for_them(world: World) -> None:
    theirs = clone(world)
    theirs.commit("theirs", BOB, b_md=bad("b"))
    theirs("push", "--quiet", "origin", "main")
    world.work.commit("mine", a_md=good("a"))
    world.work("pull", "--quiet", "--no-rebase", "--no-edit", "origin", "main")
    push = world.push(judged={"a.md": "GO"})
    assert push.verdicts[0]["author"]["name"] == "Ada <ada@example.org>"


def test_a_rebase_onto_the_remotes_commits(world: World) -> None:
    theirs = clone(world)
    theirs.commit("theirs", BOB, b_md=bad("b"))
    theirs("push", "--quiet", "origin", "main")
    world.work.commit("mine", a_md=good("a"))
    world.work("pull", "--quiet", "--rebase", "origin", "main")
    world.push(judged={"a.md": "GO"})


def test_a_stale_base_blames_nobody(world: World) -> None:
    """The remote has moved on, and this clone does not know."""
    theirs = clone(world)
    theirs.commit("theirs", BOB, b_md=bad("b"))
    theirs("push", "--quiet", "origin", "main")
    world.work.commit("mine", a_md=good("a"))
    push = world.push("--force", "origin", "main", judged={"a.md": "GO"})
    assert push.verdicts[0]["author"]["name"] == "Ada <ada@example.org>"


def test_a_merge_of_a_fork_brings_its_commits_under_their_authors(world: World) -> None:
    fork = clone(world, "fork")
    fork.commit("theirs", BOB, b_md=bad("b"))
    world.work.commit("mine", a_md=good("a"))
    world.work("pull", "--quiet", "--no-rebase", "--no-edit", "../fork", "main")
    push = world.push(judged={"a.md": "GO", "b.md": "NO-GO"}, code=1)
    authors = {verdict["subjects"][0]["path"]: verdict["author"]["name"] for verdict in push.verdicts}
    assert authors == {"a.md": "Ada <ada@example.org>", "b.md": "Bob <bob@example.org>"}


def test_a_merge_that_settles_a_conflict_has_made_the_file(world: World) -> None:
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


def test_a_merge_that_smuggles_a_change_in(world: World) -> None:
    world.work.commit("base", a_md=good("base"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work("switch", "--quiet", "--create", "topic")
    world.work.commit("on topic", b_md=good("b"))
    world.work("switch", "--quiet", "main")
    world.work("merge", "--quiet", "--no-ff", "--no-commit", "topic")
    world.work.commit("merge", a_md=bad("smuggled"))
    world.push(judged={"a.md": "NO-GO", "b.md": "GO"}, code=1)


def test_an_octopus(world: World) -> None:
    for name in ("one", "two", "three"):
        world.work("switch", "--quiet", "--create", name, "main")
        world.work.commit(name, (name, f"{name}@example.org"), **{f"{name}_md": good(name)})
    world.work("switch", "--quiet", "main")
    world.work("merge", "--quiet", "one", "two", "three")
    push = world.push(judged={f"{name}.md": "GO" for name in ("one", "two", "three")})
    assert {verdict["author"]["name"].split()[0] for verdict in push.verdicts} == {"one", "two", "three"}


def test_a_cherry_pick_keeps_its_author(world: World) -> None:
    fork = clone(world, "fork")
    fork.commit("theirs", BOB, b_md=good("b"))
    world.work("fetch", "--quiet", "../fork", "main")
    world.work("cherry-pick", "FETCH_HEAD")
    push = world.push(judged={"b.md": "GO"})
    assert push.verdicts[0]["author"]["name"] == "Bob <bob@example.org>"


def test_a_revert_within_the_push(world: World) -> None:
    world.work.commit("base", a_md=good("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work.commit("bad", a_md=bad("a"))
    world.work("revert", "--no-edit", "HEAD")
    world.push()


def test_a_revert_of_what_the_remote_has(world: World) -> None:
    world.work.commit("base", a_md=good("a"))
    world.work.commit("other", a_md=bad("a"))
    world.work("push", "--quiet", "--no-verify", "origin", "main")
    world.work("revert", "--no-edit", "HEAD")
    world.push(judged={"a.md": "GO"})


@pytest.mark.parametrize(
    ("authors", "judged"),
    [
        ('"*@other.invalid>"', {"d.md"}),
        ('"agent <*"', {"b.md", "c.md"}),
        ('"*bob*"', set()),
        ('"Committer <*"', {"a.md", "b.md", "c.md", "d.md"}),
        ('"generated-by: *"', {"d.md"}),
        ('"Generated-By: tool", "Agent *"', {"b.md", "c.md", "d.md"}),
    ],
)
def test_whose_changes_are_judged(bare_world: World, authors: str, judged: set[str]) -> None:
    """By the author, the committer, a co-author, or any other trailer."""
    bare_world.start(AUTHORED % authors)
    work = bare_world.work
    work.commit("by a person", a_md=good("a"))
    work.commit("by an agent", AGENT, b_md=good("b"))
    work.commit("together\n\nCo-authored-by: Agent <agent@example.org>", c_md=good("c"))
    work.commit("made\n\nGenerated-By: tool", ("X", "x@other.invalid"), d_md=good("d"))
    bare_world.push(judged=dict.fromkeys(judged, "GO"))


def test_a_word_in_a_message_is_no_trailer(bare_world: World) -> None:
    bare_world.start(AUTHORED % '"Generated-By: *"')
    bare_world.work.commit("Generated-By: tool\n\nnot a trailer", a_md=bad("a"))
    bare_world.push()


@pytest.mark.parametrize(
    ("paths", "judged"),
    [
        ('"**/*.md", "!CHANGELOG.md"', {"a.md", "docs/b.md", "docs/api/c.md"}),
        ('"docs/", "!docs/api/"', {"docs/b.md", "docs/d.txt"}),
        ('"/*.md"', {"a.md", "CHANGELOG.md"}),
        ('"docs/**/*.md"', {"docs/b.md", "docs/api/c.md"}),
        ('"*.rst"', set()),
    ],
)
def test_which_paths_are_judged(bare_world: World, paths: str, judged: set[str]) -> None:
    bare_world.start(f"gate: {{mode: blocking, paths: [{paths}]}}\n")
    for path in ("a.md", "docs/b.md", "docs/api/c.md", "CHANGELOG.md", "docs/d.txt"):
        bare_world.work.write(path, good(path))
    bare_world.work.commit("all")
    bare_world.push(judged=dict.fromkeys(judged, "GO"))


CLAUDE = "Co-Authored-By: Claude <noreply@anthropic.com>"


@pytest.mark.parametrize(
    ("message", "author", "family"),
    [
        (f"mine\n\n{CLAUDE}", None, "anthropic"),
        (
            "mine\n\nGenerated-By: Claude Code\nCo-authored-by: Codex <codex@openai.com>",
            None,
            "openai, anthropic",
        ),
        ("mine\n\nCo-authored-by: Copilot <1+Copilot@users.noreply.github.com>", None, "unknown"),
        ("mine", ("Codex", "codex@openai.com"), "openai"),
        ("mine\n\nReviewed-by: Claude <noreply@anthropic.com>", None, None),
        ("mine: Claude <noreply@anthropic.com> had no hand in it", None, None),
    ],
)
def test_the_family_of_an_agent_that_wrote_is_noted(
    world: World, message: str, author: tuple[str, str] | None, family: str | None
) -> None:
    if author is None:
        world.work.commit(message, a_md=good("a"))
    else:
        world.work.commit(message, author, a_md=good("a"))
    push = world.push(judged={"a.md": "GO"})
    assert push.verdicts[0]["author"]["family"] == family


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
        assert ("judge.independence: require" in push.err + push.out) == wrote
        bare_world.work.commit(f"bad{trailer}", b_md=bad("b"))
        bare_world.push(judged={"b.md": "NO-GO"}, code=1)
        with Loopback(by_content) as other:
            keys = {"OPENAI_API_KEY": "jk-test-0123456789", "OPENAI_BASE_URL": other.base}
            bare_world.work.commit(f"good again{trailer}", b_md=good("b"))
            bare_world.environ.update(keys)
            push = bare_world.push(judged={"b.md": "GO"})
            assert bool(other.requests) == wrote
            assert ("openai: asked in place of" in push.err + push.out) == wrote


def test_every_commit_of_a_push_that_changed_a_file_counts(world: World) -> None:
    """The agent's first draft, moved, and corrected by a person; the other file is hers alone."""
    world.work.commit(f"draft\n\n{CLAUDE}", a_md=good("a"), c_md=good("c"))
    world.work("mv", "a.md", "b.md")
    world.work.commit("move it")
    world.work.commit("mend it", b_md=good("b"), d_md=good("d"))
    push = world.push(judged={"b.md": "GO", "c.md": "GO", "d.md": "GO"})
    families = {verdict["subjects"][0]["path"]: verdict["author"]["family"] for verdict in push.verdicts}
    assert families == {"b.md": "anthropic", "c.md": "anthropic", "d.md": None}


def test_commits_that_the_remote_has_do_not_count(world: World) -> None:
    world.work.commit(f"draft\n\n{CLAUDE}", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    world.work.commit("written anew", a_md=good("anew"))
    push = world.push(judged={"a.md": "GO"})
    assert push.verdicts[0]["author"]["family"] is None
