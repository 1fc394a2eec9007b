"""Random numbers about rows that nobody can choose: only the user's key, a nonce and the row's id decide.

Somebody who writes rows doesn't know the key, so they can't get one of theirs drawn or left out.
"""

from __future__ import annotations

import hmac
import json
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import outputs
from judgekit.data import seals
from judgekit.data.results import place_of, write_error
from judgekit.errors import ConfigError
from judgekit.evaluation.labels import id_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgekit.data.dataset import PendingRow

_DRAW_BYTES = 8
_DRAWS = 1 << (8 * _DRAW_BYTES)
_SEAL_KIND = "nonce"


class Draws(NamedTuple):
    """The source of a run's draws: the user's key, and the run's nonce."""

    key: str
    nonce: str

    def draw(self, row_id: str | int, purpose: str) -> float:
        """Draw a number from 0 to 1 for a row, a different one for each purpose.

        Copies of a text get independent numbers.
        """
        text = json.dumps([self.nonce, purpose, id_key(row_id)])
        key = self.key.encode("utf-8", "surrogateescape")
        digest = hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256")
        return int.from_bytes(digest[:_DRAW_BYTES], "big") / _DRAWS


def require_key(what: str) -> str:
    """Return the user's key. If there's none, raises a `ConfigError` that says `what` needs it."""
    key = seals.state_key()
    if key is None:
        problem = (
            f"{what} with a key that the authors of rows can't know, and none can be kept "
            "in the user's folder; set it to 32 or more random characters"
        )
        raise ConfigError(problem, key=seals.VARIABLE)
    return key


def new_nonce() -> str:
    return secrets.token_hex(16)


def keep_nonce(path: str, key: str, *, is_fresh: bool) -> str:
    """Read the nonce from a file that this user wrote, or write a new one to it.

    Raises `InputError` if it can't be written, `UsageError` for a link.
    """
    place = place_of(path)
    nonce = None if is_fresh else _read_nonce(place, key)
    if nonce is not None:
        return nonce
    nonce = new_nonce()
    line = {"nonce": nonce, "seal": seals.seal_of(key, _SEAL_KIND, nonce)}
    try:
        outputs.write_atomically(place, json.dumps(line) + "\n", mode=outputs.PRIVATE)
    except OSError as error:
        raise write_error(path, str(Path(place).parent), error) from None
    return nonce


def _read_nonce(place: str, key: str) -> str | None:
    """Read the nonce from a file; None if there's none that this key has sealed."""
    with suppress(OSError, ValueError, RecursionError):
        line = json.loads(Path(place).read_bytes())
        if isinstance(line, dict) and isinstance(line.get("nonce"), str):
            seal = str(line.get("seal"))
            if seals.is_valid(key, _SEAL_KIND, line["nonce"], seal):
                return str(line["nonce"])
    return None


def fingerprint_rows(rows: Iterable[PendingRow]) -> str:
    """Hash rows: their ids, in order, and everything that's judged in each."""
    everything = [[str(row.row_id), row.fingerprint.current] for row in rows]
    return seals.fingerprint_of(json.dumps(everything)).current
