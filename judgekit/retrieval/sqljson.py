"""Reads JSON with SQLite's parser: importing `json` (and `re` with it) costs more than a whole query."""

from __future__ import annotations

import sys

__all__ = ["dumps", "extract", "loads", "sqlite", "written"]

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without importing typing
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from sqlite3 import Connection
    from typing import Any

_TREE = "SELECT id, parent, key, type, atom FROM json_tree(?)"
_ONE = "json_extract(?1, ?), json_type(?1, ?)"


class _OneFunction:
    """All that `_sqlite3` takes from `functools`: the cache of prepared statements a connection has."""

    @staticmethod
    def lru_cache(size: int) -> Callable[[Any], Any]:
        import _functools  # type: ignore[import-not-found]  # noqa: PLC0415 - has no stubs; CPython's alone

        return lambda called: _functools._lru_cache_wrapper(called, size, False, tuple)  # noqa: FBT003, SLF001 - as functools calls it


def _import_sqlite() -> Any:  # noqa: ANN401 - the module; its stubs are those of sqlite3
    """Import `_sqlite3`, without all that `sqlite3` imports, and without `functools`.

    The latter is a quarter of the cost of starting Python, for one function written in C. Whoever imports it
    later gets the real one. Raises `ImportError` for an interpreter without SQLite, or another than CPython.
    """
    if "functools" not in sys.modules and sys.implementation.name == "cpython":
        stand_in: Any = _OneFunction
        sys.modules["functools"] = stand_in
        try:
            import _sqlite3  # noqa: PLC0415 - see above
        except AttributeError:  # a version that takes more from functools
            sys.modules.pop("_sqlite3", None)
        else:
            return _sqlite3
        finally:
            del sys.modules["functools"]
    import _sqlite3  # noqa: PLC0415 - the usual way

    return _sqlite3


sqlite: Any
try:
    sqlite = _import_sqlite()
except ImportError:
    sqlite = None


def loads(text: str) -> Any:  # noqa: ANN401 - JSON is any value
    """Return the value that the JSON `text` stands for; a NUL inside a string is read as a space.

    Raises `ValueError` when it is not JSON.
    """
    text = _storable(text)
    if sqlite is None:
        return _standard(text)
    try:
        return _build(_connection().execute(_TREE, (text,)))
    except sqlite.OperationalError as error:
        return _otherwise(text, error)


def extract(text: str, places: Sequence[str]) -> list[Any] | None:
    """Return what stands at each of `places` in the JSON object `text`, None where nothing does.

    A place is a key, or keys joined by dots. The result is None when `text` is no object. An object or a
    list is returned as such. Raises `ValueError` when it is not JSON.
    """
    text = _storable(text)
    if sqlite is None:
        return _picked(_standard(text), places)
    columns = ", ".join(_ONE for _ in places)
    paths = [f"$.{place}" for place in places for _ in range(2)]
    try:
        row = _connection().execute(f"SELECT json_type(?1), {columns}", (text, *paths)).fetchone()
    except sqlite.OperationalError as error:
        return _picked(_otherwise(text, error), places)
    if row[0] != "object":
        return None
    return [_typed(value, kind) for value, kind in zip(row[1::2], row[2::2], strict=True)]


def dumps(value: object) -> str:
    """Return `value` as JSON on one line (off the quick path: this one imports `json`)."""
    import json  # noqa: PLC0415 - see the module's docstring

    return json.dumps(value, ensure_ascii=False)


_MARKS = frozenset((*range(0x20), ord('"'), ord("\\")))
_SURROGATES = range(0xD800, 0xE000)


class _Escapes(dict[int, str]):
    """What must not stand in a JSON string as it is, lone surrogates too: no encoding has them."""

    def __missing__(self, code: int) -> str:
        if code in _MARKS or code in _SURROGATES:
            return f"\\u{code:04x}"
        raise LookupError


_ESCAPES = _Escapes()


def written(value: object) -> str:
    """Return `value`, made of dicts, lists and plain values, as JSON, without importing `json`."""
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(name)}:{written(each)}" for name, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(written, value)) + "]"
    return repr(value)


_kept: list[Connection] = []


def _connection() -> Connection:
    """Return a database in memory, opened once: only its functions are used."""
    if not _kept:
        connection = sqlite.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.text_factory = _decode
        _kept.append(connection)
    return _kept[0]


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").replace("\\u0000", "\\u0020")


def _typed(value: Any, kind: str | None) -> Any:  # noqa: ANN401 - JSON is any value
    if kind in ("true", "false"):
        return kind == "true"
    return loads(value) if kind in ("object", "array") else value


def _picked(value: Any, places: Sequence[str]) -> list[Any] | None:  # noqa: ANN401 - JSON is any value
    if not isinstance(value, dict):
        return None
    found = []
    for place in places:
        inner: Any = value
        for key in place.split("."):
            inner = inner.get(key) if isinstance(inner, dict) else None
        found.append(inner)
    return found


def _build(rows: Any) -> Any:  # noqa: ANN401 - rows of a cursor in, any JSON value out
    root: Any = None
    containers: dict[int, Any] = {}
    for number, parent, key, kind, atom in rows:
        value: Any = atom
        if kind == "object":
            value = containers[number] = {}
        elif kind == "array":
            value = containers[number] = []
        elif kind in ("true", "false"):
            value = kind == "true"
        if parent is None:
            root = value
            continue
        above = containers[parent]
        if isinstance(above, list):
            above.append(value)
        else:
            above[key] = value
    return root


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")  # half of a surrogate pair is valid JSON and no valid text


def _otherwise(text: str, error: Exception) -> Any:  # noqa: ANN401 - JSON is any value
    """Read `text` the usual way where SQLite was built without JSON; raise `ValueError` where it can."""
    if "no such table" in str(error) or "no such function" in str(error):
        return _standard(text)
    raise ValueError("not valid JSON") from None


def _standard(text: str) -> Any:  # noqa: ANN401 - JSON is any value
    import json  # noqa: PLC0415 - see the module's docstring

    return json.loads(text)
