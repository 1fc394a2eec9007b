"""`config show`: the settings and their sources; `cache`: the kept replies, counted and removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hooking import by_user
from loopback import Loopback, says
from outcome import by_project
from scripted import scores

from judgekit.config import settings

if TYPE_CHECKING:
    from outcome import Run, Use

pytestmark = pytest.mark.usefixtures("project", "no_servers")


OFF_BY = "retrieval.disabled_in names"


@pytest.mark.parametrize("words", [("doctor",), ("eval", "memories")])
def test_what_switches_a_project_off_is_named(judgekit: Run, words: tuple[str, ...]) -> None:
    path = by_user(f"retrieval: {{disabled_in: ['{Path.cwd()}']}}\n")
    by_project("retrieval: {enabled: true}\n")
    done = judgekit(*words)
    assert f"{path}: {OFF_BY} {Path.cwd()}" in done.out + done.err


def test_the_shown_configuration_says_that_a_project_is_off(judgekit: Run) -> None:
    path = by_user(f"retrieval: {{disabled_in: ['{Path.cwd()}']}}\n")
    by_project("retrieval: {enabled: true}\n")
    found = {each["key"]: each for each in judgekit("config", "show", "--json").json}
    assert found["retrieval.enabled"] == {
        "key": "retrieval.enabled",
        "value": False,
        "source": "user",
        "where": str(path),
    }


def test_each_setting_names_who_says_so(judgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    by_user(
        "judge: {mode: lenient, deadline: 60, tiers: {deep: openai/x}}\nretrieval: {judge: project}\n"
        "gate: {depth: [{name: a, depth: quick}]}\n"
    )
    by_project(
        "judge: {deadline: 90, rubric: code-review}\nretrieval: {judge: on}\ngate: {budget: 90}\n"
    )
    Path(".claude/memory/memory-config.json").write_text('{"retrieval": {"max_inject": 1}}')
    monkeypatch.setenv("JUDGEKIT_GATE_MODE", "blocking")
    found = {each["key"]: each for each in judgekit("config", "show", "--json").json}
    user, project = (
        str(settings.get_user_config_path()),
        str(Path.cwd() / ".judgekit" / "config.yaml"),
    )
    memory = str(Path.cwd() / ".claude" / "memory" / "memory-config.json")
    a_rule = {
        "name": "a",
        "depth": "quick",
        "paths": [],
        "authors": [],
        "least_lines": 0,
        "most_lines": None,
    }
    for key, value, source, where in (
        ("judge.mode", "lenient", "user", user),
        ("judge.deadline", 60, "user", user),  # which the project may not raise
        ("judge.tiers.deep", ["openai/x"], "user", user),
        ("judge.tiers.quick", None, "default", ""),
        ("judge.rubric", "code-review", "project", project),
        ("retrieval.judge", "on", "project", project),
        ("retrieval.max_inject", 1, "project", memory),
        ("gate.budget", 60, "default", ""),
        ("gate.depth", [a_rule], "user", user),
        ("gate.mode", "blocking", "environment", "JUDGEKIT_GATE_MODE"),
        ("stop.judge", "off", "default", ""),
    ):
        assert found[key] == {"key": key, "value": value, "source": source, "where": where}
    loaded = settings.load(Path.cwd()).model_dump()
    assert {
        key: each["value"] for key, each in found.items() if not key.startswith("JUDGEKIT")
    } == {**settings._flatten(loaded)}
    line = next(
        each for each in judgekit("config", "show").out.splitlines() if "judge.mode" in each
    )
    assert line.split() == ["judge.mode", "lenient", "user:", user]


def test_no_secret_is_shown(judgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_API_KEY", "sk-secret")
    monkeypatch.setenv("JUDGEKIT_SERVER_TOKEN", "jk_secret")
    monkeypatch.setenv("JUDGEKIT_API_BASE", "https://me:secret@example.org/v1")
    monkeypatch.setenv("JUDGEKIT_SERVER_URL", "https://you:sec/ret@example.org/v1?key=secret")
    for words in ((), ("--json",)):
        done = judgekit("config", "show", *words)
        assert (done.code, "secret" in done.out, "JUDGEKIT_API_KEY" in done.out) == (0, False, True)
        assert "example.org" in done.out
    by_user("judge: {mode: sometimes}\n")
    assert judgekit("config", "show").code == 78


def test_kept_replies_are_counted_and_removed(judgekit: Run, use: Use) -> None:
    assert judgekit("cache", "status").out.endswith("no replies are kept\n")
    assert judgekit("cache", "clear").out == "removed 0 replies\n"
    with Loopback(says(scores(5, 5, 5))) as server:
        use(server)
        judgekit("judge", "good.md")
        asked = len(server.requests)
        known = judgekit("cache", "status", "--json").json
        assert (known["replies"], known["newest"] >= known["oldest"]) == (asked, True)
        assert known["bytes"] >= Path(known["path"]).stat().st_size > 0
        count = "1 reply" if asked == 1 else f"{asked} replies"
        assert f"    {count} of 20" in judgekit("cache", "status").out
        refused = judgekit("cache", "clear")
        assert (refused.code, "add --yes" in refused.err) == (64, True)
        judgekit("judge", "good.md")
        assert len(server.requests) == asked
        assert judgekit("cache", "clear", "--yes").out == f"removed {count}\n"
        assert judgekit("cache", "status", "--json").json["replies"] == 0
        judgekit("judge", "good.md")
        assert len(server.requests) == 2 * asked
