"""Reads JSON with SQLite's parser: importing `json` (and `re` with it) costs more than a whole query."""

from __future__ import annotations

__all__ = ["dumps", "loads", "sqlite"]

try:
    import _sqlite3 as sqlite  # `sqlite3` itself also imports datetime, which nothing here needs
except ImportError:  # an interpreter without SQLite, or another one than CPython
    sqlite = None  # type: ignore[assignment]

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without importing typing
if TYPE_CHECKING:
    from typing import Any

_TREE = "SELECT id, parent, key, type, atom FROM json_tree(?)"


def loads(text: str) -> Any:  # noqa: ANN401 - JSON is any value
    """Return the value that the JSON `text` stands for; a NUL inside a string is read as a space.

    Raises `ValueError` when it is not JSON.
    """
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\\u0000", "\\u0020")
    if sqlite is None:
        return _standard(text)
    connection = sqlite.connect(":memory:")
    connection.text_factory = _decode
    try:
        return _build(connection.execute(_TREE, (text,)))
    except sqlite.OperationalError as error:
        if "no such table" in str(error):  # built without JSON
            return _standard(text)
        raise ValueError("not valid JSON") from None
    finally:
        connection.close()


def dumps(value: object) -> str:
    """Return `value` as JSON on one line (off the quick path: this one imports `json`)."""
    import json  # noqa: PLC0415 - see the module's docstring

    return json.dumps(value, ensure_ascii=False)


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


def _standard(text: str) -> Any:  # noqa: ANN401 - JSON is any value
    import json  # noqa: PLC0415 - see the module's docstring

    return json.loads(text)
