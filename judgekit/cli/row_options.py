"""The options for a dataset of rows, the checks of their combinations, and the exit code."""

from __future__ import annotations

import codecs
import enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from typer import Option

from judgekit import environment
from judgekit.cli.output import note
from judgekit.config import MAX_AGREE, MIN_AGREE
from judgekit.data import sources, tables
from judgekit.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

_DELIMITERS_BY_NAME = {"tab": "\t", "\\t": "\t"}  # because a tab is hard to type
DEFAULT_JOBS = 8  # texts judged at a time, unless -j says otherwise

ROW_JOBS = 32

_RECORDING_VARIABLES = ("JUDGEKIT_RECORD", "JUDGEKIT_REPLAY")

Turn: TypeAlias = Literal["last", "all"]


class ExitOn(enum.StrEnum):
    """Outcomes that can give an exit code other than 0."""

    REJECT = "reject"
    IMPROVE = "improve"
    UNDETERMINED = "undetermined"
    NEVER = "never"


# The verdicts for which each of these gives an exit code other than 0.
_EXIT_CODES_BY_OPTION: dict[ExitOn, dict[str, Exit]] = {
    ExitOn.REJECT: {"reject": Exit.REJECTED},
    ExitOn.IMPROVE: {"reject": Exit.REJECTED, "improve": Exit.HUMAN_NEEDED},
    ExitOn.UNDETERMINED: {"undetermined": Exit.HUMAN_NEEDED},
    ExitOn.NEVER: {},
}

DEFAULT_EXIT_ON = (ExitOn.UNDETERMINED,)  # for rows

_DATA_OPTION = Option(
    "--data",
    metavar="ROWS",
    help=f"Judge each row: {', '.join(sources.USUAL_ENDINGS)}, or - (JSON Lines).",
)

Data = Annotated[str | None, _DATA_OPTION]

_PAIRED_DATA_OPTION = Option(
    "--data",
    metavar="ROWS",
    help="Compare the texts of each row; of two files: those with the same --id (give it twice).",
)

PairedData = Annotated[list[str] | None, _PAIRED_DATA_OPTION]

_MAP_OPTION = Option(
    "--map", metavar="FIELD=COLUMN", help="Take a field, such as text, from a column; repeatable."
)

Map = Annotated[list[str] | None, _MAP_OPTION]

_ENCODING_OPTION = Option(
    "--encoding", metavar="NAME", help="Encoding of the rows, such as cp1252. [default: found out]"
)

Encoding = Annotated[str | None, _ENCODING_OPTION]

_DELIMITER_OPTION = Option(
    "--delimiter", metavar="C", help="What stands between cells of the rows. [default: found out]"
)

Delimiter = Annotated[str | None, _DELIMITER_OPTION]

_TEMPLATE_OPTION = Option(
    "--template",
    metavar="TEXT",
    help="Fill the description from columns: 'Question: {question}\\nCustomer: {tier}'.",
)

Template = Annotated[str | None, _TEMPLATE_OPTION]

_DROP_THINKING_OPTION = Option(
    "--drop-thinking", help="Leave out the closed <think> block that begins a model's output."
)

DropThinking = Annotated[bool, _DROP_THINKING_OPTION]

Id = Annotated[str | None, Option("--id", metavar="COLUMN", help="Column that names each row.")]

_FILES_OF_RESULTS = " or ".join([", ".join(tables.USUAL_ENDINGS[:-1]), tables.USUAL_ENDINGS[-1]])

_OUT_HELP = (
    f"Write results here: of rows {_FILES_OF_RESULTS} (--on ray: a folder), continued if there."
)

Out = Annotated[str | None, Option("--out", metavar="FILE", help=_OUT_HELP)]

_RUN_OPTION = Option("--run", metavar="NAME", help="Write this name into each row of --out.")

Run = Annotated[str | None, _RUN_OPTION]

_COMBINE_OPTION = Option(help="Of several --model or --rubric: accept what all accept, or any.")

Combine = Annotated[Literal["all", "any"], _COMBINE_OPTION]

Fresh = Annotated[bool, Option("--fresh", help="Judge all rows again, whatever --out has.")]

