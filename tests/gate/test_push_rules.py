"""Real pushes: whose rules apply, which verdicts block, and the remedies that a person has.

If it's unclear whose rules hold, the strictest known ones do.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import run as start
from typing import TYPE_CHECKING

import ledger_lines
import pytest
from loopback import Loopback
from pushing import BLOCKING, bad, good
from scripted import by_content

from judgekit.config import files
from judgekit.hooks.pre_push import find_skip_variable
from judgekit.ledger import Fault, Label, Ledger, ModeChange, OverrideLine, Skip, kpi

if TYPE_CHECKING:
    from pushing import World

    from judgekit.ledger.records import Decided

pytestmark = pytest.mark.slow

ADVISORY = LAX = "gate: {mode: advisory}\n"
CONFIG = ".judgekit/config.yaml"


def decide(world: World, task: str, decision: Decided, *, terminal: bool = True) -> None:
    line = OverrideLine(
        task_id=task, decision=decision, why="I read it", who="ann", terminal=terminal
    )
    Ledger.of(world.work.folder).add(line)


def share(world: World, *refs: str) -> None:
    """Push without asking the gate."""
    world.work("push", "--quiet", "--no-verify", "origin", *(refs or ("main",)))


def users_config(world: World, text: str) -> None:
    file = world.home / "judgekit" / "config.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


def test_an_advisory_gate_lets_a_bad_document_leave(bare_world: World) -> None:
    """So is one without any configuration; new rules hold from the push after the one that brings them."""
    bare_world.install()
    bare_world.work.commit("bad", a_md=bad("a"))
    push = bare_world.push(judged={"a.md": "NO-GO"})
    assert push.verdicts[0]["gate"]["mode"] == "advisory"
    assert "advisory: 1 NO-GO; the push continues" in push.err
    bare_world.work.write(CONFIG, ADVISORY)
    bare_world.work.commit("rules")
    bare_world.push()
    bare_world.work.write(CONFIG, BLOCKING)
    bare_world.work.commit("strict rules", a_md=bad("a, again"))
    bare_world.push(judged={"a.md": "NO-GO"})
    bare_world.work.commit("bad", a_md=bad("a, still"))
    bare_world.push(judged={"a.md": "NO-GO"}, code=1)


def test_a_block_says_how_to_go_on(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"), b_md=good("b"))
    push = world.push(judged={"a.md": "NO-GO", "b.md": "GO"}, code=1)
    (file,) = (world.home / "judgekit" / "state" / "ledger").glob(
        "*/*.jsonl"
    )  # what is recorded is private
    assert [path.stat().st_mode & 0o077 for path in (file, file.parent)] == [0, 0]
    assert "It says what holds" not in file.read_text(encoding="utf-8")
    assert str(Path.home()) not in file.read_text(encoding="utf-8")
    task = next(verdict["task_id"] for verdict in push.verdicts if verdict["verdict"] == "reject")
    for told in (
        "Unfinished.",
        "semantic 1",
        f"judgekit override {task} accept",
        "JUDGEKIT_SKIP=1 git push",
    ):
        assert told in push.err


def test_a_push_cannot_approve_itself(world: World) -> None:
    for rules in (
        ADVISORY,
        'gate: {mode: blocking, paths: ["!**"]}\n',
        "gate: {mode: blocking, authors: [nobody]}\n",
        "gate: [\n",
        "gate: {unknown: 1}\n",
    ):
        world.work.write(CONFIG, rules)
        world.work.commit("lax rules, and a bad document", a_md=bad(rules))
        world.push(judged={"a.md": "NO-GO"}, code=1)
    (world.work.folder / CONFIG).unlink()
    world.work.commit("none", a_md=bad("none"))
    world.push(judged={"a.md": "NO-GO"}, code=1)


def test_nor_can_it_in_two_pushes_or_by_an_orphan_branch(world: World) -> None:
    world.work("switch", "--quiet", "--create", "topic")
    world.work.write(CONFIG, 'gate: {mode: advisory, paths: ["!**"]}\n')
    world.work.commit("lax rules")
    world.push("origin", "topic")
    world.work.commit("a bad document", a_md=bad("a"))
    world.push("origin", "topic", judged={"a.md": "NO-GO"}, code=1)
    world.work("switch", "--quiet", "--orphan", "pages")
    world.work.commit("root", a_md=bad("a"))
    world.push("origin", "pages", judged={"a.md": "NO-GO"}, code=1)


@pytest.mark.parametrize(
    "broken", ["gate: [\n", "gate: {mode: sometimes}\n", "gate: {rubric: nowhere}\n"]
)
def test_broken_rules_on_the_remote_block_nothing_and_can_be_mended(
    bare_world: World, broken: str
) -> None:
    bare_world.start(broken)
    bare_world.work.commit("bad", a_md=bad("a"))
    push = bare_world.push()
    assert "UNDETERMINED" in push.err
    assert len(push.of("fault")) == 1
    bare_world.work.write(CONFIG, BLOCKING)
    bare_world.work.commit("mended")
    bare_world.push()
    bare_world.work.commit("bad", a_md=bad("a, again"))
    bare_world.push(judged={"a.md": "NO-GO"}, code=1)


def test_a_rubric_of_the_projects_own_counts_as_the_remote_has_it(bare_world: World) -> None:
    kls = (files.get_data_folder("rubrics") / "kls@1.0.0.yaml").read_text(encoding="utf-8")
    own = kls.replace("rubric: kls", "rubric: house", 1)
    rubric = ".judgekit/rubrics/house@1.0.0.yaml"
    bare_world.rubrics.append("house@1.0.0")
    bare_world.work.write(rubric, own)
    bare_world.start("gate: {mode: blocking, rubric: house}\n")
    bare_world.work.write(rubric, own.replace("task: score", "task: nothing"))
    bare_world.work.commit("a broken rubric", a_md=bad("a"))
    push = bare_world.push(judged={"a.md": "NO-GO"}, code=1)
    assert push.verdicts[0]["rubric"]["id"] == "house"


def test_broken_configuration_of_the_user_blocks_nothing(world: World) -> None:
    """The ledger's note does not name the folders of this machine."""
    users_config(world, "gate: {mode: sometimes}\n")
    world.work.commit("bad", a_md=bad("a"))
    push = world.push()
    assert "config.yaml" in push.err
    (line,) = push.of("fault")
    assert line["problem"].startswith("~/judgekit/config.yaml:1: gate.mode: ")


