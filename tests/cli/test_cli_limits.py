"""A limit on the cost of models without a price is refused at every door; messages about secrets."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import secret_texts
from git_repo import GitRepo
from hooking import by_user, own_profile
from loopback import Loopback, says
from scripted import by_content, scores

from judgekit import api
from judgekit.errors import ConfigError, UsageError
from judgekit.ledger import Ledger
from judgekit.providers import servers

if TYPE_CHECKING:
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Run, Served, Use


pytestmark = pytest.mark.usefixtures("project")
NO_PRICE = "no price is known for custom/stand-in"
RECORD = ("judge", "good.md", "--format", "jsonl", "--no-cache")


def on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, program: str) -> None:
    folder.mkdir()
    (folder / name).write_text(program)
    (folder / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    "command",
    [
        "judge good.md --max-cost 1",
        "judge good.md --max-cost 1 --show-prompt",
        "judge good.md --task-id t --max-cost 1",
        "compare good.md bad.md --prompt x --max-cost 0.5",
        "compare good.md bad.md --prompt x --rubric answer-quality --max-cost 0.5",
        "judge good.md",
        "compare good.md bad.md --prompt x",
        "search token --judge",
        "rubric check kls --run",
    ],
)
def test_a_limit_for_a_model_without_a_price_is_refused_where_it_stands(
    served: Served, command: str
) -> None:
    configured = "--max-cost" not in command
    by_user("judge:\n  max_cost_usd: 2\n" if configured else "")
    done, asked = served(by_content, *command.split())
    assert (done.code, asked) == (78 if configured else 64, []), done.err
    assert "openai-compatible.yaml" in done.err
    assert "price" in done.err.split(NO_PRICE)[1]
    assert configured == ("config.yaml:2: judge.max_cost_usd" in done.err)
    assert configured or (done.out, done.err.count("\n")) == ("", 1)


def test_python_raises(use: Use) -> None:
    with Loopback(by_content) as server:
        use(server)
        for call in (
            lambda: api.judge("good.md", max_cost_usd=1),
            lambda: api.judge_texts({"a": "x"}, max_cost_usd=1),
            lambda: api.compare("a", "b", prompt="x", max_cost_usd=1),
        ):
            with pytest.raises(UsageError, match=NO_PRICE):
                call()
        by_user("judge: {max_cost_usd: 2}\n")
        with pytest.raises(ConfigError, match=NO_PRICE):
            api.judge("good.md")
        assert server.requests == []


def test_a_price_in_the_profile_makes_the_limit_good(served: Served, isolated: Path) -> None:
    own_profile(isolated, "openai-compatible", more="price: {stand: {input: 1000000, output: 0}}")
    done, asked = served(by_content, *RECORD, "--max-cost", "5")
    found = (done.json["verdict"], done.json["cost_usd"], len(asked))
    assert found == ("undetermined", 11.0, 1)
    assert "budget" in done.err


def test_a_limit_where_replies_name_their_cost(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = says(scores(4, 4, 5), headers={"x-litellm-response-cost": "0.25"})
    for answer, calls, word in ((told, 2, "accept"), (says(scores(4, 4, 5)), 1, "undetermined")):
        with Loopback(answer) as server:
            monkeypatch.setenv("LITELLM_PROXY_API_BASE", server.base)
            monkeypatch.setenv("JUDGEKIT_MODEL", "team")
            done = judgekit(*RECORD, "--max-cost", "1")
            assert (done.json["verdict"], len(server.requests)) == (word, calls)
            assert ("the cost of a call is unknown, so the limit of" in done.err) == (
                word == "undetermined"
            )


def test_a_limit_rules_out_unpriced_substitutes(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "jk-test-0123456789")
    monkeypatch.setenv("AZURE_API_KEY", "jk-test-0123456789")
    monkeypatch.setenv("AZURE_API_BASE", "https://own.example")
    call = ("judge", "good.md", "--author-family", "anthropic", "--show-prompt")
    assert "(azure/gpt-6-luna" in judgekit(*call, "--max-cost", "1").out
    known = {"anthropic": 1.0}
    price_of = "judgekit.providers.litellm.price_of"
    monkeypatch.setattr(price_of, lambda model, *_: known.get(model.partition("/")[0]))
    assert "(azure/" not in judgekit(*call, "--max-cost", "1").out
    assert "(azure/" in judgekit(*call).out


def test_costs_of_a_call(
    judgekit: Run, use: Use, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(by_content) as server:
        use(server)
        out = judgekit("judge", "good.md").out
        assert "cost unknown (no price for stand-in)" in out.replace("custom/", "")
        monkeypatch.delenv("JUDGEKIT_API_BASE")
        monkeypatch.delenv("JUDGEKIT_MODEL")
        own_profile(isolated, "ollama", "http://127.0.0.1:11434/v1", server.base)
        there = {server.base: ["m"]}
        monkeypatch.setattr(
            servers, "list_models", lambda bases, seconds=0.3: list(map(there.get, bases))
        )
        done = judgekit("judge", "good.md", "--max-cost", "1")
        assert "cost 0 (local)" in done.out, done.err
        found = judgekit(*RECORD).json
        assert (found["cost_usd"], found["cost_source"], found["cost_complete"]) == (
            0.0,
            "local",
            True,
        )


@pytest.mark.parametrize("empty", ["", " \n\t ", "null", "<think>\n</think>\n\n", "{}", None])
def test_an_empty_reply_is_asked_again_once(judgekit: Run, use: Use, empty: str | None) -> None:
    with Loopback(says(empty), says(scores(1, 1, 1))) as server:
        use(server)
        done = judgekit("judge", "bad.md", "--no-cache")
        assert (done.code, len(server.requests)) == (1, 2), done.err
        again = server.requests[1].body["messages"]
        assert all(each["content"].strip() for each in again)
    with Loopback(says(empty)) as server:
        use(server)
        verdict = judgekit(*RECORD).json
        assert verdict["verdict"] == "undetermined"
        assert len(server.requests) == 2 * len(verdict["rounds"])


def test_commands_say_that_a_proxy_lacks_a_model(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(by_content) as server:
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", server.base)
        done = judgekit("judge", "good.md")
        told = (
            f"LITELLM_PROXY_API_BASE is {server.base}: set JUDGEKIT_MODEL to a model of that server"
        )
        for text in (done.err, judgekit("provider", "list").out, judgekit("provider", "check").err):
            assert told in text
        by_user("judge: {tiers: {quick: litellm_proxy/team}}\n")
        assert (done.code, judgekit("judge", "good.md", "--no-cache").code) == (2, 0)


@pytest.mark.parametrize(("command", "provider"), [("claude", "claude-code"), ("codex", "codex")])
def test_a_subscription_is_no_key_and_how_it_can_judge_is_said(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, provider: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    on_path(monkeypatch, tmp_path / "bin", command, "#!/bin/sh\n")
    monkeypatch.setattr(servers, "list_models", lambda bases, seconds=0.3: [None] * len(bases))
    told = (
        f"{command} is on PATH, but a subscription is not an API key: to judge with it, add {provider} to "
        "providers.allow in your own configuration"
    )
    assert told in judgekit("judge", "good.md").err
    assert f"not allowed: {told}" in judgekit("provider", "list").out


SECRET = secret_texts.form("github classic", 11)
LEFT_OUT = "[redacted: GitHub token]"
PASSWORD = "Kuerbis2031!"
REFUSED = "1 secret was found, and judge.redact is refuse"
REFUSE = "judge: {redact: refuse}\n"
GOOD = says(scores(4, 4, 4))


@pytest.fixture
def keys(project: Path) -> Path:
    (project / "good.md").write_text(f"# Keys\n\n{SECRET}\n")
    (project / "bad.md").write_text("# Other\n\nNothing of the kind.\n")
    return project


def test_secrets_are_left_out_and_counted_once(keys: Path, judgekit: Run, served: Served) -> None:
    (keys / "bad.md").write_text(f"# More\n\n{SECRET}\n\npassword = 'correcthorse'\n")
    done, asked = served(GOOD, "judge", "good.md", "bad.md", "--format", "json")
    sent = "\n".join(map(str, asked))
    assert ("Keys" in sent, SECRET in sent, "correcthorse" in sent) == (True, False, False)
    assert done.err == "judgekit: 3 secrets were removed before sending\n"
    about = (
        "--description",
        f"The password is {PASSWORD}.",
        "--acceptance",
        f"It works with {SECRET}.",
    )
    shown = judgekit("judge", "good.md", "--task-id", "T-1", *about, "--show-prompt").out
    assert f"It works with {LEFT_OUT}" in shown
    assert (SECRET in shown, PASSWORD in shown) == (False, False)
    by_user("judge: {redact: false}\n")
    assert SECRET in judgekit("judge", "--show-prompt", "good.md").out


def test_nothing_is_sent_of_a_text_with_a_secret_where_the_user_refuses(
    keys: Path, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user(REFUSE)
    for command in ("judge good.md --format json", "compare good.md bad.md --prompt x"):
        done, asked = served(GOOD, *command.split())
        assert (done.code, asked, REFUSED in done.out) == (2, [], True)
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", good_md="# Good\n\nA sound document.\n", keys_md=f"# Keys\n\n{SECRET}\n")
    monkeypatch.chdir(work.folder)
    done, asked = served(by_content, "gate", "--base", "base")
    words = [line.split()[:2] for line in done.out.splitlines() if not line.startswith(" ")]
    assert words == [["GO", "good.md"], ["UNDETERMINED", "keys.md"]]
    assert REFUSED in done.out
    sent = "\n".join(map(str, asked))
    assert ("sound document" in sent, SECRET in sent, "# Keys" in sent) == (True, False, False)


@pytest.mark.parametrize(
    ("query", "root"),
    [(f"refresh the JWT {SECRET}", ".claude/memory"), ("refresh the JWT", "docs")],
)
def test_a_search_with_a_secret_asks_no_model(
    project: Path, served: Served, query: str, root: str
) -> None:
    (project / "docs").mkdir(exist_ok=True)
    (project / "docs" / "refresh.md").write_text(
        f"# Refresh the JWT\n\nRefresh the JWT with {SECRET}\n"
    )
    by_user(REFUSE)
    done, asked = served(says('{"keep": []}'), "search", query, "--judge", "--json", "--root", root)
    assert asked == []
    assert done.json["results"]
    assert "judge.redact is refuse" in done.json["degraded"] + done.err


@pytest.mark.parametrize("form", ["sarif", "junit"])
def test_reports_name_a_file_without_its_secret(project: Path, served: Served, form: str) -> None:
    (project / f"{SECRET}.md").write_text("# Good\n\nA sound document.\n")
    reply = says(scores(1, 1, 1, reasoning=f"It holds {SECRET}."))
    done, asked = served(reply, "judge", f"{SECRET}.md", "--format", form)
    assert LEFT_OUT in done.out
    assert SECRET not in "\n".join([done.out, *map(str, asked)])


def test_ledger_issues_and_reasons_have_no_secrets(
    project: Path, judgekit: Run, served: Served
) -> None:
    def first(asked: Asked) -> Answer:
        better = re.findall(r"The text (\w+):", asked.text)[0]
        return says(json.dumps({"reasoning": f"It holds {SECRET}.", "better": better}))

    folder = project / f"password={PASSWORD}"
    folder.mkdir()
    (folder / f"{SECRET}.md").write_text("# Good\n\nA sound document.\n")
    task = ("--task-id", f"T-1 https://bob:{PASSWORD}@git.example/r")
    _, asked = served(GOOD, "judge", f"{folder.name}/{SECRET}.md", *task)
    served(says(scores(1, 1, 1)), "judge", "good.md", "--task-id", f"T-2 {SECRET}")
    issue = judgekit("escalate", f"T-2 {LEFT_OUT}", "--dry-run").out
    kept = "".join(path.read_text() for path in Ledger.of(project).folder.iterdir())
    sent = "\n".join(map(str, asked))
    assert ("T-1" in kept, "sound document" in sent, "Review needed: T-2" in issue) == (
        True,
        True,
        True,
    )
    for each in (SECRET, PASSWORD):
        assert each not in kept + sent + issue
    done, asked = served(
        first, "compare", "bad.md", "good.md", "--prompt", "Which?", "--format", "json"
    )
    assert asked
    assert (f"It holds {LEFT_OUT}" in done.out, SECRET in done.out) == (True, False)
