"""The real client is asked once to go on because of what it left; a judge that fails asks nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from claude_standin import REPLY, ToolCall
from git_repo import GitRepo
from loopback import Answer, Asked, Loopback, fails, says
from scripted import scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from claude_client import Client

pytestmark = [pytest.mark.slow, pytest.mark.real_client]

PROMPT = "Write a guide to the deployment, please."
FINDING = {
    "dimension": "pragmatic",
    "location": "Deployment",
    "issue": "no way back is given",
    "suggestion": "say how to roll back",
    "quote": "",
}
GUIDE = "# Guide\n\nDeploy with one command.\n"


def by_rollback(asked: Asked) -> Answer:
    """Reject what does not say how to roll back."""
    if "rolls back" in asked.text:
        return says(scores(4, 4, 4))
    return says(scores(2, 1, 3, findings=[FINDING]))


@pytest.fixture
def work(client: Client) -> Client:
    """A project under git in which the hook is installed, in the user's own settings."""
    repository = GitRepo(client.project)
    repository("init", "--quiet", "--initial-branch=main")
    repository.commit("first")
    subprocess.run(
        [sys.executable, "-m", "judgekit", "install", "claude-code"],
        cwd=client.project,
        env=client._environment(),
        capture_output=True,
        timeout=120,
        check=True,
    )
    return client


def configure(client: Client, base: str, stop: str = "on") -> None:
    """Switch judging on in the user's configuration, and name the model in the client's settings."""
    folder = client.folder / "home" / ".config" / "judgekit"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f'stop: {{judge: "{stop}", deadline: 20}}\n')
    path = client.folder / "home" / ".claude" / "settings.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"env": {"JUDGEKIT_API_BASE": base, "JUDGEKIT_MODEL": "stand-in"}}))


def write(client: Client, text: str) -> ToolCall:
    return ToolCall("Write", {"file_path": str(client.project / "guide.md"), "content": text})


def feedback(client: Client) -> list[str]:
    """Return what the last request tells the agent of hooks that kept it from stopping."""
    blocks = [
        block
        for each in client.api.messages()[-1]["messages"]
        if each["role"] == "user" and isinstance(each["content"], list)
        for block in each["content"]
        if block["type"] == "text"
    ]
    return [block["text"] for block in blocks if block["text"].startswith("Stop hook feedback:")]


def ask(client: Client) -> None:
    answer = client.ask(PROMPT, "--permission-mode", "bypassPermissions")
    assert answer.code == 0, answer
    assert answer.stdout.strip() == REPLY
    assert client.api.strays == []


def test_what_is_found_is_mended_before_the_agent_stops(work: Client) -> None:
    work.api.script += [write(work, GUIDE)]
    mended = write(work, f"{GUIDE}A second command rolls back.\n")
    with Loopback(by_rollback) as judge:
        configure(work, judge.base)
        mend_once_asked(work, mended)
        ask(work)
    (told,) = feedback(work)
    assert "(guide.md) were judged under kls@1.0.0, strict: reject" in told
    assert "- pragmatic, Deployment: no way back is given (suggested: say how to roll back)" in told
    assert "rolls back" in (work.project / "guide.md").read_text()
    assert len(judge.requests) == 1  # the second stop is not judged


def mend_once_asked(client: Client, call: ToolCall) -> None:
    """Let the stand-in use a tool when the hook asks the agent to go on, as an agent would."""
    usual = client.api.next_reply

    def reply(body: dict[str, object]) -> str | ToolCall:
        said = json.dumps(body["messages"])
        if "Stop hook feedback" in said and "rolls back" not in said:
            return call
        return usual(body)

    client.api.next_reply = reply  # type: ignore[method-assign]  # the stand-in's own way is by order alone


def test_an_agent_that_mends_nothing_is_asked_once(work: Client) -> None:
    work.api.script += [write(work, GUIDE)]
    with Loopback(by_rollback) as judge:
        configure(work, judge.base)
        ask(work)
    assert len(feedback(work)) == 1
    assert len(judge.requests) == 1


def down(_: Asked) -> Answer:
    return fails(503)


@pytest.mark.parametrize(
    "script", [down, lambda _: says(scores(4, 4, 4)), lambda _: says("no JSON")], ids=["down", "good", "odd"]
)
def test_it_just_stops_otherwise(work: Client, script: Callable[[Asked], Answer]) -> None:
    work.api.script += [write(work, GUIDE)]
    with Loopback(script) as judge:
        configure(work, judge.base)
        ask(work)
        assert judge.requests
    assert feedback(work) == []


def test_a_provider_that_is_gone_lets_it_stop(work: Client) -> None:
    work.api.script += [write(work, GUIDE)]
    with Loopback(down) as judge:
        base = judge.base
    configure(work, base)
    ask(work)
    assert feedback(work) == []


def test_it_is_off_unless_the_user_wants_it(work: Client) -> None:
    work.api.script += [write(work, GUIDE)]
    with Loopback(by_rollback) as judge:
        configure(work, judge.base, stop="off")
        ask(work)
    assert feedback(work) == []
    assert judge.requests == []