_TRUST_RESULTS_OPTION = Option(
    "--trust-results", help="Keep results in --out as they are that were not written here."
)

TrustResults = Annotated[bool, _TRUST_RESULTS_OPTION]

Full = Annotated[bool, Option("--full", help="In CSV or TSV: write the whole verdicts, too.")]

Limit = Annotated[
    int | None, Option("--limit", min=1, metavar="N", help="Judge only the first N rows.")
]

JudgeTurn = Annotated[
    Turn, Option("--judge-turn", help="Of a conversation: its last answer, or all.")
]

_EXIT_ON_OPTION = Option("--exit-on", help="Outcome that makes the exit code 1 or 2; repeatable.")

Batch = Annotated[
    bool, Option("--batch", help="Ask in the provider's batches: within a day, for less.")
]

_BATCH_FALLBACK_OPTION = Option(
    "--batch-fallback", help="Whatever a batch leaves out: ask live, or leave to the next run."
)

BatchFallback = Annotated[Literal["live", "none"], _BATCH_FALLBACK_OPTION]

ExitOnOption = Annotated[list[ExitOn] | None, _EXIT_ON_OPTION]

_JOBS_HELP = f"Texts to judge at the same time. [default: {DEFAULT_JOBS}; rows: {ROW_JOBS}]"

_ON_RAY_OPTION = Option("--on", help="Judge the rows on a Ray cluster (extra ray).")

On = Annotated[Literal["ray"] | None, _ON_RAY_OPTION]

_RAY_ADDRESS_OPTION = Option(
    "--ray-address", metavar="A", help="Address of the cluster. [default: start Ray here]"
)

RayAddress = Annotated[str | None, _RAY_ADDRESS_OPTION]

_AGREE_OPTION = Option(
    "--agree",
    min=MIN_AGREE,
    max=MAX_AGREE,
    metavar="SHARE",
    help="Let the first tier decide where this share of verdicts is deep's, with 95 % confidence.",
)

Agree = Annotated[float | None, _AGREE_OPTION]

_AGREE_ON_OPTION = Option(help="When verdicts agree: the same word, or accepted or not.")

AgreeOn = Annotated[Literal["verdict", "accepted"], _AGREE_ON_OPTION]

_ALWAYS_CONFIRM_OPTION = Option(
    help="Under --agree: ask deep about every row that the first tier accepts."
)

AlwaysConfirm = Annotated[Literal["accept"] | None, _ALWAYS_CONFIRM_OPTION]

_NOISE_OPTION = Option(
    min=0, metavar="N", help="Under --agree: ask deep twice about N rows, to see if it agrees."
)

Noise = Annotated[int, _NOISE_OPTION]

_UNTIL_OPTION = Option(
    "--until",
    metavar="CONDITION",
    help="Stop when 'accept >= 0.9' (or 'A > B') holds, or doesn't, with 95 % confidence.",
)

Until = Annotated[str | None, _UNTIL_OPTION]

Jobs = Annotated[int | None, Option("-j", min=1, max=256, help=_JOBS_HELP)]


