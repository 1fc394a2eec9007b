"""A text goes to another family than its author's, whatever filled the tiers first; what `require` wants."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, fails, says, sends
from scripted import by_content, scores

from judgekit import api
from judgekit.providers import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Run, Use

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY", "XAI_API_KEY")
pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Let no server of this machine answer but those that a test names."""
    there: dict[str, list[str]] = {}
    monkeypatch.setattr(servers, "models", lambda base, seconds=0.3: there.get(base))
    return there


def by_user(home: Path, text: str) -> None:
    (home / "judgekit").mkdir(exist_ok=True)
    (home / "judgekit" / "config.yaml").write_text(text, encoding="utf-8")


def by_project(project: Path, text: str) -> None:
    (project / ".judgekit").mkdir(exist_ok=True)
    (project / ".judgekit" / "config.yaml").write_text(text, encoding="utf-8")


def models(shown: str) -> dict[str, str]:
    """Return the models of the tiers that `--show-prompt` names."""
    heads = [line for line in shown.splitlines() if line.startswith("=== ")]
    return {
        line.split(": ")[1].split(" (")[0]: line.partition(" (")[2].removesuffix(")").partition(",")[0]
        for line in heads
    }


def keep_keys(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setenv(name, "jk-test-0123456789abcdef")


def family(model: str) -> str:
    from judgekit.providers.registry import family_by_name  # noqa: PLC0415 - one place

    return family_by_name(model)


@pytest.mark.parametrize("wrote", ["anthropic", "openai", "google", "mistral", "anthropic, openai"])
def test_no_tier_is_left_to_the_authors_family_where_a_key_reaches_another(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, wrote: str
) -> None:
    keep_keys(monkeypatch, *KEYS)
    done = judgekit("judge", "good.md", "--author-family", wrote, "--show-prompt")
    asked = models(done.out)
    assert sorted(asked) == ["deep", "quick", "tiebreaker"]
    assert not {family(each) for each in asked.values()} & {each.strip() for each in wrote.split(",")}
    compared = judgekit(
        "compare", "good.md", "bad.md", "--prompt", "x", "--author-family", wrote, "--show-prompt"
    )
    assert models(compared.out) == asked


@pytest.mark.parametrize(
    ("allow", "order", "expected"),
    [
        ("", "", "openai"),
        ("anthropic, openai, gemini", "", "openai"),
        ("anthropic, gemini", "", "gemini"),
        ("anthropic", "", "anthropic"),
        ("anthropic, openai, mistral", "anthropic, mistral", "mistral"),
    ],
)
def test_only_allowed_providers_take_a_tier_and_in_the_users_order(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, isolated: Path, allow: str, order: str, expected: str
) -> None:
    keep_keys(monkeypatch, *KEYS)
    given = [f"{key}: [{value}]" for key, value in (("allow", allow), ("order", order)) if value]
    by_user(isolated, f"providers: {{{', '.join(given)}}}\n")
    asked = models(judgekit("judge", "good.md", "--author-family", "anthropic", "--show-prompt").out)
    assert {each.partition("/")[0] for each in asked.values()} == {expected}


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Run what OPENAI_API_KEY reaches."""
    with Loopback(by_content) as server:
        keep_keys(monkeypatch, "OPENAI_API_KEY")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base)
        yield server


@pytest.mark.parametrize("first", ["address", "named", "key", "variable"])
def test_whatever_filled_the_tiers_first_another_family_is_asked_and_named(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, isolated: Path, openai: Loopback, first: str
) -> None:
    with Loopback(by_content) as own:
        if first == "address":
            monkeypatch.setenv("JUDGEKIT_API_BASE", own.base)
            monkeypatch.setenv("JUDGEKIT_MODEL", "claude-own")
        else:
            keep_keys(monkeypatch, "ANTHROPIC_API_KEY")
        if first == "named":
            tiers = "{quick: anthropic/claude-haiku-5-5, deep: anthropic/claude-opus-5-5}"
            by_user(isolated, f"judge: {{tiers: {tiers}}}\n")
        if first == "variable":
            monkeypatch.setenv("JUDGEKIT_MODEL", "anthropic/claude-opus-5-5")
        done = judgekit("judge", "good.md", "bad.md", "--author-family", "anthropic", "--format", "jsonl")
        assert own.requests == []
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["verdict"], each["independent"]) for each in found] == [("accept", True), ("reject", True)]
    assert [each["substitutes"] for each in found] == [["openai"], ["openai"]]
    assert done.err.count("openai: used in place of models of the author's family") == 1
    assert "providers.allow" in done.err
    assert {request.body["model"] for request in openai.requests} <= {"gpt-6-luna", "gpt-6-sol"}
    plain = judgekit("judge", "good.md", "--show-prompt", "--author-family", "anthropic")
    assert "(openai/gpt-6-luna, in place of the author's family)" in plain.out


def test_nobody_else_is_asked_about_what_a_person_wrote(judgekit: Run, use: Use, openai: Loopback) -> None:
    with Loopback(by_content) as own:
        use(own)
        for wrote in ("none", "mistral", "unknown"):
            done = judgekit("judge", "good.md", "--author-family", wrote, "--format", "jsonl")
            assert "substitutes" not in json.loads(done.out)
            assert "in place of" not in done.err
    assert openai.requests == []


def test_a_local_server_of_another_family_takes_the_tiers_of_the_first(
    judgekit: Run, no_servers: dict[str, list[str]]
) -> None:
    no_servers |= {"http://127.0.0.1:11434/v1": ["qwen3:8b"], "http://127.0.0.1:1234/v1": ["gemma-4"]}
    asked = models(judgekit("judge", "good.md", "--author-family", "alibaba", "--show-prompt").out)
    assert set(asked.values()) == {"lm-studio/gemma-4"}
    asked = models(judgekit("judge", "good.md", "--author-family", "google", "--show-prompt").out)
    assert set(asked.values()) == {"ollama/qwen3:8b"}


def test_a_command_takes_a_tier_only_where_the_user_allows_it(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, isolated: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "codex").write_text(f"#!{sys.executable}\n")
    (folder / "codex").chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    keep_keys(monkeypatch, "ANTHROPIC_API_KEY")
    asked = models(judgekit("judge", "good.md", "--author-family", "anthropic", "--show-prompt").out)
    assert family(asked["quick"]) == "anthropic"
    by_user(isolated, "providers: {allow: [anthropic, codex]}\n")
    done = judgekit("judge", "good.md", "--author-family", "anthropic", "--show-prompt").out
    assert "in place of the author's family" in done
    assert family(models(done)["quick"]) == "openai"


def test_named_models_at_an_address_of_ones_own_keep_the_text_there_unless_others_are_allowed(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, isolated: Path, openai: Loopback
) -> None:
    with Loopback(says(scores(4, 4, 5))) as own:
        monkeypatch.setenv("JUDGEKIT_API_BASE", own.base)
        by_user(isolated, "judge: {tiers: {quick: custom/qwen-own}}\n")
        done = judgekit("judge", "good.md", "--author-family", "alibaba")
        assert "not independent" in done.out
        assert (openai.requests, len(own.requests)) == ([], 2)
        by_user(isolated, "judge: {tiers: {quick: custom/qwen-own}}\nproviders: {allow: [custom, openai]}\n")
        done = judgekit("judge", "good.md", "--author-family", "alibaba")
        assert "not independent" not in done.out
        assert len(openai.requests) == 2


@pytest.mark.parametrize("named", ["JUDGEKIT_MODEL", "config"])
def test_a_clone_sends_nothing_elsewhere_by_saying_who_wrote_it(
    judgekit: Run,
    monkeypatch: pytest.MonkeyPatch,
    isolated: Path,
    project: Path,
    openai: Loopback,
    named: str,
) -> None:
    by_project(project, "judge: {author_family: 'alibaba, mistral'}\n")
    with Loopback(says(scores(4, 4, 5))) as own:
        monkeypatch.setenv("JUDGEKIT_API_BASE", own.base)
        if named == "config":
            by_user(
                isolated, "judge: {tiers: {quick: custom/qwen-own}}\nproviders: {allow: [custom, openai]}\n"
            )
        else:
            monkeypatch.setenv(named, "qwen-own")
        for more in ([], ["--author-family", "mistral"]):
            verdict = json.loads(judgekit("judge", "good.md", "--format", "jsonl", *more).out)
            assert (verdict["verdict"], verdict["independent"]) == ("accept", False)
    assert openai.requests == []


class Proxy(Loopback):
    """A LiteLLM proxy whose names stand for other models; `infos` counts how often it was asked for these."""

    def __init__(self, behind: dict[str, str], *script: Answer) -> None:
        super().__init__(*script)
        self.infos, self._behind = 0, behind

    def answer(self, asked: Asked) -> Answer:
        """Say which models there are, else answer as told."""
        if asked.method != "GET" or asked.path != "/v1/model/info":
            return super().answer(asked)
        self.infos += 1
        data = [
            {"model_name": name, "litellm_params": {"model": model}, "model_info": {}}
            for name, model in self._behind.items()
        ]
        return sends({"data": data}) if data else fails(404)


@pytest.mark.parametrize(
    ("behind", "wrote", "independent"),
    [
        ({"team": "anthropic/claude-opus-5-5"}, "anthropic", False),
        ({"team": "anthropic/claude-opus-5-5"}, "openai", True),
        ({"team": "openai/gpt-6-sol", "other": "anthropic/claude-x"}, "anthropic", True),
        ({"te*": "bedrock/global.anthropic.claude-haiku-5-5"}, "anthropic", False),
        ({"other": "anthropic/claude-x"}, "anthropic", None),
        ({}, "anthropic", None),
    ],
)
def test_a_proxy_is_asked_once_whose_model_stands_behind_a_name(
    judgekit: Run,
    use: Use,
    monkeypatch: pytest.MonkeyPatch,
    behind: dict[str, str],
    wrote: str,
    independent: bool | None,  # noqa: FBT001 - a column of the table
) -> None:
    with Proxy(behind, says(scores(4, 4, 5))) as server:
        use(server)
        monkeypatch.setenv("JUDGEKIT_MODEL", "team")
        unknown = judgekit("judge", "good.md", "--format", "jsonl", "--no-cache")
        assert (json.loads(unknown.out)["independent"], server.infos) == (None, 0)
        for _ in range(2):
            done = judgekit("judge", "good.md", "bad.md", "--author-family", wrote, "--format", "jsonl")
            assert [json.loads(line)["independent"] for line in done.out.splitlines()] == [independent] * 2
    assert server.infos == 1


def test_what_a_proxy_says_in_vain_changes_nothing(
    judgekit: Run, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said in (b"[", b"[" * 100_000, b"{}", b" " * 1_100_000, b'{"data": [{}]}', b'{"data": 1}'):
        with Loopback(says(scores(4, 4, 5))) as server:
            use(server)
            server.answer = lambda asked, said=said, server=server: (  # type: ignore[method-assign, misc]  # but for one path
                sends(said) if asked.path.endswith("/model/info") else Loopback.answer(server, asked)
            )
            monkeypatch.setenv("JUDGEKIT_MODEL", "team")
            verdict = judgekit("judge", "good.md", "--author-family", "anthropic", "--format", "jsonl").json
        assert (verdict["verdict"], verdict["independent"]) == ("accept", None)


def test_a_profile_says_of_which_family_an_alias_is(
    judgekit: Run, use: Use, monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    from judgekit.config import files  # noqa: PLC0415 - one place

    own = (files.folder("providers") / "openai-compatible.yaml").read_text(encoding="utf-8")
    (isolated / "judgekit" / "providers").mkdir(parents=True)
    path = isolated / "judgekit" / "providers" / "openai-compatible.yaml"
    path.write_text(f"{own}\nfamilies: {{team: mistral}}\n", encoding="utf-8")
    with Proxy({"team": "anthropic/claude-x"}, says(scores(4, 4, 5))) as server:
        use(server)
        monkeypatch.setenv("JUDGEKIT_MODEL", "team")
        done = judgekit("judge", "good.md", "--author-family", "anthropic", "--format", "jsonl")
        assert (json.loads(done.out)["independent"], server.infos) == (True, 0)


@pytest.fixture
def as_claude(use: Use, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Make a server the one model that judges, of Anthropic's family."""

    def point(server: Loopback | str) -> None:
        use(server)
        monkeypatch.setenv("JUDGEKIT_MODEL", "claude-own")

    return point


@pytest.mark.parametrize(
    "given",
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
    judgekit: Run, as_claude: Use, isolated: Path, project: Path, given: tuple[str, str, str, int]
) -> None:
    reply, wrote, word, code = given
    for own, theirs in (("require", "prefer"), ("prefer", "require")):
        by_user(isolated, f"judge: {{independence: {own}}}\n")
        by_project(project, f"judge: {{independence: {theirs}}}\n")
        with Loopback(says(reply)) as server:
            as_claude(server)
            done = judgekit("judge", "good.md", "--author-family", wrote, "--format", "jsonl")
            (judged,) = api.judge("good.md", author_family=wrote)
        verdict = json.loads(done.out)
        assert (verdict["verdict"], done.code, judged.verdict) == (word, code, word)
        if word == "undetermined":
            assert (verdict["scores"], verdict["judge_tier"], verdict["consensus"]) == (None, None, "none")
            assert "judge.independence is require" in done.err
            assert all(each["opinion"]["outcome"] == "accept" for each in verdict["rounds"])


def prefers(letter: str) -> Callable[[Asked], Answer]:
    """Answer that the text which says `# Good` (A) or `# Bad` (B) is better, in whatever order."""

    def answer(asked: Asked) -> Answer:
        before = asked.text[: asked.text.index({"A": "# Good", "B": "# Bad"}[letter])]
        schema: Any = asked.body["response_format"]["json_schema"]["schema"]["properties"]["better"]
        labels = [each for each in schema["enum"] if re.search(rf"\b{each}\b", asked.text) and each != "tie"]
        return says(json.dumps({"reasoning": "So.", "better": max(labels, key=before.rfind)}))

    return answer


@pytest.mark.parametrize(
    ("winner", "authors", "word"),
    [
        ("A", ("anthropic", "none"), "undetermined"),
        ("B", ("anthropic", "none"), "B"),
        ("A", ("anthropic", "anthropic"), "undetermined"),
        ("A", ("openai", "anthropic"), "A"),
        ("B", ("openai", "anthropic"), "undetermined"),
        ("A", ("none", "none"), "A"),
    ],
)
def test_require_takes_no_win_that_only_the_winners_family_gives(
    judgekit: Run, as_claude: Use, isolated: Path, winner: str, authors: tuple[str, str], word: str
) -> None:
    told = [part for author in authors for part in ("--author-family", author)]
    with Loopback(prefers(winner)) as server:
        as_claude(server)
        call = ("compare", "good.md", "bad.md", "--prompt", "Which?", "--format", "json", *told)
        assert json.loads(judgekit(*call).out)["verdict"] == winner
        by_user(isolated, "judge: {independence: require}\n")
        done = judgekit(*call)
    found = json.loads(done.out)
    assert found["verdict"] == word
    assert ("judge.independence is require" in done.err) == (word == "undetermined")


def test_require_holds_for_texts_that_are_ranked(
    judgekit: Run, as_claude: Use, isolated: Path, project: Path
) -> None:
    (project / "third.md").write_text("# Third\n\nAnother.\n")
    by_user(isolated, "judge: {independence: require}\n")
    marks = {"# Good": 5, "# Bad": 2, "# Third": 1}

    def answer(asked: Asked) -> Answer:
        mark = next(value for title, value in marks.items() if title in asked.text)
        names = asked.body["response_format"]["json_schema"]["schema"]["properties"]["scores"]["properties"]
        return says(json.dumps({"reasoning": "So.", "scores": dict.fromkeys(names, mark), "findings": []}))

    found = {}
    with Loopback(answer) as server:
        as_claude(server)
        for wrote in ("anthropic none none", "none anthropic none", "openai none anthropic"):
            families = [f"--author-family={family}" for family in wrote.split()]
            call = ("compare", "good.md", "bad.md", "third.md", "--prompt", "Which?", "--format", "json")
            found[wrote] = judgekit(*call, *families).json["verdict"]
    assert list(found.values()) == ["undetermined", "A", "A"]
