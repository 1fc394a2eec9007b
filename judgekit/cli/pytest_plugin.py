"""The pytest plugin: when a judged text fails or skips its test, and where replies are recorded.

pytest loads it in every run of an environment with judgekit; the first test that judges imports the judge.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from judgekit.judging.verdict import Verdict
    from judgekit.rubric.schema import ScoreRubric

_RECORD = "--judge-record"
_REPLAY = "--judge-replay"
_FOLDER = pytest.StashKey[Path | None]()  # of the recordings
LIMITS = ("deadline", "max_cost_usd", "concurrency", "cache")
"""Options that change no reply, so that recordings have the same name whatever they are."""
# What a test's report says of its verdicts; JUnit XML has it, too.
_VERDICT = "judgekit.verdict"
_UNJUDGED = "judgekit.not_judged"
_COST = "judgekit.cost_usd"
_UNPRICED = "judgekit.cost_incomplete"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("judgekit", "texts judged by language models")
    group.addoption(_RECORD, metavar="DIR", help="Ask models and keep their replies in DIR.")
    group.addoption(_REPLAY, metavar="DIR", help="Judge by the replies in DIR and ask no model.")
    parser.addini(
        "judge_replay", f"The usual DIR of {_REPLAY}, seen from the root; {_RECORD} goes first."
    )


def pytest_configure(config: pytest.Config) -> None:
    marker = "judge: asks a model; every test with `assert_accepted` gets this mark"
    config.addinivalue_line("markers", marker)
    record, replay, usual = (
        *map(config.getoption, (_RECORD, _REPLAY)),
        config.getini("judge_replay"),
    )
    if record and replay:
        raise pytest.UsageError(f"{_RECORD} and {_REPLAY} exclude each other: give one of them")
    given = record or replay
    if given:
        folder = config.invocation_params.dir / given
    else:
        folder = config.rootpath / usual
    if given or usual:
        config.stash[_FOLDER] = folder
    else:
        config.stash[_FOLDER] = None


def pytest_itemcollected(item: pytest.Item) -> None:
    if "assert_accepted" in getattr(item, "fixturenames", ()):
        item.add_marker("judge")


@pytest.fixture
def assert_accepted(request: pytest.FixtureRequest) -> Callable[..., Verdict]:
    """Judge a text with the arguments of `judgekit.judge_texts`; return its verdict where that is accept.

    Any other verdict fails the test; where no model could judge the text, the test is skipped.
    """

    def check(text: str, *, rubric: str | None = None, **given: Any) -> Verdict:  # noqa: ANN401 - handed on
        __tracebackhide__ = True
        from judgekit.errors import JudgekitError

        told = request.node.user_properties
        try:
            used = _rubric(rubric, given)
            verdict = _verdict(request, text, rubric, given)
        except JudgekitError as error:
            raise error.with_traceback(None) from None
        if request.config.stash[_FOLDER] is None or request.config.getoption(_RECORD):
            told.append((_COST, verdict.cost_usd or 0.0))
            told += [(_UNPRICED, True)] if verdict.cost_complete is False else []
        if verdict.verdict == "undetermined":
            why = (verdict.degraded or "").removeprefix("not judged: ")
            told.append((_UNJUDGED, why))
            pytest.skip(f"not judged: {why}")
        told.append((_VERDICT, verdict.verdict))
        if verdict.verdict != "accept":
            raise AssertionError(_problem(verdict, text, used))
        return verdict

    return check


def _rubric(name: str | None, given: Mapping[str, Any]) -> ScoreRubric:
    """Return the rubric to judge by; raises `UsageError` where the test gives less than it needs."""
    from judgekit import environment
    from judgekit.config import check, settings
    from judgekit.errors import UsageError
    from judgekit.judging import service
    from judgekit.judging.request import JudgeRequest

    project = Path(environment.project_root())
    check("assert_accepted", rubric=name)
    loaded = service.rubric(settings.load(project), project, JudgeRequest(rubric=name))
    rubric = cast("ScoreRubric", loaded.rubric)
    if missing := [need for need in rubric.given.needs if not given.get(need)]:
        raise UsageError(
            f"assert_accepted: {rubric.ref} needs {' and '.join(missing)}; pass {missing[0]}="
        )
    return rubric


def _verdict(
    request: pytest.FixtureRequest, text: str, rubric: str | None, given: Mapping[str, Any]
) -> Verdict:
    """Return the verdict on a text, by models or by its recording; a missing recording fails the test."""
    __tracebackhide__ = True
    from judgekit import environment
    from judgekit.text import short_line

    folder = request.config.stash[_FOLDER]
    if folder is None:
        return _judged(text, rubric, given)
    # The name stands for all that is judged: another text or another question has no recording yet.
    judged = sorted((name, value) for name, value in given.items() if name not in LIMITS)
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    file = folder / f"{test}-{environment.digest(repr((text, rubric, judged)))}.jsonl"
    if request.config.getoption(_RECORD):
        part = file.with_suffix(f".{os.getpid()}")
        try:
            verdict = _judged(text, rubric, given, JUDGEKIT_RECORD=str(part), JUDGEKIT_REPLAY="")
            if verdict.verdict != "undetermined":  # an older recording is worth more
                part.replace(file)
        finally:
            part.unlink(missing_ok=True)
        return verdict
    shown = _shown(request.config)
    missing = f"{shown / file.name} is missing"
    if file.is_file():
        verdict = _judged(text, rubric, given, JUDGEKIT_REPLAY=str(file), JUDGEKIT_RECORD="")
        failures = [each.failure for each in verdict.rounds if each.failure]
        missing = next((each.message for each in failures if each.kind == "not_recorded"), "")
    if missing:
        todo = f"run pytest {_RECORD} {shown} where a model is set up"
        pytest.fail(f"the text {short_line(text, 60)!r} was not recorded: {missing}; {todo}")
    return verdict


def _shown(config: pytest.Config) -> Path:
    """Return the folder of the recordings as it is seen from where pytest was started."""
    return Path(os.path.relpath(config.stash[_FOLDER] or "", config.invocation_params.dir))


def _judged(text: str, rubric: str | None, given: Mapping[str, Any], **variables: str) -> Verdict:
    __tracebackhide__ = True
    from judgekit import api, environment

    own = {}
    for name, value in given.items():
        if name in api.Text.__dataclass_fields__:
            own[name] = value
    others = {}
    for name, value in given.items():
        if name not in own:
            others[name] = value
    with environment.Brought({**os.environ, **variables}):
        return api.judge_texts({"text": api.Text(text, **own)}, rubric=rubric, **others)[0]


def _problem(verdict: Verdict, text: str, rubric: ScoreRubric) -> str:
    from judgekit.cli import output
    from judgekit.cli.formats.table import verdict_text
    from judgekit.text import short_line

    accept = getattr(rubric.modes, verdict.mode).accept
    if accept.mean is None:
        mean = ""
    else:
        mean = f", and their mean {accept.mean:g}"
    asked = f"{verdict.verdict}; to be accepted, each score must be at least {accept.each:g}{mean}"
    shown = verdict_text(verdict.record(), headed=False)
    return output.printable(f"{asked}\n    {shown}\n    text: {short_line(text, 200)}")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say in a line each how many verdicts there are and what they cost, and which tests have none."""
    reports = []
    for several in terminalreporter.stats.values():
        reports.extend(several)
    ends = [report for report in reports if getattr(report, "when", "") == "teardown"]
    told = []
    for each in ends:
        for name, value in each.user_properties:
            told.append((name, value))
    verdicts = sum(name == _VERDICT for name, _ in told)
    cost = sum(value for name, value in told if name == _COST)
    if verdicts or cost:
        said = f"{cost:.4f} USD"
        if any(name == _UNPRICED for name, _ in told):
            said = f"at least {said}" if cost else "cost unknown"
        elif not any(name == _COST for name, _ in told):
            said = f"replayed from {_shown(config)}"
        terminalreporter.write_line(f"judgekit: {verdicts} verdict{'s' * (verdicts != 1)}, {said}")
    if whys := Counter(value for name, value in told if name == _UNJUDGED):
        tests = f"{whys.total()} test{'s' * (whys.total() != 1)}"
        reasons = "; ".join(
            f"{why} ({count})" if len(whys) > 1 else why for why, count in whys.items()
        )
        terminalreporter.write_line(f"judgekit: {tests} not judged: {reasons}")
