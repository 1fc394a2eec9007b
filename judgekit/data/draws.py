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
        """Draw a number from 0 to 1 for a row, a different number for each purpose.

        The number depends on the row's id, not on its text: copies of a text under other ids get other
        numbers.
        """
        text = json.dumps([self.nonce, purpose, id_key(row_id)])
        key = self.key.encode("utf-8", "surrogateescape")
        digest = hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256")
        return int.from_bytes(digest[:_DRAW_BYTES], "big") / _DRAWS


def require_key(what: str) -> str:
    """Return the user's key.

    If there's none, raises a `ConfigError`, which begins with `what` needs the key.
    """
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
    """Read the nonce from a file that this user's key has sealed, or write a new nonce to it.

    Raises `InputError` if the file can't be written, `UsageError` if it's a link.
    """
    real_path = place_of(path)
    nonce = None if is_fresh else _read_nonce(real_path, key)
    if nonce is not None:
        return nonce
    nonce = new_nonce()
    sealed_nonce = {"nonce": nonce, "seal": seals.seal_of(key, _SEAL_KIND, nonce)}
    try:
        outputs.write_atomically(real_path, json.dumps(sealed_nonce) + "\n", mode=outputs.PRIVATE)
    except OSError as error:
        raise write_error(path, str(Path(real_path).parent), error) from None
    return nonce


def _read_nonce(path: str, key: str) -> str | None:
    """Read the nonce from a file. None if there's no such file, or if this key hasn't sealed its nonce."""
    with suppress(OSError, ValueError, RecursionError):
        sealed_nonce = json.loads(Path(path).read_bytes())
        if isinstance(sealed_nonce, dict) and isinstance(sealed_nonce.get("nonce"), str):
            seal = str(sealed_nonce.get("seal"))
            if seals.is_valid(key, _SEAL_KIND, sealed_nonce["nonce"], seal):
                return str(sealed_nonce["nonce"])
    return None


def fingerprint_rows(rows: Iterable[PendingRow]) -> str:
    """Hash rows: their ids, in order, and everything that's judged in each."""
    everything = [[str(row.row_id), row.fingerprint.current] for row in rows]
    return seals.fingerprint_of(json.dumps(everything)).current
