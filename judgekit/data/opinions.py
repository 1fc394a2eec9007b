"""The opinions that a run under a promise of agreement collects before any of them becomes a result.

They're stored in the file `OUT.agree.jsonl`, each sealed with the user's key. So no opinion is paid for twice
after a run was killed, its input has grown or the promise has changed.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from judgekit import outputs
from judgekit.data import seals
from judgekit.data.draws import Draws, new_nonce, require_key
from judgekit.data.results import resolve_output_path, write_error
from judgekit.evaluation.labels import normalise_id
from judgekit.judging.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

    from judgekit.data.dataset import PendingRow

ENDING = ".agree.jsonl"
_SEAL_KIND = "opinion"


class _Position(NamedTuple):
    """An opinion's position in the file, and the fingerprint of the judged content."""

    start: int
    size: int
    fingerprint: str


class Opinions:
    """Each tier's opinions on the rows, and the random numbers that choose the sampled rows."""

    def __init__(self, out: str | None, *, is_fresh: bool = False) -> None:
        """Open the file of opinions for the results `out`, or a temporary one if `out` is None.

        Raises `ConfigError` if there's no key, and `InputError` or `UsageError` if the file can't be used.
        """
        self._key = require_key("--agree draws its sample")  # how the error message begins
        self._out = out
        self.unsealed = 0
        """The number of opinions that aren't sealed with the user's key, and are therefore ignored."""
        self._positions: dict[tuple[str, str], _Position] = {}
        self._nonce = ""
        try:
            self._file = self._open_file(is_fresh=is_fresh)
            self._read_lines()
        except OSError as error:
            raise write_error(str(out), str(Path(str(out)).parent), error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def find(self, tier: str, row: PendingRow) -> Verdict | None:
        """Find a tier's verdict on a row, or return None if there's none about its current content."""
        position = self._positions.get((tier, normalise_id(row.row_id)))
        if position is None or position.fingerprint != row.fingerprint.current:
            return None
        self._file.seek(position.start)
        line = json.loads(self._file.read(position.size))
        verdict = Verdict.model_validate(line["judged"])
        return verdict.model_copy(update={"margin": line["margin"]})

    def add(self, tier: str, row: PendingRow, verdict: Verdict) -> None:
        """Store a tier's verdict on a row. Raises `InputError` if the file can't be written."""
        content = {
            "id": row.row_id,
            "tier": tier,
            "fingerprint": row.fingerprint.current,
            "margin": verdict.margin,
            "judged": verdict.record(),
        }
        start, size = self._append_line(content)
        position = _Position(start, size, row.fingerprint.current)
        self._positions[tier, normalise_id(row.row_id)] = position

    def draw(self, row: PendingRow, purpose: str) -> float:
        """Draw a number from 0 to 1 for a row and a purpose. It's always the same for the same content."""
        # Otherwise, an author who knew that a row isn't in the sample could put anything into it.
        purpose_and_content = f"{purpose} of {row.fingerprint.current}"
        return Draws(self._key, self._nonce).draw(row.row_id, purpose_and_content)

    def _open_file(self, *, is_fresh: bool) -> IO[bytes]:
        """Open the file `OUT.agree.jsonl`, or a temporary file if there's no OUT."""
        if self._out is None:
            return tempfile.TemporaryFile()
        path = resolve_output_path(self._out + ENDING)
        if is_fresh:
            Path(path).unlink(missing_ok=True)
        descriptor = outputs.open_to_append(path)
        return os.fdopen(descriptor, "r+b")

    def _read_lines(self) -> None:
        """Note the opinions' positions in the file, and cut off an unfinished last line.

        A file without a valid nonce starts over with a new one.
        """
        self._file.seek(0)
        start = 0
        for raw in self._file:
            if not raw.endswith(b"\n"):
                break  # a killed run didn't finish this line
            self._note_line(raw, start)
            start += len(raw)
        self._file.truncate(start)

        # Without the nonce, the same sample can't be drawn again, so the opinions are of no use.
        if not self._nonce:
            self._positions.clear()
            self._nonce = new_nonce()
            self._append_line({"nonce": self._nonce})

    def _note_line(self, raw: bytes, start: int) -> None:
        """Note the nonce or the opinion in a line.

        A line without a valid seal is only counted. A line that isn't a JSON object is ignored.
        """
        line: Any = None
        with suppress(ValueError, RecursionError):
            line = json.loads(raw)
        if not isinstance(line, dict):
            return
        seal = line.pop("seal", None)
        if not seals.is_valid(self._key, _SEAL_KIND, line, str(seal)):
            self.unsealed += 1
        elif "nonce" in line:
            self._nonce = line["nonce"]
        else:
            position = _Position(start, len(raw), line["fingerprint"])
            self._positions[line["tier"], normalise_id(line["id"])] = position

    def _append_line(self, content: Mapping[str, Any]) -> tuple[int, int]:
        """Append a sealed line. Returns its start and size in bytes.

        If writing fails, removes the unfinished line.
        """
        # Seal the content as a later run will read it, because JSON turns tuples into lists, for example.
        read_back = json.loads(json.dumps(content))
        sealed = {**read_back, "seal": seals.seal_of(self._key, _SEAL_KIND, read_back)}
        raw = json.dumps(sealed).encode() + b"\n"
        start = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(raw)
            self._file.flush()
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(start)
            path = str(self._out)
            folder = str(Path(path).parent)
            raise write_error(path, folder, error) from None
        return start, len(raw)
