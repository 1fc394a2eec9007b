"""The rubrics that docs/rubrics.md shows: short, with weights, with yes or no, with few-shot examples."""

from __future__ import annotations

import asyncio
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from loopback import says
from making import call_usage, document, document_judge, file, reply
from pydantic import BaseModel
from scripted import ScriptedGateway, scripted_endpoint
from told import first_prompt

from judgekit.config import yaml_text, yamlfile
from judgekit.judging.jury import Opinion
from judgekit.judging.questions import get_question_class
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric
from tests import docs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loopback import Asked
    from outcome import Outcome, Run, Served

    from judgekit.providers.base import Reply, Request

PAGE = (docs.ROOT / "docs/rubrics.md").read_text(encoding="utf-8")
RUBRICS = {
    yaml_text.parse_yaml(fence.text)["rubric"]: fence.text
    for fence in docs.fences(PAGE)
    if fence.language == "yaml"
}
SHORT, WEIGHTED, BINARY, FEW_SHOT = (
    "support-reply",
    "incident-report",
    "release-notes",
    "error-message",
)


@pytest.fixture
def rubrics(project: Path) -> Path:
    for name, text in RUBRICS.items():
        (project / f"{name}.yaml").write_text(text, encoding="utf-8")
    return project


def judged(
    served: Served, rubric: str, scores: Mapping[str, object], *words: str
) -> tuple[dict[str, Any], list[Asked], Outcome]:
    text = json.dumps({"reasoning": "So.", "scores": scores, "findings": []})
    arguments = (
        "judge",
        "good.md",
        "--rubric",
        f"{rubric}.yaml",
        "--format",
        "json",
        "--no-cache",
        *words,
    )
    done, asked = served(says(text), *arguments)
    return done.json[0], asked, done


def loaded(folder: Path, name: str) -> ScoreRubric:
    rubric = loader.find_rubric(str(folder / f"{name}.yaml")).rubric
    assert isinstance(rubric, ScoreRubric)
    return rubric


def agent_text(rubric: ScoreRubric) -> str:
    return get_question_class(rubric).write_agent_text(rubric, "strict")


def sent_schema(asked: Asked) -> Any:  # noqa: ANN401 - any JSON
    return asked.body["response_format"]["json_schema"]["schema"]["properties"]["scores"][
        "properties"
    ]


def test_ten_lines_are_a_rubric(served: Served, rubrics: Path) -> None:
    assert len(RUBRICS[SHORT].splitlines()) <= 10
    assert set(RUBRICS) == {SHORT, WEIGHTED, BINARY, FEW_SHOT}
    given = yamlfile.load_yaml(rubrics / f"{SHORT}.yaml")
    verdict, (asked, *_), done = judged(served, SHORT, {"right": 4, "complete": 4, "kind": 3})
    assert (done.code, verdict["verdict"], verdict["average"]) == (0, "accept", 3.67)
    for told in (given["title"], *given["dimensions"].values(), "5: excellent; nothing to improve"):
        assert told in asked.text
    verdict, _, done = judged(
        served, SHORT, {"right": 4, "complete": 4, "kind": 1}, "--mode", "lenient"
    )
    assert (done.code, verdict["verdict"]) == (1, "reject")


def test_weights_count_in_the_mean_and_in_nothing_else(served: Served, rubrics: Path) -> None:
    for scores, outcome, average in (
        ((3, 4, 5), "improve", 3.67),  # 4 without weights, which would be enough
        ((5, 4, 2), "accept", 4.17),  # and 3.67, which would not
        ((5, 5, 1), "reject", 4.33),
    ):
        given = dict(zip(("cause", "actions", "timeline"), scores, strict=True))
        verdict, _, _ = judged(served, WEIGHTED, given)
        assert (verdict["verdict"], verdict["average"]) == (outcome, average)
        assert list(verdict["scores"].values()) == list(scores)
    told = agent_text(loaded(rubrics, WEIGHTED))
    assert "their mean, weighted cause 3, actions 2, timeline 1, is at least 4" in told
    # Two texts are ranked by the weighted mean.
    high, low = (
        {"cause": 4, "actions": 3, "timeline": 3},
        {"cause": 3, "actions": 3, "timeline": 4},
    )

    def answer(asked: Asked) -> Any:  # noqa: ANN401 - an answer of the server
        scores = high if "A sound document." in asked.text else low
        return says(json.dumps({"reasoning": "So.", "scores": scores, "findings": []}))

    words = (
        "--rubric",
        f"{WEIGHTED}.yaml",
        "--mode",
        "lenient",
        "--format",
        "json",
        "--prompt",
        "Report.",
    )
    done, _ = served(answer, "compare", "good.md", "bad.md", *words)
    assert (done.json["verdict"], [each["score"] for each in done.json["subjects"]]) == (
        "A",
        [3.5, 3.1667],
    )


