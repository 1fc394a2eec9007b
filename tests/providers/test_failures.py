from __future__ import annotations

import inspect
import json

import pytest

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import failures, litellm

exceptions = litellm.load().exceptions
CLASSES = [
    each
    for _, each in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(each, Exception) and each.__module__ == exceptions.__name__
]


def test_litellm_has_the_classes_that_are_mapped_and_no_others() -> None:
    assert {each.__name__ for each in CLASSES} == set(failures.KINDS)


def test_each_class_becomes_its_kind() -> None:
    for kind in CLASSES:
        error = kind.__new__(kind)  # their constructors all differ, and only the class counts here
        error.__dict__.update(message="it", num_retries=None, max_retries=None, original_exception=None)
        assert failures.failure_of(error).kind is failures.KINDS[kind.__name__]
    failure = GatewayError(FailureKind.BUDGET, "spent")
    assert failures.failure_of(failure) is failure


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (ConnectionRefusedError("no"), FailureKind.CONNECTION),
        (TimeoutError("late"), FailureKind.TIMEOUT),
        (json.JSONDecodeError("bad", "{", 0), FailureKind.INVALID_REPLY),
        (IndexError("list index out of range"), FailureKind.INVALID_REPLY),
        (ModuleNotFoundError("No module named 'google'"), FailureKind.BAD_REQUEST),
        (OSError("disk"), FailureKind.CONNECTION),  # what the class itself says
    ],
)
def test_what_a_vague_class_came_from_decides(cause: Exception, kind: FailureKind) -> None:
    error = exceptions.APIConnectionError("vague", llm_provider="x", model="m")
    error.__cause__ = cause
    assert failures.failure_of(error).kind is kind


def test_a_ring_of_causes_ends() -> None:
    value_error, two = ValueError("1"), ValueError("2")
    value_error.__cause__, two.__cause__ = two, value_error
    assert failures.failure_of(value_error).kind is FailureKind.SERVER_ERROR


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'litellm.BadRequestError: X - {"error": {"message": "no such thing", "code": 1}}',
            "X - no such thing",
        ),
        ('XException - {"error": "flat"}', "flat"),
        ("boom\nTraceback (most recent call last):\n  File secret.py", "boom"),
        ("litellm.InternalServerError: Y. Handle with `litellm.InternalServerError`.", "Y"),
        ("", "ValueError"),
        ("{not json", "{not json"),
    ],
)
def test_a_message_is_the_providers_own_words_in_one_line(text: str, message: str) -> None:
    assert failures.failure_of(ValueError(text)).message == message


def test_a_key_is_never_in_a_message() -> None:
    assert len(failures.failure_of(ValueError("x" * 5000)).message) == failures.MAX_MESSAGE
    for shown in ("sk-secret-0123456789", "sk-sec****6789", "sk-secret-01…", "*****6789"):
        failure = failures.failure_of(ValueError(f"Incorrect key: {shown}."), ["sk-secret-0123456789"])
        assert failure.message == "Incorrect key: [key]."
    secret = "sk-0123456789yz9-wxyz9"
    for end in ("wxyz9", "yz9-wxyz9", "xyz9"):
        for before, after in (("ending in ", "."), ("…", ""), ("...", ","), ('"', '"')):
            assert failures.without_values(f"{before}{end}{after}", [secret]) == f"{before}[key]{after}"


def test_a_word_that_only_ends_like_a_key_stays() -> None:
    assert failures.without_values("a motorway, ways", ["sk-0123456789-away"]) == "a motorway, ways"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("2.5", 2.5), ("-1", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None)],
)
def test_retry_after_is_read_in_both_forms(value: str, seconds: float | None) -> None:
    error = ValueError("slow down")
    error.litellm_response_headers = {"retry-after": value}  # type: ignore[attr-defined]  # as litellm sets it
    assert failures.failure_of(error).retry_after == seconds
