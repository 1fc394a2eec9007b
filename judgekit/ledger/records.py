"""The lines of a ledger: one JSON object each, told apart by `schema`."""

from __future__ import annotations

import hmac
import json
import operator
import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
)

from judgekit.errors import FailureKind
from judgekit.judging.verdict import Dismissed, Verdict, VerdictWord
from judgekit.redaction.redact import without_secrets
from judgekit.retrieval.terms import fold
from judgekit.task_ids import HASH_DIGITS, is_blob, is_same_task
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

GateWord: TypeAlias = Literal["GO", "NO-GO", "UNDETERMINED"]
LabelWord: TypeAlias = Literal["go", "no-go", "unsure", "withdrawn"]
GateMode: TypeAlias = Literal["advisory", "blocking"]
Decided: TypeAlias = Literal["accept", "reject"]

_GATE_WORD_BY_VERDICT: dict[str, GateWord] = {"accept": "GO", "reject": "NO-GO", "improve": "NO-GO"}
# The credentials in an address (a password may contain a slash), and everything after its path.
_CREDENTIALS_PATTERN = re.compile(
    r"(?<=://)(?:[^/@:\s]*:(?!\d{1,5}/)\S*|[^/@\s]*)@|[?#].*", re.DOTALL
)
# Failures whose message may quote the input, or the model's output.
_QUOTING_FAILURE_KINDS = {
    FailureKind.TRUNCATED,
    FailureKind.COMMAND_FAILED,
    FailureKind.SERVER_ERROR,
    FailureKind.INVALID_REPLY,
    FailureKind.BAD_REQUEST,
    FailureKind.PAYMENT,
    FailureKind.CONTENT_FILTER,
    FailureKind.CONTEXT_WINDOW,
    FailureKind.REFUSAL,
}


def convert_to_gate_word(verdict: VerdictWord) -> GateWord:
    """Translate a verdict's word to the gate's."""
    return _GATE_WORD_BY_VERDICT.get(verdict, "UNDETERMINED")


def _make_encodable(value: object) -> object:
    """Make a string encodable as UTF-8. Other values are left for pydantic to refuse."""
    if isinstance(value, str):
        return replace_surrogates(value)
    return value


Name: TypeAlias = Annotated[str, BeforeValidator(_make_encodable)]
Address: TypeAlias = Annotated[
    Name, AfterValidator(lambda address: _CREDENTIALS_PATTERN.sub("", address))
]


class _Part(BaseModel):
    """A part of a ledger line; a reader ignores fields of a newer version."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class PushRecord(_Part):
    """The push for which a gate gave its verdict; `cached` if an earlier verdict was used again."""

    mode: GateMode = "advisory"
    remote: Address = ""
    ref: Name = ""
    cached: bool = False


class VerdictLine(Verdict):
    """A verdict as the ledger keeps it; `imported` holds further fields of an older record.

    `configured` maps the model name in replies to the configured name, if they differ.
    """

    project: str = ""
    configured: dict[str, str] = Field(default={}, exclude_if=operator.not_)
    gate: PushRecord | None = None
    of_task: bool = False
    imported: dict[str, Any] | None = None

    @property
    def word(self) -> GateWord:
        return convert_to_gate_word(self.verdict)

    @property
    def hashes(self) -> list[str]:
        return [subject.sha256 for subject in self.subjects]

    @property
    def answered(self) -> bool:
        """Whether any model gave an opinion. An imported verdict counts if it has scores."""
        if any(round_.opinion for round_ in self.rounds):
            return True
        return self.imported is not None and bool(self.scores)


class _Line(_Part):
    schema_: str = Field(alias="schema")
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    timestamp: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    project: str = ""


class Label(_Line):
    """A person's word on a verdict's content; `withdrawn` takes back that person's earlier label."""

    schema_: Literal["judgekit/label@1"] = Field(default="judgekit/label@1", alias="schema")
    of: str
    label: LabelWord
    who: Name
    blind: bool = False


class OverrideLine(_Line):
    """A decision about one blob or the files `subjects`; `terminal` if a person could have typed it."""

    schema_: Literal["judgekit/override@1"] = Field(default="judgekit/override@1", alias="schema")
    task_id: Name
    decision: Decided
    why: Name
    who: Name
    terminal: bool
    subjects: list[str] = []