def test_a_variable_goes_before_the_rules(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1, JUDGEKIT_SKIP="0")
    world.push(judged={"a.md": "NO-GO"}, JUDGEKIT_GATE_MODE="advisory")
    for value in ("", "0", "false", "False", "no", "off", "1", "true", "yes", "wip"):
        monkeypatch.setenv("JUDGEKIT_SKIP", value)
        assert find_skip_variable() == (
            "JUDGEKIT_SKIP" if value in ("1", "true", "yes", "wip") else None
        )


def test_an_unchanged_push_again_asks_no_model(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    with Loopback(by_content) as server:
        world.environ |= {
            "JUDGEKIT_REPLAY": "",
            "JUDGEKIT_API_BASE": server.base,
            "JUDGEKIT_MODEL": "m",
        }
        asked = 0
        for cached in (False, True):
            (verdict,) = world.push(judged={"a.md": "NO-GO"}, code=1).verdicts
            assert verdict["gate"]["cached"] == cached
            asked = asked or len(server.requests)
        assert len(server.requests) == asked


def test_a_push_past_the_gate_leaves_a_line(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    for variable in ("JUDGEKIT_SKIP", "GIT_JUDGE_SKIP", "JUDGEKIT_DISABLE"):
        push = world.push("--dry-run", "origin", "main", **{variable: "1"})  # type: ignore[arg-type]  # none of the named
        (line,) = push.of("skip")
        assert (line["variable"], line["refs"]) == (variable, ["refs/heads/main"])
        assert (f"{variable} is set" in push.err) == (variable != "JUDGEKIT_DISABLE")


def test_the_newest_override_of_this_very_file_counts_until_it_changes(world: World) -> None:
    world.work.commit("both", a_md=bad("a"), b_md=good("b"))
    push = world.push(judged={"a.md": "NO-GO", "b.md": "GO"}, code=1)
    tasks = {verdict["subjects"][0]["path"]: verdict["task_id"] for verdict in push.verdicts}
    decide(world, tasks["a.md"], "reject")
    decide(world, tasks["a.md"], "accept")
    decide(world, tasks["b.md"], "reject")
    push = world.push(code=1)
    assert "accepted by ann: I read it" in push.err
    assert "rejected by ann" in push.err
    decide(world, tasks["b.md"], "accept")
    world.push("--dry-run", "origin", "main")
    world.work.commit("copied", c_md=bad("a"))
    world.push(judged={"c.md": "NO-GO"}, code=1)
    world.work.commit("changed", a_md=bad("a, still"), c_md=good("c"))
    world.push(judged={"a.md": "NO-GO", "c.md": "GO"}, code=1)


def test_an_override_without_a_terminal_counts_only_if_the_user_says_so(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    task = world.push(judged={"a.md": "NO-GO"}, code=1).verdicts[0]["task_id"]
    command = [
        sys.executable,
        "-m",
        "judgekit",
        "override",
        task,
        "accept",
        "--why",
        "an agent says so",
    ]
    done = start(command, cwd=world.work.folder, capture_output=True, check=True, timeout=60)
    assert b"without a terminal" in done.stderr
    assert (b"accept" in done.stdout, b"recorded, but it does not count" in done.stdout) == (
        False,
        True,
    )
    world.push(judged={"a.md": "NO-GO"}, code=1)
    users_config(world, "gate: {override_without_terminal: true}\n")
    assert "accepted by" in world.push("--dry-run", "origin", "main").err
    world.work.write(CONFIG, "gate: {mode: blocking, override_without_terminal: true}\n")
    world.work.commit("no project can allow that")
    share(world)
    world.work.commit("bad", a_md=bad("b"))
    assert "only the user's configuration" in world.push().err


def test_blocking_that_labels_speak_against_is_suspended(world: World) -> None:
    now = datetime.now(UTC)
    ledger = Ledger.of(world.work.folder)
    for number in range(30):
        at = now - timedelta(days=1, minutes=number)
        about = ledger_lines.content(str(number), f"{number}.md")
        verdict = ledger_lines.verdict("reject", name=f"v{number}", timestamp=at, **about)
        ledger.add(verdict, ledger_lines.label(verdict, "go"))
    world.work.commit("bad", a_md=bad("a"))
    push = world.push(judged={"a.md": "NO-GO"})
    assert "blocking is suspended until the KPIs recover: false-positive rate" in push.err
    assert push.verdicts[0]["gate"]["mode"] == "advisory"
    assert [line["mode"] for line in push.of("mode")] == ["advisory"]
    world.work.commit("bad", b_md=bad("b"))
    assert world.push(judged={"b.md": "NO-GO"}).of("mode") == []
    ledger.add(ModeChange(mode="blocking", who="ann", forced=True))
    world.work.commit("bad", c_md=bad("c"))
    world.push(judged={"c.md": "NO-GO"}, code=1)


FORGED = '{"schema": "judgekit/label@1", "of": "x", "label": "go", "who": "ann"}'


def test_whoever_pushes_suspends_nothing_by_pushing(world: World) -> None:
    """Not by the same rejected files again, not by copies, tiny files, bypasses, faults or forged lines."""
    many = {f"many/{number}.md": bad(str(number)) for number in range(24)}
    copies = {f"copies/{number}.md": bad("same") for number in range(24)}
    odd = {f"odd\n{FORGED}\n.md": bad("odd"), "lines.jsonl": f"{FORGED}\n" * 30}
    world.work.commit("bad", **many, **copies, **odd)
    judged = {name: "NO-GO" for name in [*many, *copies, *odd] if name.endswith(".md")}
    for _ in range(3):
        push = world.push(judged=judged, code=1)
        assert "suspended" not in push.err
    world.run("--dry-run", "origin", "main", JUDGEKIT_SKIP="1")
    world.push(judged=judged, code=1)
    ledger = Ledger.of(world.work.folder)
    ledger.add(*(Fault(problem="a broken pipe", paths=list(judged)) for _ in range(30)))
    ledger.add(*(Skip(variable="JUDGEKIT_SKIP", who="mal", terminal=False) for _ in range(30)))
    assert "suspended" not in world.push(judged=judged, code=1).err
    assert not [
        each
        for each in world.ledger()
        if each["schema"].startswith(("judgekit/label", "judgekit/mode"))
    ]
    evidence = kpi.collect_evidence(ledger.read_records())
    assert len(evidence.verdicts) == 24 + 1 + 1


def test_one_label_of_a_copied_file_is_one_label(world: World) -> None:
    """Thirty copies of one rejected file, which a person says is good: that is one error, not thirty."""
    copies = {f"{number}.md": bad("same") for number in range(30)}
    judged = dict.fromkeys(copies, "NO-GO")
    world.work.commit("bad", **copies)
    push = world.push(judged=judged, code=1)
    labels = [
        Label(of=each["id"], label="go", who=f"person {n}") for n, each in enumerate(push.verdicts)
    ]
    Ledger.of(world.work.folder).add(*labels)
    assert "suspended" not in world.push(judged=judged, code=1).err


def test_a_ledger_that_a_clone_brings_lets_nothing_through(world: World) -> None:
    """Its overrides were not typed here, labels of nothing count nothing, and a later day is not yet."""
    world.work.commit("bad", a_md=bad("a"))
    task = world.push(judged={"a.md": "NO-GO"}, code=1).verdicts[0]["task_id"]
    brought = Ledger(world.folder / "brought", "brought-0123456789ab")
    later = datetime.now(UTC) + timedelta(days=400)
    given = [
        ledger_lines.verdict(
            "reject", name=f"f{n}", timestamp=later, **ledger_lines.content(str(n))
        )
        for n in range(30)
    ]
    brought.add(
        OverrideLine(task_id=task, decision="accept", why="trust me", who="ann", terminal=True),
        *(Label(of=f"nothing-{n}", label="go", who="ann") for n in range(40)),
        *given,
        *(ledger_lines.label(verdict_line, "go") for verdict_line in given),
    )
    command = [sys.executable, "-m", "judgekit", "ledger", "import", str(brought.folder)]
    start(command, cwd=world.work.folder, check=True, timeout=60, capture_output=True)
    assert "suspended" not in world.push(judged={"a.md": "NO-GO"}, code=1).err


UNSURE = "gate: {mode: blocking, undetermined: block}\n"


def lax_commit(world: World, **files: str) -> None:
    world.work.write(CONFIG, LAX)
    world.work.commit("lax", **files)


def test_a_push_by_address_or_a_second_name_goes_by_the_rules_of_that_remote(world: World) -> None:
    lax_commit(world, bad_md=bad("a"))
    for form in ("{}", "file://{}", "{}/", "{}/../origin.git"):
        url = form.format(world.origin.folder)
        world.push(url, "main", judged={"bad.md": "NO-GO"}, code=1)
    world.work("config", f"url.{world.folder}/.insteadOf", "short:")
    world.work("remote", "set-url", "origin", "short:origin.git")
    world.push(url, "main:new", judged={"bad.md": "NO-GO"}, code=1)
    world.work("remote", "add", "second", str(world.origin.folder))
    world.push("second", "main", judged={"bad.md": "NO-GO"}, code=1)
    world.work("update-ref", "refs/remotes/second/main", "HEAD~1")
    world.push("second", "main:new", judged={"bad.md": "NO-GO"}, code=1)


@pytest.mark.parametrize("config", [LAX, "gate: {mode: maybe}\n"], ids=["lax", "damaged"])
def test_without_a_default_branch_the_strictest_branch_decides(world: World, config: str) -> None:
    """Rules that cannot be read put no others out of force."""
    share(world, "main:refs/heads/strict")
    world.work.write(CONFIG, config)
    world.work.commit("other rules")
    share(world, "main:refs/heads/topic")
    world.work("update-ref", "-d", "refs/remotes/origin/main")
    world.work("update-ref", "-d", "refs/remotes/origin/HEAD")
    world.work.commit("more", bad_md=bad("a"))
    world.push("origin", "main:topic", judged={"bad.md": "NO-GO"}, code=1)


def test_teams_may_let_nothing_pass_that_is_not_judged(world: World) -> None:
    world.work.write(CONFIG, UNSURE)
    world.work.commit("rules")
    share(world)
    world.work.commit("binary", a_md="a\0b")
    done = world.push(judged={}, code=1)
    assert "blocked: 1 UNDETERMINED" in done.err
    world.work("reset", "--quiet", "--hard", "HEAD~1")
    world.work("tag", "odd", world.work("rev-parse", "main^{tree}"))
    assert "blocked: 1 UNDETERMINED" in world.push("origin", "odd", code=1).err
    world.work.commit("good", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    world.work.write(CONFIG, UNSURE.replace("}", ", rubric: no-such}"))
    world.work.commit("other rules")
    share(world)
    world.work.commit("good", b_md=good("b"))
    blocked = world.push(code=1).err
    assert "nothing was judged" in blocked
    assert re.search(r"[0-9a-f]{12}:.judgekit/config.yaml", blocked)


def test_that_is_not_lowered_by_a_project_or_a_push(world: World) -> None:
    world.work.write(CONFIG, BLOCKING.replace("}", ", undetermined: pass}"))
    world.work.commit("rules")
    share(world)
    config = world.home / "config" / "judgekit" / "config.yaml"
    world.work.commit("binary", a_md="a\0b")
    world.push(judged={}, code=1, JUDGEKIT_GATE_UNDETERMINED="block")
    assert not config.exists()
    world.push(judged={})
