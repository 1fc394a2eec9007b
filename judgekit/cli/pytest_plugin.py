"""The pytest plugin: judges texts in tests, which fail or are skipped by the verdict, and records replies.

pytest loads it in every run of an environment with judgekit; only a test that judges imports the judge.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.judging.verdict import Failure, Verdict
    from judgekit.rubric.schema import ScoreRubric

_RECORD = "--judge-record"
_REPLAY = "--judge-replay"
_FOLDER = pytest.StashKey[Path | None]()  # the folder of recordings
LIMITS = ("deadline", "max_cost_usd", "concurrency", "cache")
"""Options that change no reply, and so aren't part of a recording's name."""
# Properties of a test's report about its verdicts; JUnit XML has them, too.
_VERDICT = "judgekit.verdict"
_UNJUDGED = "judgekit.not_judged"
_COST = "judgekit.cost_usd"
_UNPRICED = "judgekit.cost_incomplete"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and setting for recordings."""
    group = parser.getgroup("judgekit", "texts judged by language models")
    group.addoption(_RECORD, metavar="DIR", help="Ask models and keep their replies in DIR.")
    group.addoption(_REPLAY, metavar="DIR", help="Judge by the replies in DIR and ask no model.")
    parser.addini(
        "judge_replay", f"The usual DIR of {_REPLAY}, seen from the root; {_RECORD} goes first."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and determine the folder of recordings."""
    marker = "judge: asks a model; every test with `assert_accepted` gets this mark"
    config.addinivalue_line("markers", marker)

    record = config.getoption(_RECORD)
    replay = config.getoption(_REPLAY)
    usual_replay = config.getini("judge_replay")
    if record and replay:
        raise pytest.UsageError(f"{_RECORD} and {_REPLAY} exclude each other: give one of them")

    folder: Path | None = None
    if record or replay:
        folder = config.invocation_params.dir / (record or replay)
    elif usual_replay:
        folder = config.rootpath / usual_replay
    config.stash[_FOLDER] = folder


def pytest_itemcollected(item: pytest.Item) -> None:
    if "assert_accepted" in getattr(item, "fixturenames", ()):
        item.add_marker("judge")


@pytest.fixture
def assert_accepted(request: pytest.FixtureRequest) -> Callable[..., Verdict]:
    """Judge a text with the arguments of `judgekit.judge_texts`; returns its verdict if that's accept.

    Any other verdict fails the test. If no model could judge the text, the test is skipped.
    """

    def check(text: str, *, rubric: str | None = None, **options: Any) -> Verdict:  # noqa: ANN401 - handed on
        __tracebackhide__ = True
        from judgekit.errors import JudgekitError
        from judgekit.text import escape_ci_commands

        properties = request.node.user_properties
        _check_text(text)
        try:
            loaded = _load_rubric(rubric, options)
            verdict = _judge_or_replay(request, text, rubric, options)
        except JudgekitError as error:
            raise error.with_traceback(None) from None

        has_recordings = request.config.stash[_FOLDER] is not None
        is_replayed = has_recordings and not request.config.getoption(_RECORD)
        if not is_replayed:
            properties += _list_cost_properties(verdict)

        if verdict.verdict == "undetermined":
            reason = (verdict.degraded or "").removeprefix("not judged: ")
            properties.append((_UNJUDGED, reason))
            pytest.skip(escape_ci_commands(f"not judged: {reason}"))

        properties.append((_VERDICT, verdict.verdict))
        if verdict.verdict != "accept":
            raise AssertionError(_describe_failure(verdict, text, loaded))
        return verdict

    return check


def _list_cost_properties(verdict: Verdict) -> list[tuple[str, object]]:
    """List the properties about a verdict's cost for the test report."""
    properties: list[tuple[str, object]] = [(_COST, verdict.cost_usd or 0.0)]
    if verdict.cost_complete is False:
        properties.append((_UNPRICED, True))
    return properties


def _check_text(text: object) -> None:
    """Raise `UsageError` for blank text or a value of another type, which can't have a recording."""
    __tracebackhide__ = True
    from judgekit.errors import UsageError
    from judgekit.text import is_blank

    if not isinstance(text, str):
        raise UsageError(
            f"assert_accepted: expected a text, got {type(text).__name__}: {text!r:.60}"
        )
    if is_blank(text):
        raise UsageError(f"assert_accepted: the text is blank, {text!r:.60}; nothing to judge")


def _load_rubric(name: str | None, options: Mapping[str, Any]) -> ScoreRubric:
    """Load the rubric to judge by; raises `UsageError` if the test lacks something that it needs."""
    from judgekit import environment
    from judgekit.config import check_arguments, settings
    from judgekit.errors import UsageError
    from judgekit.judging import service
    from judgekit.judging.request import JudgeRequest

    project = Path(environment.project_root())
    check_arguments("assert_accepted", rubric=name)
    loaded = service.rubric(settings.load(project), project, JudgeRequest(rubric=name))
    rubric = cast("ScoreRubric", loaded.rubric)
    missing = [need for need in rubric.given.needs if not options.get(need)]
    if missing:
        needs = " and ".join(missing)
        raise UsageError(f"assert_accepted: {rubric.ref} needs {needs}; pass {missing[0]}=")
    return rubric


def _judge_or_replay(
    request: pytest.FixtureRequest, text: str, rubric: str | None, options: Mapping[str, Any]
) -> Verdict:
    """Judge text by models, or replay a recording. A missing recording fails the test."""
    __tracebackhide__ = True
    from judgekit.text import short_line

    judge = partial(_judge, text, rubric, options)
    folder = request.config.stash[_FOLDER]
    if folder is None:
        return judge()

    file = folder / _name_recording(request.node.name, text, rubric, options)
    if request.config.getoption(_RECORD):
        return _record(file, judge)

    # Replay: fail if the file, or a reply in it, is missing.
    if file.is_file():
        verdict = judge(JUDGEKIT_REPLAY=str(file), JUDGEKIT_RECORD="")
        unrecorded = _find_unrecorded(verdict)
        if unrecorded is None:
            return verdict
        missing = unrecorded.message
    else:
        missing = f"{_get_relative_folder(request.config) / file.name} is missing"

    remedy = f"run pytest {_RECORD} {_get_relative_folder(request.config)} where a model is set up"
    pytest.fail(f"the text {short_line(text, 60)!r} was not recorded: {missing}; {remedy}")


def _name_recording(
    test_name: str, text: str, rubric: str | None, options: Mapping[str, Any]
) -> str:
    """Return the name of a recording's file, with a hash of everything that's judged.

    When the text or question changes, the old recording no longer matches.
    """
    from judgekit import environment

    question = sorted((name, value) for name, value in options.items() if name not in LIMITS)
    digest = environment.digest(repr((text, rubric, question)))
    test = re.sub(r"[^a-zA-Z0-9]+", "-", test_name)[:60].strip("-")
    return f"{test}-{digest}.jsonl"


def _find_unrecorded(verdict: Verdict) -> Failure | None:
    """Return the first failure because of a missing reply in a recording, or None."""
    for round_ in verdict.rounds:
        if round_.failure and round_.failure.kind == "not_recorded":
            return round_.failure
    return None


def _record(file: Path, judge: Callable[..., Verdict]) -> Verdict:
    """Judge by models, and store their replies in a file."""
    __tracebackhide__ = True
    unfinished_file = file.with_suffix(f".{os.getpid()}")
    try:
        verdict = judge(JUDGEKIT_RECORD=str(unfinished_file), JUDGEKIT_REPLAY="")
        if verdict.verdict != "undetermined":  # otherwise, keep any earlier recording
            unfinished_file.replace(file)
    finally:
        unfinished_file.unlink(missing_ok=True)
    return verdict


def _get_relative_folder(config: pytest.Config) -> Path:
    """Return the folder of recordings, relative to where pytest was started."""
    return Path(os.path.relpath(config.stash[_FOLDER] or "", config.invocation_params.dir))


def _judge(text: str, rubric: str | None, options: Mapping[str, Any], **variables: str) -> Verdict:
    """Judge text with some environment variables set."""
    __tracebackhide__ = True
    from judgekit import api, environment

    text_options = {}
    request_options = {}
    for name, value in options.items():
        if name in api.Text.__dataclass_fields__:
            text_options[name] = value
        else:
            request_options[name] = value

    with environment.OverrideEnviron({**os.environ, **variables}):
        texts = {"text": api.Text(text, **text_options)}
        (verdict,) = api.judge_texts(texts, rubric=rubric, **request_options)
        return verdict


def _describe_failure(verdict: Verdict, text: str, rubric: ScoreRubric) -> str:
    """Describe the condition, the verdict and the text, for a failed test's report."""
    from judgekit.cli import output
    from judgekit.cli.formats.table import render_verdict
    from judgekit.text import short_line

    accept = getattr(rubric.modes, verdict.mode).accept
    condition = f"each score must be at least {accept.each:g}"
    if accept.mean is not None:
        condition = f"{condition}, and their mean {accept.mean:g}"
    return output.make_printable(
        f"{verdict.verdict}; to be accepted, {condition}\n"
        f"    {render_verdict(verdict.record(), headed=False)}\n"
        f"    text: {short_line(text, 200)}"
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the number of verdicts and their cost, and the tests that weren't judged, with reasons."""
    from judgekit.text import counted

    properties = _collect_properties(terminalreporter)
    verdicts = sum(name == _VERDICT for name, _ in properties)
    cost = sum(value for name, value in properties if name == _COST)
    if verdicts or cost:
        count = counted(verdicts, "verdict", "verdicts")
        terminalreporter.write_line(
            f"judgekit: {count}, {_describe_cost(properties, cost, config)}"
        )

    reasons = Counter(value for name, value in properties if name == _UNJUDGED)
    if reasons:
        texts = list(reasons)
        if len(reasons) > 1:
            texts = [f"{reason} ({count})" for reason, count in reasons.items()]
        tests = counted(reasons.total(), "test", "tests")
        terminalreporter.write_line(f"judgekit: {tests} not judged: {'; '.join(texts)}")


def _collect_properties(terminalreporter: pytest.TerminalReporter) -> list[tuple[str, Any]]:
    """Collect the properties of all tests from their last reports, which contain them all."""
    properties = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":  # a test's last phase
                properties += report.user_properties
    return properties


def _describe_cost(
    properties: Sequence[tuple[str, Any]], cost: float, config: pytest.Config
) -> str:
    """Describe the cost of all verdicts, or the folder they were replayed from."""
    names = {name for name, _ in properties}
    if _COST not in names:
        return f"replayed from {_get_relative_folder(config)}"
    if _UNPRICED not in names:
        return f"{cost:.4f} USD"
    return f"at least {cost:.4f} USD" if cost else "cost unknown"
