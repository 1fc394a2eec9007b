"""Replays and records replies: a judge that needs no key and always gives the same answers.

A recording is a JSONL file, one object a line:

    {"replay": 1, "subject": "<sha256>", "rubric": "kls@1.0.0", "tier": "quick", "part": "",
     "model": "anthropic/claude-haiku-4-5", "family": "anthropic", "pointwise": false,
     "reply": {"text": "...", "model": "...", "input_tokens": 1, "output_tokens": 2, "cost_usd": 0.1,
               "logprobs": [{"yes": -0.1}], "tokens": ["yes"]}}

`replay` is the version of the format. Instead of `reply` a line may have `failure`: {"kind": "timeout",
"message": "..."}. A request is matched by its subject and its model, never by its wording. Several lines for
the same request are served in order, and the last one repeats. `labels` maps the labels of candidates in the
reply to ids, since labels differ between installations. A recording never holds keys or prompts.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from judgekit import outputs
from judgekit.config import TierName
from judgekit.config.yamlfile import Strict, read_lines
from judgekit.errors import ConfigError, CostSource, FailureKind, GatewayError, Usage
from judgekit.providers import registry
from judgekit.providers.base import CallKey, Endpoint, Gateway, Reply, Request
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Sequence

REPLAY_VARIABLE = "JUDGEKIT_REPLAY"
RECORD_VARIABLE = "JUDGEKIT_RECORD"
_RECORDED_USAGE_FIELDS = {field.name for field in fields(Usage)} - {"unpriced_calls"}


@functools.lru_cache(maxsize=64)
def build_recorded_model(model: str, family: str) -> Endpoint:
    """Build the endpoint of a recorded model."""
    profile = registry.find("replay")
    return Endpoint(profile, model, family, profile.output)


class RecordedReply(Strict):
    text: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    logprobs: list[dict[str, float]] = []
    tokens: list[str] = []
    held: Literal[True] | None = None


class RecordedFailure(Strict):
    kind: FailureKind
    message: str


class RecordedLine(Strict):
    replay: Literal[1]
    subject: str
    rubric: str
    tier: TierName
    part: str = ""
    model: Annotated[str, Field(min_length=1)]
    family: str = registry.UNKNOWN_FAMILY
    pointwise: bool = False
    decides: bool | None = None
    labels: dict[str, str] = {}
    reply: RecordedReply | None = None
    failure: RecordedFailure | None = None

    @model_validator(mode="after")
    def _one_outcome(self) -> RecordedLine:
        if (self.reply is None) == (self.failure is None):
            raise ValueError("expected either reply or failure")
        return self


def load_recorded_models(path: Path) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return the models of each tier in a recording. Raises `ConfigError` if it's empty or damaged."""
    profile = registry.find("replay")
    lines = read_lines(path, RecordedLine)
    models_with_logprobs = _find_models_with_logprobs(lines)

    juries: dict[TierName, dict[str, Endpoint]] = defaultdict(dict)
    for line in _list_first_lines(lines):
        jury = juries[line.tier]
        if line.model not in jury:
            has_logprobs = line.model in models_with_logprobs
            jury[line.model] = _make_endpoint(line, profile, path, logprobs=has_logprobs)

    if not juries:
        raise ConfigError("the recording is empty; make one with JUDGEKIT_RECORD", path=path)
    return {tier: tuple(jury.values()) for tier, jury in juries.items()}


def _find_models_with_logprobs(lines: Sequence[RecordedLine]) -> set[str]:
    """Find the models that have written replies with log probabilities."""
    models = set()
    for line in lines:
        # A pointwise model writes nothing: its log probabilities are its answers.
        if line.pointwise or line.reply is None:
            continue
        # A reply has tokens only together with log probabilities.
        if line.reply.tokens:
            models.add(line.model)
    return models


def _list_first_lines(lines: Sequence[RecordedLine]) -> list[RecordedLine]:
    """List each tier's lines about the first subject and rubric that it judged.

    Later ones may have been judged by other models.
    """
    first_judged: dict[TierName, tuple[str, str]] = {}
    first_lines = []
    for line in lines:
        judged = (line.subject, line.rubric)
        if line.tier not in first_judged:
            first_judged[line.tier] = judged
        if judged == first_judged[line.tier]:
            first_lines.append(line)
    return first_lines


def _make_endpoint(
    line: RecordedLine, profile: registry.Profile, path: Path, *, logprobs: bool
) -> Endpoint:
    """Build an endpoint that replays the recording at `path` in place of the model that was recorded."""
    return Endpoint(
        profile,
        model=line.model,
        family=line.family,
        output_mode=profile.output,
        api_base=str(path),
        is_pointwise=line.pointwise,
        decides=bool(line.decides),
        has_logprobs=logprobs,
    )


