"""`judgekit calibrate` and `judgekit eval`: promises, measurements, pages and refusals."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, fails, says
from scripted import by_content, scores

from judgekit.evaluation import cases as labelled
from judgekit.evaluation import runner, stats
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopback import Answer, Asked
    from outcome import Run, Served, Use

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "judging"
RETRIEVAL = ROOT / "examples" / "retrieval"
KLS = ("--rubric", "kls", "--mode", "strict")
TIERS = {"quick": "small", "deep": "large"}
DEAD = "http://127.0.0.1:9/v1"
LIVE = [{"id": str(number), "text": "# A", "label": "accept"} for number in range(5)]


def recorded(number: int) -> dict[str, Any]:
    fives = {"semantic": 5, "pragmatic": 5, "syntactic": 5}
    quick = {"model": "small", "scores": fives, "cost_usd": 0.001}
    judges = {"quick": quick, "deep": {"model": "large", "reply": scores(5, 5, 5)}}
    return {"id": str(number), "label": "accept", "judges": judges}


def chosen(name: str, choice: str = "accept", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"id": name, "label": "accept", "judges": {"q": {"choice": choice}}, **more}


def write(folder: Path, *lines: dict[str, Any]) -> str:
    path = folder / "cases.jsonl"
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def labels(tmp_path: Path) -> str:
    return write(tmp_path, *map(recorded, range(100)))


@pytest.fixture
def server(use: Use) -> Iterator[Loopback]:
    """Serve a quick and a deep model that judge by words of the text."""
    with Loopback(by_content) as running:
        use(running, **TIERS)
        yield running


def test_what_labels_allow(judgekit: Run, labels: str, project: Path, isolated: Path) -> None:
    outcome = judgekit("calibrate", labels, *KLS)
    assert outcome.code == 0
    for text in ("quick accept", "0 wrong of 100, at most 3.0%", "calls of deep"):
        assert text in outcome.out
    folder = isolated / "judgekit" / "calibrations"
    (kept,) = (path for path in folder.iterdir() if path.name != "accepted.json")
    assert kept.name in outcome.err
    assert json.loads(kept.read_text())["schema"] == "judgekit/calibration@2"
    few = write(project, *map(recorded, range(20)))
    outcome = judgekit("calibrate", *KLS, few, "--error", "0.01")
    assert (outcome.code, "too few labels; about" in outcome.out) == (0, True)
    assert "these labels support no promise, so no file was written" in outcome.err


def test_accepting_a_calibration(judgekit: Run, labels: str, project: Path, isolated: Path) -> None:
    path = project / ".judgekit" / "calibrations" / "ours.json"
    outcome = judgekit("calibrate", labels, *KLS, "--error", "0.1", "--out", str(path), "--json")
    assert outcome.json == json.loads(path.read_text())
    assert outcome.json["promise"] == {"rate": 0.1, "confidence": 0.95, "reference": None}
    (accepted,) = isolated.rglob("accepted.json")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest in accepted.read_text()  # its own output
    accepted.unlink()
    outcome = judgekit("calibrate", "accept", str(path))
    assert (outcome.code, "0 wrong of 100" in outcome.out, "quick accept" in outcome.out) == (
        0,
        True,
        True,
    )
    assert f"accepted: {path}" in outcome.err
    before = accepted.read_text()
    assert digest in before
    path.write_text(path.read_text().replace('"labels": 100', '"labels": 0'))
    outcome = judgekit("calibrate", "accept", str(path))
    assert (outcome.code, accepted.read_text()) == (78, before)
    assert (
        f"{path}: gates.0.labels: 0 wrong of 0 does not support a rate of at most 0.1"
        in outcome.err
    )


def test_what_cannot_be_promised(judgekit: Run, labels: str) -> None:
    for options, problem in (
        ((*KLS, "--error", "0.05", "--excess", "0.05"), "two different promises"),
        ((*KLS, "--error", "0"), "between 0 and 1"),
        ((*KLS, "--confidence", "1"), "between 0 and 1"),
        (("--mode", "strict"), "--rubric is missing"),
        (("--rubric", "kls"), "--mode is missing"),
        ((*KLS, "another.jsonl"), "expected one file of labels, got 2"),
    ):
        outcome = judgekit("calibrate", labels, *options)
        assert (outcome.code, problem in outcome.err) == (64, True), options


def test_unwritable_places(judgekit: Run, project: Path, server: Loopback, isolated: Path) -> None:
    path = write(project, {"id": "1", "path": "good.md", "label": "accept"})
    (isolated / "judgekit").mkdir(parents=True, exist_ok=True)
    (isolated / "judgekit" / "calibrations").write_text("")  # a file in place of the own folder
    for out in (("--out", str(project)), ("--out", str(project / "good.md" / "c.json")), ()):
        outcome = judgekit("calibrate", path, *KLS, *out)
        assert (outcome.code, outcome.out, server.requests) == (65, "", [])
        assert "cannot be written (" in outcome.err
        assert "File exists" not in outcome.err


RANKS = {"best": 5, "good": 4, "poor": 1}
ANSWER = ("--rubric", "answer-quality")
TEXTS = [f"{each} answer\n" for each in ("good", "best", "poor")]


def by_rank(asked: Asked) -> Answer:
    (rank,) = [each for name, each in RANKS.items() if f"\n{name} answer" in asked.text]
    rubric = loader.find_rubric("answer-quality").rubric
    assert isinstance(rubric, ScoreRubric)
    points = dict.fromkeys(rubric.dimensions, rank)
    return says(json.dumps({"reasoning": "x", "scores": points, "findings": []}))


def test_margins_are_learned(
    judgekit: Run, project: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(*names: str, mode: str = "strict") -> dict[str, Any]:
        files = [f"{name}.md" for name in names]
        how = (*ANSWER, "--prompt", "Answer.", "--mode", mode, "--format", "jsonl")
        return dict(judgekit("compare", *files, *how).json)

    for name in RANKS:
        (project / f"{name}.md").write_text(f"{name} answer\n")
    three = ("poor", "best", "good")
    with Loopback(by_rank) as server:
        use(server, **TIERS)
        before = compared(*three)
        assert (before["verdict"], before["calibration"]) == ("B", None)
        assert {each["tier"] for each in before["rounds"]} == {"quick", "deep"}
        case = {"prompt": "Answer.", "subjects": TEXTS, "label": "B"}
        path = write(project, *({"id": str(at), **case} for at in range(30)))
        done = judgekit("calibrate", path, *ANSWER, "--mode", "strict", "--error", "0.1")
        assert done.code == 0, done.err
        assert "best of quick, ahead by 1 or more" in done.out
        assert "0 wrong of 30" in done.out
        assert re.search(r"calls of quick +90 +90\n +calls of deep +0 +60\n", done.out)
        found = compared(*three)
        assert (found["verdict"], found["judge_tier"], len(found["rounds"])) == ("B", "quick", 3)
        assert found["calibration"].startswith("answer-quality-strict-")
        assert found["degraded"] is None
        # Another number of texts and another mode are something else; so are other models.
        two = compared("best", "good")
        assert two["calibration"] is None
        assert "made for 3 texts, not for 2" in two["degraded"]
        assert compared(*three, mode="lenient")["calibration"] is None
        monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "another")
        stale = compared(*three)
    assert stale["calibration"] is None
    assert "deep was custom/large and is custom/another now" in stale["degraded"]


SAID = {"model": "m", "orders": {"AB": "A", "BA": "A"}}
PAIR = {"prompt": "Which?", "a": "x", "b": "y", "label": "A"}


CASES: tuple[tuple[str | dict[str, Any], str], ...] = (
    ("", " empty"),
    ("{", "1: "),
    ("{}", "1: id"),
    (
        {"text": "x", "label": {"strict": 4, "lenient": "accept"}},
        "1: label.strict must be accept, improve",
    ),
    (
        {"text": "x", "label": "meh"},
        "1: label must be accept, improve, reject or a number; got 'meh'",
    ),
    ({**PAIR, "label": 4}, "1: label must be A, B or tie; got 4"),
    ({"text": "x"}, "1: label: missing key; add it"),
    (
        {**PAIR, "label": "C", "judges": {"quick": SAID, "deep": SAID}},
        "1: label must be A, B or tie; got 'C'",
    ),
    ({**PAIR, "b": "x"}, "1: a and b are the same text, which is always a tie; change one"),
    (
        {**PAIR, "b": "x", "label": {"strict": "tie", "lenient": "B"}},
        "1: a and b are the same text",
    ),
)


def test_a_wrong_file_or_case_is_named_by_file_and_line(judgekit: Run, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    for line, told in CASES:
        path.write_text(line if isinstance(line, str) else json.dumps({"id": "1", **line}))
        for command in (("calibrate", "--mode", "strict"), ("eval", "judge")):
            outcome = judgekit(*command, str(path), "--rubric", "answer-preference")
            assert (outcome.code, outcome.out) == (65, ""), line
            assert outcome.err.startswith(f"judgekit: {path}:{told}"), line


def test_what_a_file_of_cases_may_hold(judgekit: Run, tmp_path: Path) -> None:
    outcome = judgekit("calibrate", "nope.jsonl", *KLS)
    assert (outcome.code, outcome.err.count("nope.jsonl")) == (65, 1)
    path = write(tmp_path, {"id": "1", **PAIR, "b": "x", "label": "tie"})
    (case,) = labelled.read_cases(Path(path))
    assert (case.label, str(case.build_error("why"))) == ("tie", f"{path}:1: case {case.id}: why")
    assert all(labelled.read_cases(file) for file in EXAMPLES.glob("*.jsonl"))
    file = write(tmp_path, chosen("a", text="one\u2028two\x85three\x0cfour"), chosen("b"))
    assert "2 labelled items" in judgekit("eval", "judge", file).out
    file = write(
        tmp_path, chosen("b", variant="rerun", pair="a"), chosen("a")
    )  # before its original
    assert "verdict changes when asked again" in judgekit("eval", "judge", file).out
    pair = "pair: expected the id of an original case of this file, got "
    for more, told in (
        ({"variant": "swapped", "pair": "zz"}, f"{pair}'zz'"),
        ({"variant": "rerun"}, f"{pair}''"),
        ({"variant": "injected", "pair": "b"}, f"{pair}'b'"),
        ({"pair": "a"}, "variant: expected swapped, rerun or injected, together with pair"),
    ):
        file = write(tmp_path, chosen("a"), chosen("b", **more))
        done = judgekit("eval", "judge", file)
        assert (done.code, done.out, len(done.err.splitlines())) == (65, "", 1)
        assert f"{file}:2: case b: {told}" in done.err


def test_judges_are_measured_and_drawn(judgekit: Run, labels: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    outcome = judgekit("eval", "judge", labels, "--rubric", "kls", "--html", str(page))
    assert outcome.code == 0
    for text in ("quick (small): 100 items", "accuracy", "$0.001000"):
        assert text in outcome.out
    assert page.read_text().startswith("<!doctype html>")
    report = judgekit("eval", "judge", labels, "--rubric", "kls", "--json").json
    assert (report["schema"], "schema_" in report) == ("judgekit/eval-judge@1", False)
    for rubric in ((), ("--rubric", "kls")):
        outcome = judgekit("eval", "judge", labels, *rubric, "--again")
        assert (outcome.code, outcome.out, "--again asks models" in outcome.err) == (64, "", True)


def _by_model(asked: Asked) -> Answer:
    """Answer as three models would: one is right, one accepts all, one is never sure."""
    bad = "TODO" in asked.text
    if asked.body["model"] == "kind" or (asked.body["model"] == "wise" and not bad):
        return says(scores(5, 5, 5))
    return says(scores(1, 1, 1) if asked.body["model"] == "wise" else scores(3, 3, 3))


def test_models_are_compared_on_the_same_cases(project: Path, served: Served) -> None:
    cases = [
        {
            "id": f"c{n}",
            "text": "TODO" if n % 3 else "fine",
            "label": "reject" if n % 3 else "accept",
        }
        for n in range(30)
    ]
    command = (
        "eval",
        "judge",
        write(project, *cases),
        "--rubric",
        "kls",
        "--models",
        "wise,kind, unsure",
        "-j",
        "3",
    )
    done, asked = served(_by_model, *command, "--repeat", "3", "--json")
    assert (done.code, done.err) == (0, "")
    # Each model is asked thrice about each case, once of that from the cache: three cases have the same text.
    assert {each.body["model"] for each in asked} == {"wise", "kind", "unsure"}
    wise, kind, unsure = done.json["judges"]
    assert [each["judge"] for each in (wise, kind, unsure)] == ["wise", "kind", "unsure"]
    assert [each["accuracy"]["value"] for each in (wise, kind, unsure)] == [
        1,
        pytest.approx(1 / 3),
        pytest.approx(2 / 3),
    ]
    assert (wise["behind"], kind["behind"]["value"]) == (None, pytest.approx(2 / 3))
    assert (wise["rerun_flips"]["pairs"], wise["rerun_flips"]["rate"]["value"]) == (90, 0)
    outcomes = done.json["outcomes"]
    assert {each["id"] for each in outcomes} == {case["id"] for case in cases}
    said = {"wise": "reject", "kind": "accept", "unsure": "improve"}
    assert next(each["said"] for each in outcomes if each["label"] == "reject") == said
    done, _ = served(_by_model, *command, "--html", "page.html")
    assert "Items that they disagree about" in done.out
    assert re.search(r"accuracy +1.000 \[1.000, 1.000\]", done.out)
    assert "c29" in Path("page.html").read_text()


def test_scores_of_people_are_compared_as_numbers(project: Path, served: Served) -> None:
    Path("cases.csv").write_text(
        "id,question,answer,label\n"
        + "".join(f"r{n},q?,{'TODO ' * (n % 2)}a{n},{1.5 if n % 2 else 4}\n" for n in range(12))
    )
    command = ("eval", "judge", "cases.csv", "--rubric", "kls", "--models", "wise,kind")
    done, asked = served(_by_model, *command, "--json")
    assert (done.code, "q?" in asked[0].text) == (0, True)
    wise, kind = done.json["judges"]
    assert (wise["accuracy"], wise["scores"]["items"]) == (None, 12)
    assert wise["scores"]["mean_error"]["value"] == pytest.approx((0.5 + 1) / 2)
    assert wise["scores"]["spearman"]["value"] == pytest.approx(1)
    assert kind["scores"]["spearman"] is None  # which gives all the same score
    done, _ = served(_by_model, *command)
    assert "mean error of scores" in done.out
    Path("cases.jsonl").write_text(
        '{"id": "a", "question": "q?", "answer": "TODO", "label": "reject"}\n'
    )
    done, asked = served(_by_model, "eval", "judge", "cases.jsonl", *command[3:], "--json")
    assert (done.json["judges"][0]["accuracy"]["value"], "q?" in asked[0].text) == (1, True)
    for text, problem in (
        ("id,answer,label\na,x,4\na,y,3\n", "row 2: duplicate id 'a'; keep one"),
        (
            "id,answer,label\na,x,great\n",
            "row 1: label must be accept, improve, reject or a number",
        ),
        ("id,answer\na,x\n", "expected a column label"),
    ):
        Path("cases.csv").write_text(text)
        done, asked = served(_by_model, *command)
        assert (done.code, asked, problem in done.err) == (65, [], True)


def test_models_that_cannot_be_compared_are_refused_before_any_is_asked(
    judgekit: Run, project: Path, served: Served
) -> None:
    live = write(project, *LIVE)
    for more, problem in (
        (("--models", " , "), "--models: expected names of models"),
        (("--models", "a", "--model", "b"), "--models: expected names of models"),
    ):
        done, asked = served(_by_model, "eval", "judge", live, "--rubric", "kls", *more)
        assert (done.code in (64, 78), asked, problem in done.err) == (True, [], True), more
    done, _ = served(_by_model, "eval", "judge", live, "--models", "a")
    assert (done.code, "--models asks models" in done.err) == (64, True)
    done = judgekit(
        "eval", "judge", live, "--rubric", "kls", "--models", "anthropic/claude-haiku-5-5"
    )
    assert (done.code, done.out, "anthropic/claude-haiku-5-5" in done.err) == (64, "", True)


@pytest.mark.parametrize(
    ("page", "first", "command"),
    [
        (
            "calibrate.md",
            "Without labels",
            "calibrate --rubric kls --mode lenient labels.jsonl --out c.json",
        ),
        ("eval.md", "variants.jsonl: ", "eval judge variants.jsonl"),
    ],
)
def test_pages_show_the_output(
    judgekit: Run,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    first: str,
    command: str,
) -> None:
    monkeypatch.setattr(stats, "RESAMPLES", 2_000)  # as for users
    (shown,) = re.findall(
        rf"```text\n({first}.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL
    )
    words = [str(EXAMPLES / each) if each.endswith(".jsonl") else each for each in command.split()]
    assert judgekit(*words).out.splitlines() == shown.splitlines()


def test_again_asks_a_second_time_and_in_another_order(judgekit: Run, server: Loopback) -> None:
    file = str(EXAMPLES / "memories.jsonl")
    outcome = judgekit("eval", "judge", file, "--rubric", "memory-relevance", "--again", "--json")
    assert outcome.code == 0, outcome.err
    quick = outcome.json["judges"][0]
    assert quick["items"] == quick["order_flips"]["pairs"] == quick["rerun_flips"]["pairs"] == 84
    assert quick["order_flips"]["rate"]["value"] == 0


def test_words_and_names_are_not_obeyed(judgekit: Run, tmp_path: Path) -> None:
    words = ("accept", "acept", "\x1b[31maccept", "x" * 3_000 + "\ny")
    cases = (chosen(str(at), word) for at, word in enumerate(words))
    done = judgekit("eval", "judge", write(tmp_path, *cases))
    rows = [row.split()[0] for row in done.out.splitlines() if "precision" in row]
    assert sorted(rows) == sorted(("[31maccept", "accept", "acept", "x" * 39 + "…"))
    said = {"q\n\x1b[2J": {"choice": "accept", "model": "m\x1b[1m"}}
    found = judgekit(
        "eval", "judge", write(tmp_path, {"id": "a", "label": "accept", "judges": said})
    )
    assert "q\\n\\x1b[2J (m\\x1b[1m): 1 item" in found.out
    assert "\x1b" not in done.out + found.out


def test_a_dead_provider_is_no_unreadable_judge(judgekit: Run, project: Path, use: Use) -> None:
    use(DEAD, **TIERS)
    file = write(project, *LIVE)
    outcome = judgekit("eval", "judge", file, "--rubric", "kls")
    assert (outcome.code, "1.000" in outcome.out) == (2, False)
    assert re.search(r"not answered +5 connection", outcome.out)
    assert re.search(r"unreadable +-", outcome.out)
    assert "no model answered 5 of 5 cases (connection); there are no figures" in outcome.err
    told = judgekit("eval", "judge", file, "--rubric", "kls", "--json").json
    found = [(each["unanswered"], each["unreadable"]) for each in told["judges"]]
    assert all(each == ({"connection": 5}, None) for each in found)
    outcome = judgekit("calibrate", file, *KLS)
    assert outcome.code == 2
    assert "no model answered 5 of 5 cases (connection)" in outcome.err
    outcome = judgekit("rubric", "check", "kls", "--run", "--mode", "strict")
    assert outcome.code == 2
    assert re.search(r"strict: no case was decided: .+", outcome.err)


def test_a_provider_that_answers_in_part_leaves_a_part(project: Path, served: Served) -> None:
    def answer(asked: Asked) -> Answer:
        return fails(401, "no such key") if "AWAY" in asked.text else says("no JSON")

    file = write(project, *LIVE, {"id": "away", "text": "# AWAY", "label": "accept"})
    outcome, _ = served(answer, "eval", "judge", file, "--rubric", "kls")
    assert (outcome.code, bool(re.search(r"unreadable +1.000", outcome.out))) == (2, True)
    assert "not every tier answered 1 of 6 cases (authentication)" in outcome.err
    outcome, _ = served(answer, "eval", "judge", write(project, *LIVE), "--rubric", "kls")
    assert outcome.code == 0  # an unreadable reply is an answer


def test_without_a_folder_for_the_page_no_model_is_asked(
    judgekit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object) -> None:
        raise AssertionError("a model was asked")

    monkeypatch.setattr(runner, "ask", ask)
    command = ("eval", "judge", write(tmp_path, *LIVE), "--rubric", "kls", "--html")
    done = judgekit(*command, str(tmp_path / "gone" / "p.html"))
    assert (done.code, done.out, done.err.count("\n")) == (65, "", 1)
    assert "there is no folder" in done.err


METRICS = ["nDCG@10", "R@10", "P@3", "MRR"]
SCOPED = ("eval", "retrieval", str(RETRIEVAL), "--scope-prefix")


def test_figures_with_their_intervals_as_the_page_shows_them(judgekit: Run) -> None:
    """Every row of the page is a row of the output; only digits and which bins hold a hit may differ."""
    done = judgekit(*SCOPED)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(
        "retrieval: 14 documents in 2 scopes, 12 queries, 10 of them judged;"
    )
    for name in METRICS:
        assert re.search(
            rf"^  {name} +\d\.\d{{3}}  \[\d\.\d{{3}}, \d\.\d{{3}}\]$", done.out, re.MULTILINE
        )
    assert re.search(
        r"^Confidence of \d+ hits: Brier 0\.\d{4}, ECE 0\.\d{4}$", done.out, re.MULTILINE
    )
    assert "To 12 prompts, 10 of them answerable, the hook would add" in done.out
    assert "Asked against the documents of the next scope" in done.out
    page = (ROOT / "docs" / "eval.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(retrieval: .*?)```", page, re.DOTALL)
    bins = re.compile(r"^  \d\.\d to .*\n", re.MULTILINE)
    rows = [re.sub(r"[\d.]+", "0", bins.sub("", text)) for text in (shown, done.out)]
    assert [line.split() for line in rows[0].splitlines()] == [
        line.split() for line in rows[1].splitlines()
    ]


def test_the_json_form_and_the_run_are_contracts(judgekit: Run, tmp_path: Path) -> None:
    run = tmp_path / "example.run"
    found = judgekit(*SCOPED, "--run", str(run), "--json").json
    assert list(found["metrics"]) == METRICS
    assert set(found["metrics"]["MRR"]) == {"value", "low", "high"}
    assert set(found["confidence"]) == {"hits", "brier", "ece", "bins", "labels"}
    hook = {"prompts", "injected", "nudged"}
    assert set(found["injection"]) == hook | {"answerable", "precision", "coverage"}
    assert (set(found["elsewhere"]), set(found["bootstrap"])) == (
        hook,
        {"level", "resamples", "seed"},
    )
    assert (found["queries"], found["judged"], found["scopes"], found["depth"]) == (12, 10, 2, 100)
    alone = judgekit("eval", "retrieval", str(RETRIEVAL), "--json").json
    assert (alone["scopes"], alone["elsewhere"]) == (None, None)
    rows = [line.split() for line in run.read_text().splitlines()]
    assert len({row[0] for row in rows}) == 10
    assert all(row[0].partition("/")[0] == row[2].partition("/")[0] for row in rows)
    done = judgekit(*SCOPED, "--run", str(tmp_path / "missing" / "run"))
    assert (done.code, done.out, "cannot be written" in done.err) == (64, "", True)


REFERENCES = ("--rubric", "answer-correctness", "--mode", "strict")


def with_references(project: Path, *references: str) -> str:
    rows = []
    for number, reference in enumerate(references):
        text = f"answer {number}"
        rows.append({"id": number, "answer": text, "expected": reference, "label": "accept"})
    path = project / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("command", [("eval", "judge"), ("calibrate",)])
@pytest.mark.parametrize("blank", ["", " "])
def test_a_row_that_lacks_what_the_rubric_needs_is_left_out_and_counted(
    served: Served, project: Path, command: tuple[str, ...], blank: str
) -> None:
    path = with_references(project, "7", blank, "8")
    done, asked = served(by_content, *command, path, *REFERENCES)
    assert done.code == 0
    assert "1 row that cannot be judged (answer-correctness@1.0.0 needs" in done.out + done.err
    assert "answer 1" not in str([each.text for each in asked])


@pytest.mark.parametrize("command", [("eval", "judge"), ("calibrate",)])
def test_rows_none_of_which_can_be_judged_are_an_error(
    served: Served, project: Path, command: tuple[str, ...]
) -> None:
    done, asked = served(by_content, *command, with_references(project, "", ""), *REFERENCES)
    assert done.code == 65
    assert "case 0: no model was asked" in done.err
    assert asked == []