def test_yes_and_no_are_asked_for_read_and_counted(
    served: Served, rubrics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict, (asked, *_), _ = judged(
        served, BINARY, {"upgrade": "yes", "private": "Yes", "clear": 4}
    )
    assert (verdict["verdict"], verdict["scores"]) == (
        "accept",
        {"upgrade": 5, "private": 5, "clear": 4},
    )
    assert sent_schema(asked)["upgrade"] == {"type": "string", "enum": ["yes", "no"]}
    assert sent_schema(asked)["clear"]["enum"] == [1, 2, 3, 4, 5]
    assert (
        '"upgrade": "<yes or no>", "private": "<yes or no>", "clear": <whole number>' in asked.text
    )
    assert "what users have to do? Answer yes or no.\n" in asked.text
    assert "Scale, the same for every dimension that is not answered yes or no:" in asked.text
    verdict, _, done = judged(served, BINARY, {"upgrade": "yes", "private": "no", "clear": 5})
    assert (done.code, verdict["verdict"], verdict["scores"]["private"]) == (1, "reject", 1)
    for wrong in (5, True, "perhaps"):  # a number, or a word that was not offered, is no answer
        verdict, _, done = judged(served, BINARY, {"upgrade": wrong, "private": "yes", "clear": 5})
        assert (done.code, verdict["verdict"]) == (2, "undetermined"), wrong
    # Of a jury, and of a model.
    told = [Opinion("accept", {"upgrade": 5.0, "private": 3.0, "clear": 5.0}, "Why.")]
    own = loaded(rubrics, BINARY)
    (_, user) = first_prompt(own, document(()), "tiebreaker", earlier_opinions=told)
    assert "upgrade yes, private 3, clear 5\nWhy." in user.content
    # Each dimension has its own call, without the scales of the others.
    monkeypatch.setenv("JUDGEKIT_JUDGE_CRITERIA", "each")
    _, calls, _ = judged(served, BINARY, {})
    # After the empty replies of this server the same is asked without the schema.
    first_calls = [call for call in calls if "json_schema" in call.body["response_format"]]
    about = {next(iter(sent_schema(call))): "Scale" in call.text for call in first_calls}
    assert about == {"upgrade": False, "private": False, "clear": True}


def test_a_model_of_one_token_answers_yes_or_no(rubrics: Path) -> None:
    own = loader.find_rubric(str(rubrics / f"{BINARY}.yaml"))
    small = scripted_endpoint("quick-model", pointwise=True)
    table = ((0.9, 0.1, "accept", 4.6), (0.9, 0.88, "improve", 2.26), (0.05, 0.1, "reject", 1.2))
    for yes, idle, outcome, score in table:

        def answer(request: Request, yes: float = yes, idle: float = idle) -> Reply:
            text = request.messages[-1].content
            share = idle if "Danube" in text else yes
            is_binary = text.endswith("Answer with one word, yes or no.")
            found = (
                {"yes": share, "no": 1 - share}
                if is_binary
                else {"1" if "Danube" in text else "5": 1.0}
            )
            logs = {token: math.log(each) for token, each in found.items()}
            return reply("x", "small", call_usage(50, 1), logprobs=(logs,))

        gateway = ScriptedGateway({"quick": [answer] * 5})
        judge = document_judge(gateway, {"quick": small}, loaded=own, mode="lenient")
        verdict = asyncio.run(judge.judge(document((file("a.md", "Text."),))))
        wanted = {"upgrade": score, "private": score, "clear": 5}
        assert (verdict.verdict, verdict.scores) == (outcome, wanted)


def test_examples_are_shown_to_every_model_where_a_rubric_says_so(
    served: Served, rubrics: Path
) -> None:
    scores = {"cause": 4, "remedy": "yes"}
    _, (asked, *_), _ = judged(served, FEW_SHOT, scores)
    system, user = (message["content"] for message in asked.body["messages"])
    shown = "<example>\nSomething went wrong.\n</example>\nRated: cause 1, remedy no\n"
    assert (system.count(shown), "<example>" in user) == (1, False)
    assert system.index("5: excellent") < system.index(shown)
    assert shown in agent_text(loaded(rubrics, FEW_SHOT))
    path = rubrics / f"{FEW_SHOT}.yaml"
    path.write_text(path.read_text().replace("few_shot: true", "few_shot: false"))
    _, (asked, *_), _ = judged(served, FEW_SHOT, scores)
    assert "<example>" not in asked.text


def test_a_default_is_what_the_page_says_and_written_out_changes_no_hash(rubrics: Path) -> None:
    rubric, path = loaded(rubrics, SHORT), rubrics / "whole.yaml"
    rows = dict(re.findall(r"^\| `([a-z_.*]+)` \| `?(.*?)(?:`.*)? \|$", PAGE, re.MULTILINE))
    assert {row.split(".")[0] for row in rows} >= set(ScoreRubric.model_fields) - {
        "rubric",
        "title",
    }
    for key, text in rows.items():
        if key in ("prompt.system", "prompt.instructions"):
            continue
        value: Any = rubric
        for part in key.replace("*", "kind").split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
        found = value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
        assert found == yaml_text.parse_yaml(text), key
    path.write_text(json.dumps(rubric.model_dump(mode="json", exclude_none=True)))  # JSON is YAML
    whole = loaded(rubrics, "whole")
    assert whole == rubric
    assert whole.prompt.sha256 == rubric.prompt.sha256
    # A scale of its own has its own thresholds; a mean alone leaves each score free not to be rejected.
    scale = "scale: {min: 0, max: 2, labels: {0: a, 1: b, 2: c}}\nmodes: {strict: {accept: {mean: 2}}}\n"
    path.write_text(RUBRICS[SHORT] + scale)
    modes = loaded(rubrics, "whole").modes
    assert (modes.strict.accept.each, modes.strict.reject.any_below) == (0.5, 0.5)
    assert (modes.lenient.accept.each, modes.lenient.accept.mean) == (0.75, 1)


EXAMPLES = RUBRICS[FEW_SHOT].partition("  examples:")[2]
NO_MEAN = (
    "{accept: {mean: 4}}",
    "{accept: {each: 4}}",
    "{accept: {mean: 3}}",
    "{accept: {each: 3}}",
)
WRONG = {
    "4: dimensions.cause.weight: a weight counts in the mean of several dimensions": (
        WEIGHTED,
        *NO_MEAN,
    ),
    "4: dimensions.cause.weight: expected a number above 0": (WEIGHTED, "weight: 3", "weight: 0"),
    "7: prompt.few_shot: there are no examples": (FEW_SHOT, EXAMPLES, " []"),
    "9: prompt.examples.0: needs a score on the scale": (FEW_SHOT, "remedy: no", "remedy: 1"),
    "1: task: expected one of 'score', 'select', 'compare'; did you mean score?": (
        SHORT,
        "rubric",
        "task: scor\nrubric",
    ),
    "8: modes.strct: unknown key; did you mean strict?": (WEIGHTED, "  strict:", "  strct:"),
    "6: dimensions.upgrade.scale: expected 'binary'; did you mean binary?": (
        BINARY,
        ": binary",
        ": bynary",
    ),
}


def test_what_means_nothing_is_refused_where_it_stands(judgekit: Run, rubrics: Path) -> None:
    for told, (name, *changes) in WRONG.items():
        text = RUBRICS[name]
        for before, after in zip(changes[::2], changes[1::2], strict=True):
            text = text.replace(before, after)
        (rubrics / f"{name}.yaml").write_text(text)
        done = judgekit("rubric", "check", f"{name}.yaml")
        assert (done.code, f"{name}.yaml:{told}" in done.err) == (78, True), done.err


def test_a_new_rubric_names_the_schema_that_editors_check_it_with(
    judgekit: Run, rubrics: Path
) -> None:
    done = judgekit("rubric", "new", "reply", "--from", f"{SHORT}.yaml")
    path, cases, schema = map(Path, done.out.splitlines())
    first, rest = path.read_text().split("\n", 1)
    assert first == f"# yaml-language-server: $schema={schema.name}"
    assert rest == RUBRICS[SHORT].replace(f"rubric: {SHORT}", "rubric: reply\nversion: 1.0.0")
    assert (cases.read_text(), schema.parent) == ("", path.parent)
    printed = json.loads(judgekit("schema", "rubric").out)
    assert printed.pop("$schema")
    assert json.loads(schema.read_text()) == printed
    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
    bundled = [*docs.ROOT.glob("rubrics/*.yaml"), *docs.ROOT.glob("rubrics/starters/*.yaml")]
    sound = [rest, *RUBRICS.values(), *(each.read_text() for each in bundled)]
    wrong = [rest.replace("title:", "titel:"), f"{rest}modes: {{strict: {{confirm: x}}}}\n"]
    for text in (*sound, *wrong):
        data = json.loads(json.dumps(yaml_text.parse_yaml(text)))  # keys of JSON are texts
        assert validator.is_valid(data) == (text in sound), text
    schema.write_text("{}")
    assert judgekit("rubric", "new", "other").code == 0
    assert schema.read_text() == "{}"
