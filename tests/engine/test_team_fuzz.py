"""Whatever is sent, whether it fits the server's description or not, the server has an answer for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode, checks, openapi

if TYPE_CHECKING:
    from starlette.testclient import TestClient

pytestmark = pytest.mark.slow

OPERATIONS = [
    ("GET", "/healthz"),
    ("GET", "/metrics"),
    ("GET", "/v1/rubrics"),
    ("POST", "/v1/judge"),
    ("POST", "/v1/ledger"),
    ("GET", "/v1/ledger"),
]
TAKES_SOMETHING = ("/v1/judge", "/v1/ledger")
# Not among them: that a request which does not fit is refused. A parameter too many is no fault.
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
QUIET = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def test_every_operation_is_tried(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, found in paths.items() for method in found} == set(OPERATIONS)


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [(*each, GenerationMode.POSITIVE) for each in OPERATIONS]
    + [(*each, GenerationMode.NEGATIVE) for each in OPERATIONS if each[1] in TAKES_SOMETHING],
)
def test_no_server_error_and_no_answer_but_those_described(
    client: TestClient, token: str, method: str, path: str, mode: GenerationMode
) -> None:
    schema = openapi.from_asgi("/openapi.json", client.app)
    operation = schema[path][method]

    @QUIET
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Case[Any]) -> None:
        answer = case.call(headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code < 500, (case.body, answer.text)
        case.validate_response(answer, checks=CHECKS)

    run()