class DismissalLine(_Line):
    """A finding `of` a verdict is no problem, wherever the rubric (its id) finds the same quote again."""

    schema_: Literal["judgekit/dismissal@1"] = Field(default="judgekit/dismissal@1", alias="schema")
    of: str
    rubric: Name
    quote_hash: str
    who: Name
    withdrawn: bool = False


class Skip(_Line):
    """A push that went past the gate because of a `variable`."""

    schema_: Literal["judgekit/skip@1"] = Field(default="judgekit/skip@1", alias="schema")
    variable: str
    who: Name
    terminal: bool
    remote: Address = ""
    refs: list[Name] = []


class ModeChange(_Line):
    """The gate was promoted or returned to advisory; `dependent` if the author's family may accept alone."""

    schema_: Literal["judgekit/mode@1"] = Field(default="judgekit/mode@1", alias="schema")
    mode: GateMode
    who: Name = ""
    forced: bool = False
    why: list[str] = []
    dependent: bool = Field(default=False, exclude_if=lambda dependent: not dependent)


class Fault(_Line):
    """A push in which nothing could be judged, because of our own fault or a wrong configuration."""

    schema_: Literal["judgekit/fault@1"] = Field(default="judgekit/fault@1", alias="schema")
    problem: Name
    paths: list[Name] = []


Record: TypeAlias = VerdictLine | Label | OverrideLine | DismissalLine | Skip | ModeChange | Fault


class Line(RootModel[Annotated[Record, Field(discriminator="schema_")]]):
    """Any line of a ledger."""


SCHEMAS: dict[type[Record], str] = {
    kind: kind.model_fields["schema_"].default for kind in get_args(Record)
}
"""The value of `schema` in the lines of each kind, such as `judgekit/label@1`."""


def parse_kind(schema: str) -> str:
    """Extract the kind of line from its schema, such as `label` from `judgekit/label@1`."""
    _, _, kind_and_version = schema.partition("/")
    kind, _, _ = kind_and_version.partition("@")
    return kind


def hash_quote(quote: str, key: bytes) -> str:
    """Hash a quote with a secret key, ignoring whitespace, case and accents.

    Returns "" if nothing else is left.
    """
    folded = " ".join(fold(quote).split())
    if not folded:
        return ""
    return hmac.digest(key, folded.encode("utf-8", "replace"), "sha256").hex()


def mark_dismissed(
    verdict: Verdict, hashes: Sequence[str], ledger_records: Iterable[Record]
) -> Verdict:
    """Return a copy of the verdict, with people's dismissals added to its findings.

    A dismissal refers to a finding by the hash of the finding's quote. `hashes` contains the quotes' hashes,
    in the order of the verdict's findings.
    """
    dismissal_by_hash = _find_newest_dismissals(ledger_records, verdict.rubric.id)
    findings = list(verdict.findings)
    for index, quote_hash in enumerate(hashes):
        dismissal = dismissal_by_hash.get(quote_hash)
        if dismissal and not dismissal.withdrawn:
            dismissed = Dismissed(who=dismissal.who, at=dismissal.timestamp)
            findings[index] = findings[index].model_copy(update={"dismissed": dismissed})
    return verdict.model_copy(update={"findings": findings})


def _find_newest_dismissals(records: Iterable[Record], rubric: str) -> dict[str, DismissalLine]:
    """Find a rubric's newest dismissal of each quote, by the quote's hash. It can be a withdrawal."""
    all_dismissals = [record for record in records if isinstance(record, DismissalLine)]
    dismissals = [dismissal for dismissal in all_dismissals if dismissal.rubric == rubric]
    dismissals.sort(key=lambda dismissal: dismissal.timestamp)
    # A later dismissal replaces an earlier one.
    return {dismissal.quote_hash: dismissal for dismissal in dismissals}


