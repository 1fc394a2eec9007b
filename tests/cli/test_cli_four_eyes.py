"""A text goes to another family than its author's, whatever filled the tiers first; rules of `require`."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from asking import custom
from hooking import by_user
from loopback import SILENT, Loopback, fails, says, sends
from outcome import by_project
from scripted import by_content, scores

from judgekit import api
from judgekit.config import files
from judgekit.providers import proxies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Run, Served, Use

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY", "XAI_API_KEY")
GOOD = says(scores(4, 4, 5))
BY = ("judge", "good.md", "--format", "jsonl", "--author-family")
QWEN = "judge: {tiers: {quick: custom/qwen-own}}\n"
pytestmark = pytest.mark.usefixtures("project", "no_servers")


def keep_keys(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setenv(name, "jk-test-0123456789abcdef")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "openai"),
        ("allow: [anthropic, openai, gemini]", "openai"),
        ("allow: [anthropic, gemini]", "gemini"),
        ("allow: [anthropic]", "anthropic"),
        ("allow: [anthropic, openai, mistral], order: [anthropic, mistral]", "mistral"),
    ],
)
def test_only_allowed_providers_take_a_tier_and_in_the_users_order(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    keep_keys(monkeypatch, *KEYS)
    by_user(f"providers: {{{given}}}\n")
    out = judgekit("judge", "good.md", "--author-family", "anthropic", "--show-prompt").out
    assert set(re.findall(r"^=== .*: \w+ \((\w+)/", out, re.MULTILINE)) == {expected}


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with Loopback(by_content) as server:
        keep_keys(monkeypatch, "OPENAI_API_KEY")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base)
        yield server


@pytest.mark.parametrize("first", ["address", "named", "key", "variable"])
def test_whatever_filled_the_tiers_first_another_family_is_asked_and_named(
    judgekit: Run, use: Use, monkeypatch: pytest.MonkeyPatch, openai: Loopback, first: str
) -> None:
    with Loopback(by_content) as own:
        if first == "address":
            use(own, "claude-own")
        else:
            keep_keys(monkeypatch, "ANTHROPIC_API_KEY")
        if first == "named":
            by_user(
                "judge: {tiers: {quick: anthropic/claude-haiku-5-5, deep: anthropic/claude-opus-5-5}}\n"
            )
        if first == "variable":
            monkeypatch.setenv("JUDGEKIT_MODEL", "anthropic/claude-opus-5-5")
        done = judgekit(*BY, "anthropic", "bad.md")
        assert own.requests == []
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["verdict"], each["independent"]) for each in found] == [
        ("accept", True),
        ("reject", True),
    ]
    assert [each["substitutes"] for each in found] == [["openai"], ["openai"]]
    assert done.err.count("openai: used in place of models of the author's family") == 1
    assert "providers.allow" in done.err
    assert {request.body["model"] for request in openai.requests} <= {"gpt-6-luna", "gpt-6-sol"}
    plain = judgekit("judge", "good.md", "--show-prompt", "--author-family", "anthropic")
    assert "(openai/gpt-6-luna, in place of the author's family)" in plain.out


def test_named_models_keep_the_text(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, openai: Loopback
) -> None:
    with Loopback(GOOD) as own:
        monkeypatch.setenv("JUDGEKIT_API_BASE", own.base)
        by_user(QWEN)
        assert "not independent" in judgekit("judge", "good.md", "--author-family", "alibaba").out
        assert (openai.requests, len(own.requests)) == ([], 2)
        by_user(f"{QWEN}providers: {{allow: [custom, openai]}}\n")
        assert (
            "not independent" not in judgekit("judge", "good.md", "--author-family", "alibaba").out
        )
        assert len(openai.requests) == 2


@pytest.mark.parametrize("named", ["JUDGEKIT_MODEL", "config"])
def test_a_clone_sends_nothing_elsewhere_by_saying_who_wrote_it(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, openai: Loopback, named: str
) -> None:
    by_project("judge: {author_family: 'alibaba, mistral'}\n")
    with Loopback(GOOD) as own:
        monkeypatch.setenv("JUDGEKIT_API_BASE", own.base)
        if named == "config":
            by_user(f"{QWEN}providers: {{allow: [custom, openai]}}\n")
        else:
            monkeypatch.setenv(named, "qwen-own")
        for more in ([], ["--author-family", "mistral"]):
            verdict = judgekit("judge", "good.md", "--format", "jsonl", *more).json
            assert (verdict["verdict"], verdict["independent"]) == ("accept", False)
    assert openai.requests == []


class Proxy(Loopback):
    """A LiteLLM proxy that says `info` of its models; `infos` counts how often it was asked for that."""

    def __init__(self, info: Answer, *script: Answer) -> None:
        super().__init__(*script)
        self.infos, self._info = 0, info

    def answer(self, asked: Asked) -> Answer:
        if asked.method != "GET" or asked.path != "/v1/model/info":
            return super().answer(asked)
        self.infos += 1
        return self._info


def behind(**models: str) -> Answer:
    data = [
        {"model_name": name, "litellm_params": {"model": model}, "model_info": {}}
        for name, model in models.items()
    ]
    return sends({"data": data}) if data else fails(404)


@pytest.mark.parametrize(
    ("info", "wrote", "independent"),
    [
        (behind(team="anthropic/claude-opus-5-5"), "anthropic", False),
        (behind(team="anthropic/claude-opus-5-5"), "openai", True),
        (behind(team="openai/gpt-6-sol", other="anthropic/claude-x"), "anthropic", True),
        (behind(**{"te*": "bedrock/global.anthropic.claude-haiku-5-5"}), "anthropic", False),
        (behind(other="anthropic/claude-x"), "anthropic", None),
        (behind(), "anthropic", None),
        *(
            (sends(said), "anthropic", None)  # in vain
            for said in (
                b"[",
                b"[" * 100_000,
                b"{}",
                b" " * 1_100_000,
                b'{"data": [{}]}',
                b'{"data": 1}',
            )
        ),
    ],
)
def test_a_proxy_is_asked_once_whose_model_stands_behind_a_name(
    judgekit: Run,
    use: Use,
    info: Answer,
    wrote: str,
    independent: bool | None,  # noqa: FBT001 - a column of the table
) -> None:
    with Proxy(info, GOOD) as server:
        use(server, "team")
        unknown = judgekit("judge", "good.md", "--format", "jsonl", "--no-cache").json
        assert (unknown["verdict"], unknown["independent"], server.infos) == ("accept", None, 1)
        for _ in range(2):
            done = judgekit(*BY, wrote, "bad.md")
            assert [json.loads(line)["independent"] for line in done.out.splitlines()] == [
                independent
            ] * 2
    assert server.infos == 1


def test_a_proxy_that_does_not_answer_holds_up_nobody_at_another_address(
    monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    monkeypatch.setattr(proxies, "TOTAL_TIMEOUT_SECONDS", 30.0)
    with (
        Loopback(listing=SILENT) as mute,
        Proxy(behind(team="anthropic/claude-opus-5-5")) as server,
    ):
        with ThreadPoolExecutor() as pool:
            waiting = [
                pool.submit(proxies.fill_in_family, custom(mute.base, "team")) for _ in range(2)
            ]
            while not mute.listed:
                time.sleep(0.01)
            assert proxies.fill_in_family(custom(server.base, "team")).family == "anthropic"
            assert not any(each.done() for each in waiting)
            mute.closing.set()
            assert {each.result().family for each in waiting} == {custom(mute.base, "team").family}
        assert len(mute.listed) == 1  # those who want to know the same wait for one answer


def test_a_profile_says_of_which_family_an_alias_is(
    judgekit: Run, use: Use, isolated: Path
) -> None:
    own = (files.get_data_folder("providers") / "openai-compatible.yaml").read_text(
        encoding="utf-8"
    )
    (isolated / "judgekit" / "providers").mkdir(parents=True)
    path = isolated / "judgekit" / "providers" / "openai-compatible.yaml"
    known = "families: {team: mistral}\nlimits: {thinking_tokens: 0}\n"  # nothing is left to ask
    path.write_text(f"{own}\n{known}", encoding="utf-8")
    with Proxy(behind(team="anthropic/claude-x"), GOOD) as server:
        use(server, "team")
        assert (judgekit(*BY, "anthropic").json["independent"], server.infos) == (True, 0)


@pytest.mark.parametrize(
    ("reply", "wrote", "word", "code"),
    [
        (scores(4, 4, 5), "anthropic", "undetermined", 2),
        (scores(1, 2, 2), "anthropic", "reject", 1),
        (scores(3, 3, 3), "anthropic", "improve", 2),
        (scores(4, 4, 5), "openai", "accept", 0),
        (scores(4, 4, 5), "none", "accept", 0),
        (scores(4, 4, 5), "unknown", "undetermined", 2),
    ],
)
def test_require_leaves_an_acceptance_by_the_authors_own_family_undetermined(
    judgekit: Run, use: Use, reply: str, wrote: str, word: str, code: int
) -> None:
    for own, theirs in (("require", "prefer"), ("prefer", "require")):
        by_user(f"judge: {{independence: {own}}}\n")
        by_project(f"judge: {{independence: {theirs}}}\n")
        with Loopback(says(reply)) as server:
            use(server, "claude-own")
            done = judgekit(*BY, wrote)
            (judged,) = api.judge("good.md", author_family=wrote)
        verdict = done.json
        assert (verdict["verdict"], done.code, judged.verdict) == (word, code, word)
        if word == "undetermined":
            assert (verdict["scores"], verdict["judge_tier"], verdict["consensus"]) == (
                None,
                None,
                "none",
            )
            assert "judge.independence is require" in done.err
            assert all(each["opinion"]["outcome"] == "accept" for each in verdict["rounds"])


def prefers(letter: str) -> Callable[[Asked], Answer]:
    """Answer that the text which says `# Good` (A) or `# Bad` (B) is better, in whatever order."""

    def answer(asked: Asked) -> Answer:
        before = asked.text[: asked.text.index({"A": "# Good", "B": "# Bad"}[letter])]
        schema: Any = asked.body["response_format"]["json_schema"]["schema"]["properties"]["better"]
        labels = [
            each
            for each in schema["enum"]
            if re.search(rf"\b{each}\b", asked.text) and each != "tie"
        ]
        return says(json.dumps({"reasoning": "So.", "better": max(labels, key=before.rfind)}))

    return answer


@pytest.mark.parametrize(
    ("winner", "authors", "word"),
    [
        ("A", "anthropic none", "undetermined"),
        ("B", "anthropic none", "B"),
        ("A", "anthropic anthropic", "undetermined"),
        ("A", "openai anthropic", "A"),
        ("B", "openai anthropic", "undetermined"),
        ("A", "none none", "A"),
    ],
)
def test_require_takes_no_win_that_only_the_winners_family_gives(
    served: Served, winner: str, authors: str, word: str
) -> None:
    families = [f"--author-family={author}" for author in authors.split()]
    call = ("compare", "good.md", "bad.md", "--prompt", "Which?", "--format", "json", *families)
    assert served(prefers(winner), *call, model="claude-own")[0].json["verdict"] == winner
    by_user("judge: {independence: require}\n")
    done, _ = served(prefers(winner), *call, model="claude-own")
    assert done.json["verdict"] == word
    assert ("judge.independence is require" in done.err) == (word == "undetermined")
