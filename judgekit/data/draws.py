"""Random numbers for rows that nobody can predict: derived from the user's key, a nonce and the row's id.

The authors of rows don't know the key, so they can't get a row of theirs into a sample, or keep it out.
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
from judgekit.data.results import resolve_output_path, write_error
from judgekit.errors import ConfigError
from judgekit.evaluation.labels import normalise_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgekit.data.dataset import PendingRow

_DRAW_BYTES = 8
_POSSIBLE_DRAW_COUNT = 1 << (8 * _DRAW_BYTES)  # how many numbers fit in these bytes
_SEAL_KIND = "nonce"


class Draws(NamedTuple):
    """The source of a run's draws: the user's key, and the run's nonce."""

    key: str
    nonce: str

    def draw(self, row_id: str | int, purpose: str) -> float:
        """Draw a number from 0 to 1 for a row id and a purpose. The same arguments give the same number."""
        message = json.dumps([self.nonce, purpose, normalise_id(row_id)]).encode()
        # A key in an environment variable can have bytes that aren't UTF-8.
        key = self.key.encode("utf-8", "surrogateescape")
        digest = hmac.digest(key, message, "sha256")

        number = int.from_bytes(digest[:_DRAW_BYTES], "big")
        return number / _POSSIBLE_DRAW_COUNT


def require_key(what: str) -> str:
    """Return the user's key. Raises `ConfigError` if there's none.

    `what` begins the error's sentence, such as "--until draws its rows".
    """
    key = seals.get_state_key()
    if key is None:
        # The error names the variable before this sentence, so "set it" means the variable.
        problem = (
            f"{what} with a key that the authors of rows can't know, and none can be kept "
            "in the user's folder; set it to 32 or more random characters"
        )
        raise ConfigError(problem, key=seals.STATE_KEY_VARIABLE)
    return key


def new_nonce() -> str:
    return secrets.token_hex(16)


def keep_nonce(path: str, key: str, *, is_fresh: bool) -> str:
    """Read a run's nonce from a file. If the file has none with this key's seal, write a new one.

    If `is_fresh`, a new one is written in any case. Raises `InputError` if the file can't be written, and
    `UsageError` if it's an untrusted link, a pipe or a device.
    """
    real_path = resolve_output_path(path)
    if not is_fresh:
        kept_nonce = _read_nonce(real_path, key)
        if kept_nonce is not None:
            return kept_nonce

    nonce = new_nonce()
    sealed_nonce = {"nonce": nonce, "seal": seals.seal_of(key, _SEAL_KIND, nonce)}
    try:
        outputs.write_atomically(real_path, json.dumps(sealed_nonce) + "\n", mode=outputs.PRIVATE)
    except OSError as error:
        raise write_error(path, str(Path(real_path).parent), error) from None
    return nonce


def _read_nonce(path: str, key: str) -> str | None:
    """Read the nonce from a file. Returns None unless there's a nonce that was sealed with this key."""
    with suppress(OSError, ValueError, RecursionError):
        sealed_nonce = json.loads(Path(path).read_bytes())
        nonce = sealed_nonce.get("nonce") if isinstance(sealed_nonce, dict) else None
        if not isinstance(nonce, str):
            return None
        seal = str(sealed_nonce.get("seal"))
        if seals.is_valid(key, _SEAL_KIND, nonce, seal):
            return nonce
    return None


def fingerprint_rows(rows: Iterable[PendingRow]) -> str:
    """Hash the ids and the judged content of rows, in order."""
    everything = [[str(row.row_id), row.fingerprint.current] for row in rows]
    return seals.fingerprint_text(json.dumps(everything)).current
