"""The pytest plugin: judges texts in tests, which fail or are skipped by the verdict, and records replies.

pytest loads it in every run of an environment with judgekit; only a test that judges imports the judge.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.judging.verdict import Failure, Verdict
    from judgekit.rubric.schema import Accept, ScoreMode, ScoreRubric

_RECORD_FLAG = "--judge-record"
_REPLAY_FLAG = "--judge-replay"
_RECORDINGS_FOLDER_KEY = pytest.StashKey[Path | None]()  # the folder of recordings
LIMIT_OPTIONS = ("deadline", "max_cost_usd", "concurrency", "cache")
"""Options that change no reply, and so aren't part of a recording's name."""
# Properties of a test's report about its verdicts; JUnit XML has them, too.
_VERDICT_PROPERTY = "judgekit.verdict"
_NOT_JUDGED_PROPERTY = "judgekit.not_judged"
_COST_PROPERTY = "judgekit.cost_usd"
_COST_INCOMPLETE_PROPERTY = "judgekit.cost_incomplete"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and setting for recordings."""
    group = parser.getgroup("judgekit", "texts judged by language models")
    group.addoption(_RECORD_FLAG, metavar="DIR", help="Ask models and keep their replies in DIR.")
    group.addoption(
        _REPLAY_FLAG, metavar="DIR", help="Judge by the replies in DIR and ask no model."
    )
    parser.addini(
        "judge_replay",
        f"The usual DIR of {_REPLAY_FLAG}, seen from the root; {_RECORD_FLAG} goes first.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and determine the folder of recordings."""
    marker_line = "judge: asks a model; every test with `assert_accepted` gets this mark"
    config.addinivalue_line("markers", marker_line)

    record = config.getoption(_RECORD_FLAG)
    replay = config.getoption(_REPLAY_FLAG)
    default_replay = config.getini("judge_replay")
    if record and replay:
        raise pytest.UsageError(
            f"{_RECORD_FLAG} and {_REPLAY_FLAG} exclude each other: give one of them"
        )

    # An option is relative to where pytest was started, the setting to the project's root.
    folder: Path | None = None
    if record or replay:
        folder = config.invocation_params.dir / (record or replay)
    elif default_replay:
        folder = config.rootpath / default_replay
    config.stash[_RECORDINGS_FOLDER_KEY] = folder


def pytest_itemcollected(item: pytest.Item) -> None:
    if "assert_accepted" in getattr(item, "fixturenames", ()):
        item.add_marker("judge")


@pytest.fixture
def assert_accepted(request: pytest.FixtureRequest) -> Callable[..., Verdict]:
    """Judge a text with the arguments of `judgekit.judge_texts`; returns its verdict if that's accept.

    Any other verdict fails the test. If no model could judge the text, the test is skipped.
    """

    def judge_for_test(text: str, *, rubric: str | None = None, **options: Any) -> Verdict:  # noqa: ANN401 - handed on
        __tracebackhide__ = True
        _check_text(text)
        loaded, verdict = _load_and_judge(request, text, rubric, options)
        _report_cost(request, verdict)
        if verdict.verdict == "undetermined":
            _skip_unjudged(request, verdict)

        request.node.user_properties.append((_VERDICT_PROPERTY, verdict.verdict))
        if verdict.verdict != "accept":
            raise AssertionError(_describe_failure(verdict, text, loaded))
        return verdict

    return judge_for_test


def _load_and_judge(
    request: pytest.FixtureRequest, text: str, rubric: str | None, options: Mapping[str, Any]
) -> tuple[ScoreRubric, Verdict]:
    """Load the rubric, and judge the text by it or replay its recording."""
    __tracebackhide__ = True
    from judgekit.errors import JudgekitError

    try:
        loaded_rubric = _load_rubric(rubric, options)
        verdict = _judge_or_replay(request, text, rubric, options)
    except JudgekitError as error:
        # The message says it all, so drop the traceback through judgekit.
        raise error.with_traceback(None) from None
    return loaded_rubric, verdict


def _report_cost(request: pytest.FixtureRequest, verdict: Verdict) -> None:
    """Add a verdict's cost to the test's report, unless the verdict was replayed."""
    has_recordings = request.config.stash[_RECORDINGS_FOLDER_KEY] is not None
    is_replayed = has_recordings and not request.config.getoption(_RECORD_FLAG)
    if not is_replayed:
        request.node.user_properties += _list_cost_properties(verdict)


def _skip_unjudged(request: pytest.FixtureRequest, verdict: Verdict) -> NoReturn:
    """Skip the test, and add the reason to its report."""
    __tracebackhide__ = True
    from judgekit.text import escape_ci_commands

    reason = (verdict.degraded or "").removeprefix("not judged: ")
    request.node.user_properties.append((_NOT_JUDGED_PROPERTY, reason))
    pytest.skip(escape_ci_commands(f"not judged: {reason}"))


def _list_cost_properties(verdict: Verdict) -> list[tuple[str, object]]:
    """List the properties about a verdict's cost for the test report."""
    properties: list[tuple[str, object]] = [(_COST_PROPERTY, verdict.cost_usd or 0.0)]
    if verdict.cost_complete is False:  # None if an older version didn't say
        properties.append((_COST_INCOMPLETE_PROPERTY, True))
    return properties


def _check_text(text: object) -> None:
    """Raise `UsageError` if `text` is blank or not a string."""
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
    """Load the rubric to judge by; raises `UsageError` if `options` lack an input that it needs."""
    from judgekit import environment
    from judgekit.config import check_arguments, settings
    from judgekit.judging import service
    from judgekit.judging.request import JudgeRequest

    project = Path(environment.find_project_root())
    check_arguments("assert_accepted", rubric=name)
    request = JudgeRequest(rubric=name)
    loaded = service.load_rubric(settings.load(project), project, request)
    # For a request to judge a text, only score rubrics are loaded.
    rubric = cast("ScoreRubric", loaded.rubric)
    _check_needs(rubric, options)
    return rubric


def _check_needs(rubric: ScoreRubric, options: Mapping[str, Any]) -> None:
    """Raise `UsageError` if an input is missing that the rubric needs, such as a reference."""
    from judgekit.errors import UsageError

    missing = [need for need in rubric.given.needs if not options.get(need)]
    if missing:
        needs = " and ".join(missing)
        raise UsageError(f"assert_accepted: {rubric.ref} needs {needs}; pass {missing[0]}=")


def _judge_or_replay(
    request: pytest.FixtureRequest, text: str, rubric: str | None, options: Mapping[str, Any]
) -> Verdict:
    """Judge a text by models, recording their replies if asked to, or replay a recording.

    If the recording or a reply is missing, the test fails.
    """
    __tracebackhide__ = True
    judge = partial(_judge, text, rubric, options)
    folder = request.config.stash[_RECORDINGS_FOLDER_KEY]
    if folder is None:
        return judge()

    file = folder / _name_recording(request.node.name, text, rubric, options)
    if request.config.getoption(_RECORD_FLAG):
        return _record(file, judge)
    if not file.is_file():
        missing = f"{_get_relative_folder(request.config) / file.name} is missing"
        _fail_unrecorded(request, text, missing)

    # If the user has set JUDGEKIT_RECORD, don't record what's replayed.
    verdict = judge(JUDGEKIT_REPLAY=str(file), JUDGEKIT_RECORD="")
    unrecorded = _find_unrecorded(verdict)
    if unrecorded is not None:
        _fail_unrecorded(request, text, unrecorded.message)
    return verdict


def _name_recording(
    test_name: str, text: str, rubric: str | None, options: Mapping[str, Any]
) -> str:
    """Name a recording's file by its test, and a hash of the text, rubric and options.

    When one of them changes, the old recording no longer matches.
    """
    from judgekit import environment

    # Limits, such as `max_cost_usd`, change no reply.
    asked_options = sorted(
        (name, value) for name, value in options.items() if name not in LIMIT_OPTIONS
    )
    digest = environment.digest(repr((text, rubric, asked_options)))
    return f"{_make_file_name(test_name)}-{digest}.jsonl"


def _make_file_name(test_name: str) -> str:
    """Make a short file name of a test's name: `test_a[b c]` becomes `test-a-b-c`."""
    words = re.sub(r"[^a-zA-Z0-9]+", "-", test_name)
    return words[:60].strip("-")


def _find_unrecorded(verdict: Verdict) -> Failure | None:
    """Return the first failure because of a missing reply in a recording, or None."""
    for round_ in verdict.rounds:
        if round_.failure and round_.failure.kind == "not_recorded":
            return round_.failure
    return None


def _record(file: Path, judge: Callable[..., Verdict]) -> Verdict:
    """Judge by models, and store their replies in a file.

    If they couldn't judge, an earlier recording is kept.
    """
    __tracebackhide__ = True
    # The process id keeps parallel test runs from writing the same file.
    unfinished_file = file.with_suffix(f".{os.getpid()}")
    try:
        # If the user has set JUDGEKIT_REPLAY, still ask models.
        verdict = judge(JUDGEKIT_RECORD=str(unfinished_file), JUDGEKIT_REPLAY="")
        if verdict.verdict != "undetermined":
            unfinished_file.replace(file)
    finally:
        unfinished_file.unlink(missing_ok=True)
    return verdict


def _fail_unrecorded(request: pytest.FixtureRequest, text: str, missing: str) -> NoReturn:
    """Fail the test, and say how to record what's missing."""
    __tracebackhide__ = True
    from judgekit.text import shorten_to_line

    remedy = (
        f"run pytest {_RECORD_FLAG} {_get_relative_folder(request.config)} where a model is set up"
    )
    pytest.fail(f"the text {shorten_to_line(text, 60)!r} was not recorded: {missing}; {remedy}")


def _get_relative_folder(config: pytest.Config) -> Path:
    """Return the folder of recordings, relative to where pytest was started."""
    return Path(
        os.path.relpath(config.stash[_RECORDINGS_FOLDER_KEY] or "", config.invocation_params.dir)
    )


def _judge(text: str, rubric: str | None, options: Mapping[str, Any], **variables: str) -> Verdict:
    """Judge a text while environment variables are overridden by `variables`."""
    __tracebackhide__ = True
    from judgekit import api, environment

    text_options, request_options = _split_options(options)
    with environment.OverrideEnviron({**os.environ, **variables}):
        texts = {"text": api.Text(text, **text_options)}
        (verdict,) = api.judge_texts(texts, rubric=rubric, **request_options)
        return verdict


def _split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those of the text, such as its reference, and those of the request."""
    from judgekit import api

    text_options = {}
    request_options = {}
    for name, value in options.items():
        is_of_text = name in api.Text.__dataclass_fields__
        if is_of_text:
            text_options[name] = value
        else:
            request_options[name] = value
    return text_options, request_options


def _describe_failure(verdict: Verdict, text: str, rubric: ScoreRubric) -> str:
    """Describe what the scores must be, what they are, and the text, for a failed test's report."""
    from judgekit.cli import output
    from judgekit.cli.formats.table import render_verdict
    from judgekit.text import shorten_to_line

    mode: ScoreMode = getattr(rubric.modes, verdict.mode)
    condition = _describe_condition(mode.accept)
    details = render_verdict(verdict.record(), headed=False)
    lines = [
        f"{verdict.verdict}; to be accepted, {condition}",
        f"    {details}",
        f"    text: {shorten_to_line(text, 200)}",
    ]
    return output.make_printable("\n".join(lines))


def _describe_condition(accept: Accept) -> str:
    """Describe the scores that a text needs to be accepted."""
    condition = f"each score must be at least {accept.each:g}"
    if accept.mean is not None:
        condition = f"{condition}, and their mean {accept.mean:g}"
    return condition


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how many verdicts there are and their cost, and why any tests weren't judged."""
    from judgekit.text import format_count

    properties = _collect_properties(terminalreporter)
    verdicts = [value for name, value in properties if name == _VERDICT_PROPERTY]
    cost = sum(value for name, value in properties if name == _COST_PROPERTY)
    if verdicts or cost:  # models can also cost money without reaching a verdict
        count = format_count(len(verdicts), "verdict", "verdicts")
        cost_text = _describe_cost(properties, cost, config)
        terminalreporter.write_line(f"judgekit: {count}, {cost_text}")

    reasons = [value for name, value in properties if name == _NOT_JUDGED_PROPERTY]
    if reasons:
        tests = format_count(len(reasons), "test", "tests")
        terminalreporter.write_line(f"judgekit: {tests} not judged: {_list_reasons(reasons)}")


def _collect_properties(terminalreporter: pytest.TerminalReporter) -> list[tuple[str, Any]]:
    """Collect the properties that were added to all tests."""
    properties = []
    for reports in terminalreporter.stats.values():
        for report in reports:  # some, such as warnings, aren't about a phase of a test
            # The report on teardown is a test's last, and has the properties from all phases.
            if getattr(report, "when", "") == "teardown":
                properties += report.user_properties
    return properties


def _describe_cost(
    properties: Sequence[tuple[str, Any]], cost: float, config: pytest.Config
) -> str:
    """Describe the cost of all verdicts, or the folder they were replayed from."""
    names = {name for name, _ in properties}
    were_models_asked = _COST_PROPERTY in names
    if not were_models_asked:
        return f"replayed from {_get_relative_folder(config)}"
    is_incomplete = _COST_INCOMPLETE_PROPERTY in names
    if is_incomplete:
        return f"at least {cost:.4f} USD" if cost else "cost unknown"
    return f"{cost:.4f} USD"


def _list_reasons(reasons: Sequence[str]) -> str:
    """List the different reasons; if there are several reasons, each with its number of tests."""
    counts = Counter(reasons)
    if len(counts) == 1:
        return reasons[0]
    return "; ".join(f"{reason} ({count})" for reason, count in counts.items())