class DataOptions(NamedTuple):
    """The command line's options for a dataset."""

    data: str | None = None
    map: list[str] | None = None
    id: str | None = None
    out: str | None = None
    fresh: bool = False
    limit: int | None = None
    judge_turn: Turn = "last"
    batch: bool = False
    batch_fallback: Literal["live", "none"] = "live"
    on: Literal["ray"] | None = None
    ray_address: str | None = None
    trust_results: bool = False
    agree: float | None = None
    agree_on: Literal["verdict", "accepted"] = "verdict"
    always_confirm: Literal["accept"] | None = None
    noise: int = 0
    until: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    other_data: str | None = None
    run: str | None = None
    full: bool = False
    template: str | None = None
    drop_thinking: bool = False

    @property
    def has_row_options(self) -> bool:
        """Whether an option is given that's only for rows, as all of these are except `--out`."""
        return self._replace(out=None) != DataOptions()

    def build_reading(self) -> sources.Reading:
        """Build the options for reading rows; raises `UsageError` for an invalid encoding or delimiter."""
        if self.encoding is not None and not _is_text_encoding(self.encoding):
            problem = "no encoding of this name; use one such as utf-8, utf-16 or cp1252"
            raise UsageError(f"--encoding {self.encoding}: {problem}")

        # A word such as `tab` names a delimiter; any other text is the delimiter itself.
        delimiter = _DELIMITERS_BY_NAME.get(self.delimiter or "", self.delimiter)
        if delimiter is not None and not _can_delimit(delimiter):
            problem = "expected one character that's no quote and no end of a line, or the word tab"
            raise UsageError(f"--delimiter {self.delimiter!r}: {problem}")
        return sources.Reading(self.encoding, delimiter, note)

    @classmethod
    def of_pairs(cls, data: list[str] | None, **others: Any) -> Self:  # noqa: ANN401 - the fields
        """Build the options for `compare`, which takes rows from one or two files."""
        paths = data or []
        if len(paths) > 2:  # noqa: PLR2004 - see the message
            raise UsageError("--data: given more than twice; a comparison is of two files")
        first = paths[0] if paths else None
        second = paths[1] if len(paths) > 1 else None
        return cls(data=first, other_data=second, **others)

    def check(self, files: list[str] | None, task_id: str | None = None) -> None:
        """Raise `UsageError` for options that don't go together, or if there's nothing to judge."""
        if self.data is None:
            raise self._explain_missing_data()

        self._refuse_documents(files, task_id)
        self._check_results()
        self._check_batch()
        self._check_ray()
        if self.other_data is not None:
            self._check_pairs()
        self._check_run_name()
        self._check_agreement()
        self._check_until()
        if self.on and self.batch:
            raise UsageError("--batch and --on ray do not go together; give one of the two")

    def _explain_missing_data(self) -> UsageError:
        """Build the error for a missing --data. It names the first given option that's only for rows."""
        options = self._asdict()
        del options["out"]  # documents have it, too
        for name, value in options.items():
            is_given = value != self._field_defaults[name]
            if is_given:
                option = f"--{name.replace('_', '-')}"
                return UsageError(f"{option} is for rows; name their file with --data")
        return UsageError("nothing to judge: name files, or a file of rows with --data")

    def _refuse_documents(self, files: list[str] | None, task_id: str | None) -> None:
        """Raise `UsageError` for a path or a task's id, because rows are judged."""
        if self.until is not None and files:
            # Without quotes, the shell takes `>= 0.9` as a redirection to the file `=`, and a path.
            problem = "put the condition in quotes, and leave paths out"
            raise UsageError(f"--until: {problem}: --until 'accept >= 0.9'")

        document_options = {"a path": files, "--task-id": task_id}
        for name, value in document_options.items():
            if value:
                raise UsageError(f"--data and {name} do not go together; give one of the two")

    def _check_results(self) -> None:
        """Raise `UsageError` for options that don't suit the results file."""
        if self.trust_results:
            reads_earlier_rows = bool(self.out) and not self.fresh
            if not reads_earlier_rows:
                raise UsageError(
                    "--trust-results is for an --out, and without --fresh, which loses its rows"
                )
        if self.full:
            is_lean = self.out is not None and tables.is_lean(self.out)
            if not is_lean:
                problem = "other results have the whole verdicts; leave it out"
                raise UsageError(f"--full is for an --out in CSV or TSV: {problem}")

    def _check_batch(self) -> None:
        """Raise `UsageError` for --batch-fallback alone, or for --batch without --out or with a recording."""
        if not self.batch:
            if self.batch_fallback != "live":
                raise UsageError("--batch-fallback is for --batch; give both")
            return

        if self.out is None:
            raise UsageError("--batch needs --out: beside it is noted which batches were submitted")
        variables = environment.environ()
        uses_recording = any(variables.get(name) for name in _RECORDING_VARIABLES)
        if uses_recording:
            raise UsageError(
                f"--batch: a recording holds no batches; unset {' and '.join(_RECORDING_VARIABLES)}"
            )

    def _check_ray(self) -> None:
        """Raise `UsageError` for --ray-address alone, or for --on ray with unsuitable options.

        It needs --out, and its workers can't read standard input, or a file whose format is given.
        """
        runs_on_ray = bool(self.on)
        if not runs_on_ray:
            if self.ray_address:
                raise UsageError("--ray-address is for --on ray; give both")
            return

        reads_standard_input = self.data == "-"
        if reads_standard_input or not self.out:
            raise UsageError(
                "--on ray reads a file, a folder or an address: name it with --data, and --out"
            )
        if self.encoding or self.delimiter:
            problem = "workers find these out by themselves; convert the file, or leave --on out"
            raise UsageError(f"--encoding and --delimiter do not go with --on ray: {problem}")

    def check_variants(self, repeated_option: str) -> None:
        """Raise `UsageError` for options that can't be combined with multiple models or rubrics."""
        if self.data is None:
            raise UsageError(
                f"{repeated_option} is given twice: that is for rows; name them with --data"
            )

        others = {
            "--agree": self.agree,
            "--until": self.until,
            "--batch": self.batch,
            "--on": self.on,
        }

        for name, value in others.items():
            if value:
                raise UsageError(
                    f"{name} goes with one {repeated_option}; leave one of the two out"
                )

    def _check_pairs(self) -> None:
        """Raise `UsageError` if two files can't be joined."""
        if "-" in (self.data, self.other_data):
            raise UsageError("--data -: standard input is no part of two files; name both")
        if self.on:
            raise UsageError("--on ray reads one file; join both before, or leave --on out")

    def _check_run_name(self) -> None:
        """Raise `UsageError` for a blank --run, or if it's given without --out or with --on ray."""
        if self.run is None:
            return
        is_blank = not self.run.strip()
        if is_blank or not self.out or self.on:
            raise UsageError(
                "--run names the rows of an --out, without --on ray; give a name and a file"
            )

    def _check_agreement(self) -> None:
        """Raise `UsageError` for options of --agree without it, or for --agree on Ray."""
        if self.agree is None:
            self._refuse_agreement_options()
        elif self.on:
            problem = "workers judge blocks of rows, and the promise is about all rows together"
            raise UsageError(f"--agree and --on ray do not go together: {problem}")

    def _refuse_agreement_options(self) -> None:
        """Raise `UsageError` for the first given option that needs --agree."""
        for name in ("agree_on", "always_confirm", "noise"):
            is_given = getattr(self, name) != self._field_defaults[name]
            if is_given:
                raise UsageError(f"--{name.replace('_', '-')} is for --agree; give both")

    def _check_until(self) -> None:
        """Raise `UsageError` for options that don't go with --until."""
        if self.until is None:
            return

        conflicts = (
            ("--agree", self.agree, "a promise is about all rows, and --until leaves rows out"),
            ("--batch", self.batch, "a batch is paid for as a whole"),
            ("--on ray", self.on, "workers judge blocks of rows, not rows in a drawn order"),
        )
        for name, value, reason in conflicts:
            if value:
                problem = f"{reason}; leave one of the two out"
                raise UsageError(f"--until and {name} do not go together: {problem}")


