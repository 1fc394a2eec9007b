"""Texts that decision models check against their sources, claim by claim."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deciding import DecisionServer
from hooking import by_user
from outcome import Outcome

from judgekit import environment
from judgekit.cli.app import run
from judgekit.judging.claims import split_claims
from judgekit.rubric.loader import find_rubric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = "The library opens at nine on weekdays. It is closed on Sundays."
TRUE = "The library opens at nine on weekdays."
INVENTED = "It has a café."


def support(instruction: str, _: str) -> float:
    """Call invented claims hardly supported."""
    return 0.12 if "café" in instruction else 0.97


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DecisionServer]:
    monkeypatch.chdir(tmp_path)
    with DecisionServer() as running:
        running.probability = support
        running.level = 4
        monkeypatch.setenv("JUDGEKIT_DECISIONS_BASE", f"{running.base}/v1")
        by_user("judge:\n  tiers:\n    quick: vllm-decisions/decider\n")
        yield running


@pytest.fixture
def judge(server: DecisionServer, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    del server

    def call(text: str, *words: str) -> Outcome:
        row = {"id": "r1", "sources": [SOURCE], "text": text}
        Path("rows.jsonl").write_text(f"{json.dumps(row)}\n", encoding="utf-8")
        rows = ["judge", "--data", "rows.jsonl"]
        if "--rubric" not in words:
            rows += ["--rubric", "groundedness"]
        into = ["--out", "out.jsonl", "--fresh", "--mode", "lenient"]
        capfd.readouterr()
        code = run([*rows, *into, *words])
        return Outcome(code, *capfd.readouterr())

    return call


def verdict() -> dict[str, Any]:
    (line,) = Path("out.jsonl").read_text(encoding="utf-8").splitlines()
    record: dict[str, Any] = json.loads(line)["judged"]
    return record


def claims_asked(server: DecisionServer) -> list[str]:
    """Return the claims of all questions, in order."""
    claims = []
    for request in server.requests:
        for question in request.body["questions"].values():
            said = question.get("instructions", "")
            if said.startswith("Is this claim supported by the sources?"):
                fenced = re.search(r"<judged-[a-z]+>\n(.*)\n</judged-", said, re.DOTALL)
                assert fenced is not None
                claims.append(fenced[1])
    return claims


def test_a_claim_without_support_is_a_finding_with_its_quote(
    server: DecisionServer, judge: Callable[..., Outcome]
) -> None:
    done = judge(f"{TRUE} {INVENTED} On Sundays it is closed.")
    record = verdict()
    assert len(server.requests) == 1
    assert claims_asked(server) == [TRUE, INVENTED, "On Sundays it is closed."]
    assert record["verdict"] == "reject"
    (finding,) = record["findings"]
    assert finding["quote"] == INVENTED
    assert finding["dimension"] == "supported"
    assert finding["issue"] == "not supported by the sources (probability 0.12)"
    opinion = record["rounds"][0]["opinion"]
    assert opinion["scores"]["supported"] == pytest.approx(1.48)
    shares = opinion["probabilities"]
    assert shares["supported.1"] == {"yes": 0.97, "no": pytest.approx(0.03)}
    assert shares["supported.2"]["yes"] == 0.12
    assert set(shares["faithful"]) == {"1", "2", "3", "4", "5"}
    assert "without reasons" not in done.err


def test_one_invention_among_many_truths_is_not_accepted(judge: Callable[..., Outcome]) -> None:
    judge(" ".join([TRUE] * 30 + [INVENTED]))
    assert verdict()["verdict"] == "reject"


def test_a_text_whose_claims_all_have_support_is_accepted(
    server: DecisionServer, judge: Callable[..., Outcome]
) -> None:
    server.probability = lambda *_: 1.0
    done = judge(f"{TRUE} It is closed on Sundays.")
    assert (done.code, verdict()["verdict"], verdict()["findings"]) == (0, "accept", [])
    assert verdict()["scores"]["supported"] == 5


def test_more_claims_than_a_request_takes_are_asked_in_several(
    server: DecisionServer, judge: Callable[..., Outcome]
) -> None:
    sentences = [f"Branch {number} opens at nine." for number in range(300)]
    judge(" ".join(sentences))
    sizes = sorted(len(request.body["questions"]) for request in server.requests)
    assert sizes == [45, 128, 128]
    assert sorted(claims_asked(server)) == sorted(sentences)
    assert len(verdict()["rounds"][0]["opinion"]["probabilities"]) == 302


LIMITS = {
    "a limit": "A request has at most 64 questions, got {asked}",
    "a comparison": "too many questions: {asked} > 64",
    "a list": "questions: List should have at most 64 items after validation, not {asked}",
    "no number": "The limit of questions in a request was exceeded",
}


@pytest.mark.parametrize("words", LIMITS.values(), ids=LIMITS)
def test_a_server_that_takes_fewer_questions_is_asked_in_smaller_requests(
    server: DecisionServer,
    judge: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
) -> None:
    usual_reply = DecisionServer.reply

    def reply(self: DecisionServer, body: dict[str, Any]) -> dict[str, Any]:
        asked = len(body["questions"])
        if asked > 64:
            return {"error": {"message": words.format(asked=asked), "code": 400}}
        return usual_reply(self, body)

    monkeypatch.setattr(DecisionServer, "reply", reply)
    server.probability = lambda *_: 1.0
    sentences = [f"Branch {number} opens at nine." for number in range(300)]
    judge(" ".join(sentences))
    assert verdict()["verdict"] == "accept"
    sizes = [len(request.body["questions"]) for request in server.requests]
    assert max(sizes[-4:]) <= 64
    assert len([size for size in sizes if size > 64]) <= 3


def test_a_profile_may_say_how_many_questions_its_server_takes(
    server: DecisionServer, judge: Callable[..., Outcome]
) -> None:
    folder = Path(environment.PROVIDERS.path())
    folder.mkdir(parents=True, exist_ok=True)
    profile = (Path(__file__).parents[2] / "providers" / "vllm-decisions.yaml").read_text()
    lines = [line for line in profile.splitlines() if not line.startswith("limits:")]
    (folder / "vllm-decisions.yaml").write_text("\n".join([*lines, "limits: {questions: 20}", ""]))
    judge(" ".join(f"Branch {number} opens at nine." for number in range(50)))
    assert max(len(request.body["questions"]) for request in server.requests) == 20


def test_a_claim_that_was_not_answered_leaves_the_text_undetermined(
    server: DecisionServer, judge: Callable[..., Outcome]
) -> None:
    server.change = lambda body: body["answers"].pop("supported.2")
    done = judge(f"{TRUE} It is closed on Sundays.")
    assert (done.code, verdict()["verdict"]) == (2, "undetermined")
    assert "'supported.2' was not answered" in verdict()["degraded"]


def test_findings_are_reasons_that_no_other_model_is_asked_for(
    server: DecisionServer, judge: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with DecisionServer() as writing:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-writes")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{writing.base}/v1")
        tiers = "    quick: vllm-decisions/decider\n    deep: openai/writer\n"
        by_user(f"judge:\n  tiers:\n{tiers}")
        judge(f"{TRUE} {INVENTED}", "--mode", "strict", "--explain")
        assert writing.requests == []
        assert verdict()["judge_tier"] == "quick"
        assert verdict()["findings"]
        # A rejection without a finding still asks for reasons.
        server.probability = lambda *_: 0.99
        server.level = 0
        judge(TRUE, "--mode", "strict", "--explain")
        assert writing.requests


def test_a_document_shows_its_findings_in_the_place_of_reasons(
    server: DecisionServer, capfd: pytest.CaptureFixture[str]
) -> None:
    del server
    Path("source.md").write_text(SOURCE)
    Path("text.md").write_text(f"{TRUE} {INVENTED}\n", encoding="utf-8")
    words = ["judge", "--task-id", "t", "--rubric", "groundedness", "text.md", "source.md"]
    assert run([*words]) == 1
    out, _ = capfd.readouterr()
    assert "reasons: none" not in out
    assert "not supported by the sources (probability 0.12)" in out
    assert INVENTED in out


def test_a_rubric_without_sources_asks_about_its_dimensions(
    server: DecisionServer, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("text.md").write_text(f"{TRUE} {INVENTED}\n", encoding="utf-8")
    run(["judge", "text.md", "--rubric", "kls"])
    capfd.readouterr()
    assert claims_asked(server) == []


def make_rubric(*changes: tuple[str, str], of: str = "groundedness@1.0.0") -> Path:
    """Write a copy of a rubric with other texts in it."""
    text = find_rubric(of).path.read_text(encoding="utf-8")
    for old, new in (("rubric: groundedness", "rubric: own"), *changes):
        assert old in text
        text = text.replace(old, new, 1)
    path = Path("own.yaml")
    path.write_text(text, encoding="utf-8")
    return path


QUESTION = "question: Is there support in the sources for each claim of the text?"
WORDS = (
    "supported, unsupported, support, source, evidence, invented, fabricated, claim, passage, cited"
)
TERMS = f"terms: [{WORDS}]"
OTHER = (QUESTION, "question: Does the text rest on its sources?")
TWO_TERMS = (TERMS, "terms: [claim, unsupported]")


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (OTHER,),
        (TWO_TERMS,),
        (("{each: 3.5}", "{each: 4}"),),
        ((TERMS, TERMS.replace("cited", "cited, quoted")), OTHER),
        (OTHER, TWO_TERMS, ("    look_for:", "    check: claims\n    look_for:")),
    ],
    ids=["copy", "question", "terms", "bar", "more terms", "check"],
)
def test_claims_are_asked_if_the_rubric_says_so_or_is_a_copy_of_the_one_without_the_key(
    server: DecisionServer, judge: Callable[..., Outcome], changes: tuple[tuple[str, str], ...]
) -> None:
    path = make_rubric(*changes)
    judge(f"{TRUE} {INVENTED}", "--rubric", str(path))
    assert claims_asked(server) == [TRUE, INVENTED]


def test_two_terms_do_not_ask_for_claims(
    server: DecisionServer, judge: Callable[..., Outcome]
) -> None:
    path = make_rubric(OTHER, TWO_TERMS)
    judge(f"{TRUE} {INVENTED}", "--rubric", str(path))
    assert server.requests
    assert claims_asked(server) == []


def test_the_newer_groundedness_asks_the_same(
    server: DecisionServer, judge: Callable[..., Outcome]
) -> None:
    judge(f"{TRUE} {INVENTED}", "--rubric", "groundedness@1.1.0")
    assert claims_asked(server) == [TRUE, INVENTED]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            [("  needs: [sources]", "  needs: []")],
            "own.yaml:23: dimensions.supported.check: claims are checked against sources",
        ),
        (
            [
                (
                    "    question: Does the text say",
                    "    check: claims\n    question: Does the text say",
                )
            ],
            "own.yaml:30: dimensions.faithful.check: claims are checked for one dimension",
        ),
        (
            [("check: claims", "check: claim")],
            "own.yaml:23: dimensions.supported.check: expected 'claims'",
        ),
    ],
)
def test_a_check_that_cannot_be_made_is_an_error_of_the_file(
    changes: list[tuple[str, str]],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = make_rubric(*changes, of="groundedness@1.1.0")
    assert run(["rubric", "check", str(path)]) == 78
    _, err = capfd.readouterr()
    assert problem in err


def test_the_same_text_is_asked_once_whatever_the_fence_of_its_claims(
    server: DecisionServer, judge: Callable[..., Outcome]
) -> None:
    judge(f"{TRUE} {INVENTED}")
    judge(f"{TRUE} {INVENTED}")
    assert len(server.requests) == 1


def test_the_prompt_shows_the_questions_about_claims(
    server: DecisionServer, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("source.md").write_text(SOURCE)
    Path("text.md").write_text(f"{TRUE} {INVENTED}\n", encoding="utf-8")
    words = ["judge", "--task-id", "t", "--rubric", "groundedness", "text.md", "source.md"]
    assert run([*words, "--show-prompt"]) == 0
    out, _ = capfd.readouterr()
    _, _, of_deep = out.rpartition("=== t: ")
    assert of_deep.count("Is this claim supported by the sources?") == 2
    assert server.requests == []


@pytest.mark.parametrize(
    ("text", "quotes"),
    [
        ("Dr. Ng came on 3. May at 9 p.m. with J. Doe. He left.", 2),
        ("See e.g. Fig. 3 for v1.2.3. It costs 1.50 EUR.", 2),
        ("Really? Yes! No... And he said “No.” Then he went.", 5),
        ("\u56fe\u4e66\u9986\u4e5d\u70b9\u5f00\u95e8\u3002\u5468\u65e5\u5173\u95ed\uff01", 2),
        ("A line\nthat is wrapped.\nAnother one.", 2),
        ("- one\n- two\n  and more\n\n1. three. Four.", 4),
        ("```\nprint(1). Print(2).\nx = 3\n```\nDone.", 2),
        ("| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |", 2),
        ("---\n\n***\n", 0),
        ("", 0),
    ],
)
def test_a_text_is_taken_apart_into_sentences_items_rows_and_code(text: str, quotes: int) -> None:
    claims = split_claims(text)
    assert len(claims) == quotes
    assert all(claim.quote in text for claim in claims)


def test_an_item_is_asked_about_with_what_introduces_it() -> None:
    claims = split_claims(
        "# Hours\n\nIt opens:\n\n- at nine\n- on weekdays\n\nIt is old.\n\n## End"
    )
    assert [claim.full_text for claim in claims] == [
        "Hours It opens: at nine",
        "Hours It opens: on weekdays",
        "It is old.",
        "End",
    ]


def test_a_table_without_rows_is_a_claim() -> None:
    assert [claim.full_text for claim in split_claims("| Revenue was 5 | x |\n|---|---|\n")] == [
        "Revenue was 5 | x"
    ]
    assert [claim.full_text for claim in split_claims("Shops:\n\n- - -\n\nOne in Bern.")] == [
        "Shops: One in Bern."
    ]