class ReplayGateway:
    """Replays the recording that an endpoint's `api_base` names."""

    def __init__(self) -> None:
        self._recordings: dict[str, dict[tuple[CallKey, str], list[RecordedLine]]] = {}

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the next recorded reply to the request, or raise the recorded `GatewayError`."""
        recording = endpoint.api_base  # of a replayed model, this is the path of the recording
        if endpoint.profile.kind != "replay" or recording is None:
            raise GatewayError(
                FailureKind.BAD_REQUEST, f"{endpoint.profile.provider} is not a recording"
            )
        line = self._take_line(recording, request.call_key, endpoint.model)
        if line.failure is not None:
            raise GatewayError(line.failure.kind, line.failure.message)

        recorded_reply = line.reply
        assert recorded_reply is not None  # noqa: S101 - a line has a reply or a failure
        return Reply(
            text=_translate_labels(recorded_reply.text, line, request),
            model=recorded_reply.model,
            usage=Usage(**recorded_reply.model_dump(include=_RECORDED_USAGE_FIELDS)),
            logprobs=tuple(recorded_reply.logprobs),
            tokens=tuple(recorded_reply.tokens),
            schema_enforced=bool(recorded_reply.held),  # the file's word for it
        )

    def _take_line(self, file: str, key: CallKey, model: str) -> RecordedLine:
        """Take the next recorded line for a call. The last line is returned for all further calls.

        Raises `GatewayError` if no line was recorded.
        """
        if file not in self._recordings:
            self._recordings[file] = _read_recording(Path(file))
        lines = self._recordings[file].get((key, model))
        if not lines:
            call = f"{key.tier} {key.part}".rstrip()
            problem = f"{file} has no {call} reply of {model}"
            problem += f" under {key.rubric} for {key.subject[:12]}"
            raise GatewayError(FailureKind.NOT_RECORDED, problem)

        # Remove the line, unless it's the last one.
        line = lines[0]
        if len(lines) > 1:
            del lines[0]
        return line

    async def aclose(self) -> None:
        self._recordings.clear()


def _read_recording(path: Path) -> dict[tuple[CallKey, str], list[RecordedLine]]:
    """Group a recording's lines by call and model; raises `GatewayError` if it can't be read."""
    try:
        lines = read_lines(path, RecordedLine)
    except ConfigError as error:
        raise GatewayError(FailureKind.NOT_RECORDED, str(error)) from None
    recording = defaultdict(list)
    for line in lines:
        key = CallKey(line.subject, line.rubric, line.tier, line.part)
        recording[key, line.model].append(line)
    return recording


def _translate_labels(text: str, line: RecordedLine, request: Request) -> str:
    """Replace the candidates' labels in a recorded reply with their labels in this request."""
    label_by_id = {candidate_id: label for label, candidate_id in request.labels.items()}
    new_labels = {}
    for recorded_label, candidate_id in line.labels.items():
        if candidate_id in label_by_id:
            new_labels[recorded_label] = label_by_id[candidate_id]
    if not new_labels:
        return text
    # Replace all labels at once, because a recorded label can now be another candidate's.
    any_label = "|".join(map(re.escape, new_labels))
    return re.sub(rf"\b({any_label})\b", lambda match: new_labels[match[1]], text)


def _make_recorded_reply(reply: Reply) -> RecordedReply:
    """Convert a reply to the form in which it's recorded."""
    # `replace_surrogates` replaces the characters that a JSON file can't contain.
    logprobs = []
    for alternatives in reply.logprobs:
        logprobs.append(
            {replace_surrogates(token): logprob for token, logprob in alternatives.items()}
        )
    usage = {name: getattr(reply.usage, name) for name in _RECORDED_USAGE_FIELDS}
    return RecordedReply(
        text=replace_surrogates(reply.text),
        model=reply.model,
        **usage,
        logprobs=logprobs,
        tokens=[replace_surrogates(token) for token in reply.tokens],
        held=reply.schema_enforced or None,  # None isn't written
    )


class Recorder:
    """Appends the inner gateway's replies and failures to a recording."""

    def __init__(self, inner: Gateway, path: Path) -> None:
        self._inner = inner
        self._path = path
        self._write("")  # raises now if the file can't be written, and not after the first call

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Call the inner gateway, record its reply or failure, and return or raise that."""
        try:
            reply = await self._inner.complete(endpoint, request)
        except GatewayError as error:
            failure = RecordedFailure(kind=error.kind, message=error.message)
            self._append(endpoint, request, failure=failure)
            raise

        self._append(endpoint, request, reply=_make_recorded_reply(reply))
        return reply

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _append(self, endpoint: Endpoint, request: Request, **outcome: Strict) -> None:
        """Append a call and its outcome (`reply` or `failure`) to the recording.

        Raises `ConfigError` if the file can't be written.
        """
        labels = {label: replace_surrogates(name) for label, name in request.labels.items()}
        line = RecordedLine(
            replay=1,  # the version of the format
            **request.call_key._asdict(),
            model=endpoint.model,
            family=endpoint.family,
            pointwise=endpoint.is_pointwise,
            decides=endpoint.decides or None,  # None isn't written
            labels=labels,
            **outcome,
        )
        self._write(line.model_dump_json(exclude_none=True) + "\n")

    def _write(self, text: str) -> None:
        """Append to the recording's file; raises `ConfigError` if it can't be written."""
        try:
            outputs.append(str(self._path.absolute()), text, private=False)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            problem = (
                f"no recording can be written there ({reason}); name a file in a folder of yours"
            )
            raise ConfigError(problem, path=self._path, key=RECORD_VARIABLE) from None
