"""A limit on the cost of models that have no price is refused at every door, and costs are named."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, says
from scripted import by_content, scores

from judgekit import api
from judgekit.config import files
from judgekit.errors import ConfigError, UsageError
from judgekit.providers import served_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome

pytestmark = pytest.mark.usefixtures("project")
NO_PRICE = "no price is known for custom/stand-in"


def by_user(home: Path, text: str) -> None:
    (home / "judgekit").mkdir(exist_ok=True)
    (home / "judgekit" / "config.yaml").write_text(text, encoding="utf-8")


def priced(home: Path, text: str, provider: str = "openai-compatible") -> None:
    own = (files.folder("providers") / f"{provider}.yaml").read_text(encoding="utf-8")
    (home / "judgekit" / "providers").mkdir(parents=True, exist_ok=True)
    (home / "judgekit" / "providers" / f"{provider}.yaml").write_text(f"{own}\n{text}\n", encoding="utf-8")


@pytest.mark.parametrize(
    "command",
    [
        ("judge", "good.md", "--max-cost", "1"),
        ("judge", "good.md", "--max-cost", "1", "--show-prompt"),
        ("judge", "good.md", "--task-id", "t", "--max-cost", "1"),
        ("compare", "good.md", "bad.md", "--prompt", "x", "--max-cost", "0.5"),
        ("compare", "good.md", "bad.md", "--prompt", "x", "--rubric", "answer-quality", "--max-cost", "0.5"),
    ],
)
def test_a_limit_for_a_model_without_a_price_is_refused(
    judgekit: Callable[..., Outcome], use: Callable[[Loopback], None], command: tuple[str, ...]
) -> None:
    with Loopback(by_content) as server:
        use(server)
        done = judgekit(*command)
        assert server.requests == []
    assert (done.code, done.out) == (64, "")
    assert done.err.count("\n") == 1
    assert NO_PRICE in done.err
    assert "openai-compatible.yaml" in done.err
    assert "price" in done.err.split(NO_PRICE)[1]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("judge", "good.md"), 78),
        (("compare", "good.md", "bad.md", "--prompt", "x"), 78),
        (("search", "token", "--judge"), 78),
        (("rubric", "check", "kls", "--run"), 78),
    ],
)
def test_a_configured_limit_is_refused_where_it_stands(
    judgekit: Callable[..., Outcome],
    use: Callable[[Loopback], None],
    isolated: Path,
    command: tuple[str, ...],
    code: int,
) -> None:
    by_user(isolated, "judge:\n  max_cost_usd: 2\n")
    with Loopback(by_content) as server:
        use(server)
        done = judgekit(*command)
        assert server.requests == []
    assert done.code == code, done.err
    assert NO_PRICE in done.err
    assert "config.yaml:2: judge.max_cost_usd" in done.err


def test_python_raises(use: Callable[[Loopback], None], isolated: Path) -> None:
    with Loopback(by_content) as server:
        use(server)
        with pytest.raises(UsageError, match=NO_PRICE):
            api.judge("good.md", max_cost_usd=1)
        with pytest.raises(UsageError, match=NO_PRICE):
            api.judge_texts({"a": "x"}, max_cost_usd=1)
        with pytest.raises(UsageError, match=NO_PRICE):
            api.compare("a", "b", prompt="x", max_cost_usd=1)
        by_user(isolated, "judge: {max_cost_usd: 2}\n")
        with pytest.raises(ConfigError, match=NO_PRICE):
            api.judge("good.md")
        assert server.requests == []


def test_a_price_in_the_profile_makes_the_limit_good(
    judgekit: Callable[..., Outcome], use: Callable[[Loopback], None], isolated: Path
) -> None:
    priced(isolated, "price: {stand: {input: 1000000, output: 0}}")
    with Loopback(by_content) as server:
        use(server)
        done = judgekit("judge", "good.md", "--max-cost", "5", "--format", "jsonl")
        assert len(server.requests) == 1
    verdict = json.loads(done.out)
    assert (verdict["verdict"], verdict["cost_usd"]) == ("undetermined", 11.0)
    assert "budget" in done.err


def test_who_says_what_a_reply_costs_may_have_a_limit_and_one_that_does_not_after_all_ends_it(
    judgekit: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = says(scores(4, 4, 5), headers={"x-litellm-response-cost": "0.25"})
    for answer, calls, word in ((told, 2, "accept"), (says(scores(4, 4, 5)), 1, "undetermined")):
        with Loopback(answer) as server:
            monkeypatch.setenv("LITELLM_PROXY_API_BASE", server.base)
            monkeypatch.setenv("JUDGEKIT_MODEL", "team")
            done = judgekit("judge", "good.md", "--max-cost", "1", "--format", "jsonl", "--no-cache")
            assert (json.loads(done.out)["verdict"], len(server.requests)) == (word, calls)
            assert ("nobody says what a call cost" in done.err) == (word == "undetermined")


def test_a_substitute_without_a_price_is_not_asked_where_there_is_a_limit(
    judgekit: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "jk-test-0123456789")
    monkeypatch.setenv("AZURE_API_KEY", "jk-test-0123456789")
    monkeypatch.setenv("AZURE_API_BASE", "https://own.example")
    call = ("judge", "good.md", "--author-family", "anthropic", "--show-prompt")
    assert "(azure/gpt-6-luna" in judgekit(*call, "--max-cost", "1").out
    monkeypatch.setattr("judgekit.providers.litellm.has_price", lambda model: model.startswith("anthropic/"))
    assert "(azure/" not in judgekit(*call, "--max-cost", "1").out
    assert "(azure/" in judgekit(*call).out


def test_what_a_call_costs_is_said(
    judgekit: Callable[..., Outcome],
    use: Callable[[Loopback], None],
    isolated: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Loopback(by_content) as server:
        use(server)
        done = judgekit("judge", "good.md")
        assert "cost unknown (no price for stand-in)" in done.out.replace("custom/", "")
        monkeypatch.delenv("JUDGEKIT_API_BASE")
        monkeypatch.delenv("JUDGEKIT_MODEL")
        text = (files.folder("providers") / "ollama.yaml").read_text(encoding="utf-8")
        (isolated / "judgekit" / "providers").mkdir(parents=True)
        own = text.replace("http://127.0.0.1:11434/v1", server.base)
        (isolated / "judgekit" / "providers" / "ollama.yaml").write_text(own, encoding="utf-8")
        monkeypatch.setattr(
            served_models, "models", lambda base, seconds=0.3: ["m"] if base == server.base else None
        )
        done = judgekit("judge", "good.md", "--max-cost", "1")
        assert "cost 0 (local)" in done.out, done.err
        found = json.loads(judgekit("judge", "good.md", "--no-cache", "--format", "jsonl").out)
        assert (found["cost_usd"], found["cost_source"], found["cost_complete"]) == (0.0, "local", True)


@pytest.mark.parametrize(
    "empty",
    ["", " \n\t ", "null", "<think>Hm, hm.</think>", "<think>\n</think>\n\n", "{}", "[]", '""', None],
)
def test_an_empty_reply_is_asked_again_once(
    judgekit: Callable[..., Outcome], use: Callable[[Loopback], None], empty: str | None
) -> None:
    with Loopback(says(empty), says(scores(1, 1, 1))) as server:
        use(server)
        done = judgekit("judge", "bad.md", "--no-cache")
        assert (done.code, len(server.requests)) == (1, 2), done.err
        again = server.requests[1].body["messages"]
        assert all(each["content"].strip() for each in again)
    with Loopback(says(empty)) as server:
        use(server)
        done = judgekit("judge", "bad.md", "--no-cache", "--format", "jsonl")
        verdict = json.loads(done.out)
        assert verdict["verdict"] == "undetermined"
        assert len(server.requests) == 2 * len(verdict["rounds"])


def test_an_empty_reply_of_a_program_is_asked_again_once(
    judgekit: Callable[..., Outcome], isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    count = tmp_path / "count"
    (folder / "mine").write_text(
        f"#!{sys.executable}\nimport pathlib, sys\nsys.stdin.read()\np = pathlib.Path({str(count)!r})\n"
        f"n = len(p.read_text()) if p.exists() else 0\np.write_text('x' * (n + 1))\n"
        f"print({scores(1, 1, 1)!r} if n else '')\n"
    )
    (folder / "mine").chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    (isolated / "judgekit" / "providers").mkdir(parents=True)
    (isolated / "judgekit" / "providers" / "mine.yaml").write_text(
        "provider: mine\ntitle: Mine\nkind: command\ndetect: {command: mine}\nmodels: {quick: m}\n"
        "output: text\nargv: [mine]\n"
    )
    by_user(isolated, "providers: {allow: [mine]}\n")
    done = judgekit("judge", "bad.md")
    assert (done.code, count.read_text()) == (1, "xx"), done.err


def test_a_proxy_without_a_model_is_said_alike_by_those_who_judge_and_those_who_list(
    judgekit: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    with Loopback(by_content) as server:
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", server.base)
        done = judgekit("judge", "good.md")
        assert done.code == 2
        told = f"LITELLM_PROXY_API_BASE is {server.base}: set JUDGEKIT_MODEL to a model that is there"
        assert told in done.err
        line = next(each for each in judgekit("provider", "list").out.splitlines() if "litellm-proxy" in each)
        assert line.split()[1] == "-"
        assert told in line
        assert told in judgekit("provider", "check").err
        monkeypatch.setenv("JUDGEKIT_MODEL", "team")
        assert judgekit("judge", "good.md").code == 0
        line = next(each for each in judgekit("provider", "list").out.splitlines() if "litellm-proxy" in each)
        assert line.split()[1] == "usable"
        monkeypatch.delenv("JUDGEKIT_MODEL")
        by_user(isolated, "judge: {tiers: {quick: litellm_proxy/team}}\n")
        assert judgekit("judge", "good.md", "--no-cache").code == 0
        line = next(each for each in judgekit("provider", "list").out.splitlines() if "litellm-proxy" in each)
        assert line.split()[1] == "usable"


@pytest.mark.parametrize("command", ["claude", "codex"])
def test_a_subscription_is_no_key_and_how_it_can_judge_is_said(
    judgekit: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / command).write_text("#!/bin/sh\n")
    (folder / command).chmod(0o700)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(served_models, "models", lambda base, seconds=0.3: None)
    provider = {"claude": "claude-code"}.get(command, command)
    told = (
        f"{command} is on PATH, but a subscription is no API key: to judge with it, add {provider} to "
        "providers.allow in your own configuration"
    )
    assert told in judgekit("judge", "good.md").err
    listed = judgekit("provider", "list").out
    assert f"not allowed: {told}" in listed
