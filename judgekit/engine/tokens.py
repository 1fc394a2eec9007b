"""Who may ask the shared judge: a token each, of which only a hash is kept."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, StringConstraints, TypeAdapter, ValidationError

from judgekit import environment
from judgekit.config import files
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYTES = 32  # of randomness: with as much, a plain hash is as good as a slow one
_PREFIX = "jk_"
_LOCK_SECONDS = 10.0
_NAME = r"^[A-Za-z0-9][\w.@-]{0,63}$"


class Token(Strict):
    """A token by its holder's name; `sha256` is all that is known of it."""

    name: Annotated[str, StringConstraints(pattern=_NAME)]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    created: AwareDatetime


_ALL = TypeAdapter(list[Token])


class Tokens:
    """The tokens in the file at `path`; a change of it is seen at the next request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._known: dict[str, str] = {}

    def all(self) -> list[Token]:
        """Return what is known of each; raises `ConfigError` when the file is damaged."""
        try:
            return _ALL.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (ValidationError, OSError) as error:
            problem = (
                f"the tokens cannot be read ({type(error).__name__}); remove the file and create new tokens"
            )
            raise ConfigError(problem, path=self._path) from None

    def create(self, name: str) -> str:
        """Return a new token for `name`; it is shown this once. Raises `UsageError` when there is one."""
        token = _PREFIX + secrets.token_urlsafe(_BYTES)
        try:
            made = Token(name=name, sha256=_hash(token), created=datetime.now(UTC))
        except ValidationError:
            raise UsageError(f"{name!r}: expected letters, digits, and . _ @ - in a name") from None
        with self._changing() as known:
            if any(each.name == name for each in known):
                raise UsageError(f"{name} has a token; revoke it first")
            self._write([*known, made])
        return token

    def revoke(self, name: str) -> None:
        """Forget the token of `name`; raises `UsageError` when there is none."""
        with self._changing() as known:
            left = [token for token in known if token.name != name]
            if len(left) == len(known):
                raise UsageError(f"{name} has no token; see judgekit serve token list")
            self._write(left)

    def holder(self, token: str) -> str | None:
        """Return whose token this is, None when it is nobody's."""
        with suppress(OSError):
            state = self._path.stat()
            seen = (state.st_mtime_ns, state.st_ino)
            if seen != self._seen:
                self._known = {each.sha256: each.name for each in self.all()}
                self._seen = seen
            # Looked up by its hash: what can be learned from the time it takes is of no use.
            return self._known.get(_hash(token))
        return None

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """Hold the tokens for a change, so that of two changes none is lost."""
        environment.private_folder(str(self._path.parent))
        with files.held(self._path.with_suffix(".lock"), seconds=_LOCK_SECONDS):
            yield self.all()

    def _write(self, tokens: list[Token]) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.touch(0o600)
        fresh.write_bytes(_ALL.dump_json(tokens, indent=2))
        fresh.replace(self._path)


def user_tokens() -> Tokens:
    """Return the tokens that this user's server knows."""
    return Tokens(Path(environment.state_home()) / "serve" / "tokens.json")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