def make_verdict_line(
    verdict: Verdict,
    hashes: Sequence[str] = (),
    *,
    text: bool = False,
    gate: PushRecord | None = None,
    of_task: bool = False,
) -> VerdictLine:
    """Build a verdict's ledger line. `hashes` contains a hash of each finding's quote.

    Quotes, and anything else that can repeat the input, are kept only if `text`. `gate` describes the push,
    and `of_task` marks a verdict on an agent's task.
    """
    # `verdict` can be a ledger line, which has more fields. Take only those of a verdict.
    fields = verdict.model_dump(by_alias=True, include=set(Verdict.model_fields))
    # A dump leaves `configured` out, because only the ledger has it.
    fields["configured"] = verdict.configured
    _add_quote_hashes(fields["findings"], hashes)
    if not text:
        _drop_quoted_input(fields)

    fields["gate"] = gate
    fields["of_task"] = of_task
    return VerdictLine.model_validate(fields)


def _add_quote_hashes(findings: Iterable[dict[str, Any]], hashes: Sequence[str]) -> None:
    """Add the hash of its quote to each finding. Without `hashes`, the findings stay as they are."""
    for finding, quote_hash in zip(findings, hashes, strict=False):
        finding["quote_hash"] = quote_hash


def _drop_quoted_input(fields: dict[str, Any]) -> None:
    """Remove everything that can quote the input or a model's output from `fields`, a verdict's fields."""
    fields["reasoning"] = ""
    for finding in _list_all_findings(fields):
        finding["quote"] = ""
        finding.pop("evidence", None)

    for round_ in fields["rounds"]:
        if round_["opinion"]:
            round_["opinion"].pop("reasoning", None)
        if round_["failure"]:
            _drop_quoting_message(round_["failure"], fields)


def _list_all_findings(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """List the findings of a verdict, of its review and of each model's opinion."""
    findings = [*fields["findings"], *fields.get("review", ())]
    for round_ in fields["rounds"]:
        opinion = round_["opinion"] or {}
        findings += opinion.get("findings") or []
    return findings


def _drop_quoting_message(failure: dict[str, Any], fields: dict[str, Any]) -> None:
    """Remove a failure's message from a verdict's `fields` if it can quote the model's output."""
    message = failure["message"]
    may_quote = failure["kind"] in _QUOTING_FAILURE_KINDS
    if not message or not may_quote:
        return
    failure["message"] = ""
    # The verdict's `degraded` describes failures, and has their messages in brackets.
    if fields["degraded"]:
        fields["degraded"] = fields["degraded"].replace(f" ({message})", "")


def serialise_record(record: Record) -> bytes:
    """Serialise a record as a line of JSON with a newline, without any secrets."""
    # An empty `reasoning` only means that the ledger doesn't store text, so omit it.
    excluded = set()
    if isinstance(record, VerdictLine) and not record.reasoning:
        excluded.add("reasoning")
    text = record.model_dump_json(by_alias=True, exclude=excluded)
    fields = json.loads(text)
    # `without_secrets` only makes a copy if there's a secret to remove.
    clean_fields = without_secrets(fields)
    if clean_fields is not fields:
        text = json.dumps(clean_fields, ensure_ascii=False, separators=(",", ":"))
    return text.encode() + b"\n"


def find_newest_override(
    records: Iterable[Record],
    task_id: str,
    subjects: Collection[str] = (),
    *,
    without_terminal: bool = False,
) -> OverrideLine | None:
    """Return the newest override of a task's verdict, or None.

    `subjects` are the SHA-256 hashes of the task's files. Overrides that weren't typed at a terminal count
    only if `without_terminal`.
    """
    overrides = [record for record in records if isinstance(record, OverrideLine)]
    if not without_terminal:
        overrides = [override for override in overrides if override.terminal]

    matching = [override for override in overrides if is_override_of(override, task_id, subjects)]
    return max(matching, key=lambda override: override.timestamp, default=None)


def is_override_of(override: OverrideLine, task_id: str, subjects: Collection[str] = ()) -> bool:
    """Whether an override is for this task and content. `subjects` are the files' SHA-256 hashes."""
    if not is_same_task(override.task_id, task_id):
        return False
    if override.subjects and subjects:
        return set(override.subjects) == set(subjects)
    # Without file hashes, both ids must contain a git blob's hash, which identifies the content. A short hash
    # isn't enough, because it can also match another file.
    return is_blob(override.task_id, digits=HASH_DIGITS) and is_blob(task_id, digits=HASH_DIGITS)