def _is_text_encoding(name: str) -> bool:
    """Whether Python can decode text with this encoding. Byte codecs such as base64 don't count."""
    try:
        # `open()` checks the same attribute.
        return codecs.lookup(name)._is_text_encoding  # noqa: SLF001 - there's no public one
    except (LookupError, ValueError):
        return False


def _can_delimit(delimiter: str) -> bool:
    return len(delimiter) == 1 and delimiter not in '\r\n"'


def choose_exit_code(words: Collection[str], exit_on: Collection[ExitOn]) -> int:
    """Return the exit code for the verdicts `words`.

    `exit_on` are the outcomes that cause a code other than 0.
    """
    code_by_outcome: dict[str, int] = {}
    for option in exit_on:
        code_by_outcome.update(_EXIT_CODES_BY_OPTION[option])

    # An escalated verdict needs a person, like an undetermined one.
    outcomes = {"undetermined" if word == "escalate" else word for word in words}
    codes = [code_by_outcome.get(outcome, 0) for outcome in outcomes]
    # A rejection comes first, although its code is lower than `HUMAN_NEEDED`.
    if Exit.REJECTED in codes:
        return Exit.REJECTED

    # If no row at all was decided, don't report success.
    is_all_undecided = outcomes == {"undetermined"}
    if is_all_undecided and code_by_outcome:
        codes.append(Exit.HUMAN_NEEDED)
    return max(codes, default=0)
