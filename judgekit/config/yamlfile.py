"""Reads the YAML and JSON files that users tune into validated models; errors name file, line and key."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import stat
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.scanner import RoundTripScanner, Scanner

from judgekit.config.problems import Location, kind_of, problem
from judgekit.errors import ConfigError
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


MAX_BYTES = 1_000_000  # far above any real file; keeps a YAML bomb from being parsed
MOST_KEPT = 256  # files whose models are kept
# A file that was changed so lately may change again without its times telling so: it is not kept yet.
FRESH_SECONDS = 0.1
MOST_NODES = 1_000_000  # of a document in which each alias is written out: no file without one has as many
MOST_LEVELS = 50  # of lists and mappings in each other: a parser's time grows with their square
CONFIG_BYTES = 32_000  # of what a clone may bring and every prompt waits for: a second and a half of CPU


class Strict(BaseModel):
    """Base of every model that is read from a file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)
State = tuple[int, int, int, int, int]


def read(
    path: Path,
    model: type[Model],
    *,
    version_key: str | None = None,
    context: object = None,
    most: int = MAX_BYTES,
) -> Model:
    """Return the file at `path`, of `most` bytes, as a `model`.

    `version_key` names a key that must be there before anything else is looked at, so that a file of
    another kind is called that instead of a list of unknown keys.

    As long as a file stays as it is, it is parsed once: the model is shared, and not to be changed.

    Raises `ConfigError` naming file, line, key, what was expected and what to do.
    """
    state = _state(path) if context is None else None
    if state is None:
        return _validated(load_yaml(path, most), path, model, version_key, context)
    kept: Model = _kept(path, state, model, version_key, most)
    return kept


@lru_cache(MOST_KEPT)
def _kept(path: Path, state: State, model: type[Model], version_key: str | None, most: int) -> Model:
    return _validated(_parsed_once(path, state, most), path, model, version_key, None)


@lru_cache(MOST_KEPT)
def _parsed_once(path: Path, _state: State, most: int) -> dict[str, Any]:
    """Return the mapping in a file; several models may read the same one."""
    return load_yaml(path, most)


def _state(path: Path) -> State | None:
    """Return what changes with a file; None where it is missing, or was changed just now."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    if abs(time.time() - max(found.st_mtime, found.st_ctime)) < FRESH_SECONDS:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _validated(
    data: dict[str, Any], path: Path, model: type[Model], version_key: str | None, context: object
) -> Model:
    if version_key is not None and version_key not in data:
        raise ConfigError(f"not a {version_key} file: add the key {version_key!r} first", path=path, line=1)
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        told = problem(error.errors(include_url=False), data)
        more = f" (and {told.others} more in this file)" if told.others else ""
        line = line_of(data, told.location)
        raise ConfigError(told.text + more, path=path, line=line, key=told.key) from None


def load_yaml(path: Path, most: int = MAX_BYTES) -> dict[str, Any]:
    """Return the mapping in a YAML 1.2 file, or in a JSON file, told by its name; duplicate keys are refused.

    Raises `ConfigError` when the file cannot be read, is not YAML or JSON, or is not a mapping.
    """
    text = _text(path, most)
    data = _load_json(text, path) if path.suffix == ".json" else _load(text, path)
    if data is None:
        return {}
    if not isinstance(data, dict):
        told = f"expected a mapping (lines `key: value`), got {kind_of(data)}"
        raise ConfigError(told, path=path, line=1)
    return data


def _load(text: str, path: Path) -> Any:  # noqa: ANN401 - any YAML
    try:
        return _yaml("rt").load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise ConfigError(f"{_plainly(error.problem)}; mend the YAML", path=path, line=line) from None
    except YAMLError as error:
        raise ConfigError(f"{_plainly(str(error))}; mend the YAML", path=path) from None
    except ValueError as error:  # a number of too many digits, a day that there is not
        raise ConfigError(f"{_plainly(str(error))}; mend the YAML", path=path) from None


def _load_json(text: str, path: Path) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_members)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{error.msg}; mend the JSON", path=path, line=error.lineno) from None
    except RecursionError:
        raise ConfigError("nested too deeply to be read; mend the JSON", path=path) from None
    except ValueError as error:
        raise ConfigError(f"{error}; mend the JSON", path=path) from None


def _members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {json.dumps(key)}")
        found[key] = value
    return found


class _Levels:
    """Refuses deep nesting while a text is read, before it takes a parser's time."""

    indents: list[int]
    flow_context: list[str]
    reader: Any

    def add_indent(self, column: int) -> bool:
        self._check()
        return super().add_indent(column)  # type: ignore[misc,no-any-return]  # a scanner comes after it

    def fetch_flow_collection_start(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as ruamel has it
        self._check()
        super().fetch_flow_collection_start(*args, **named)  # type: ignore[misc]  # the same

    def _check(self) -> None:
        if len(self.indents) + len(self.flow_context) > MOST_LEVELS:
            told = f"nested more than {MOST_LEVELS} levels deep"
            raise MarkedYAMLError(problem=told, problem_mark=self.reader.get_mark())


class _Scanner(_Levels, Scanner):
    pass


class _RoundTripScanner(_Levels, RoundTripScanner):
    pass


class _Composer(Composer):
    """Takes single values as keys, and no others: a key within a key doubles the time and more.

    Nor does it take aliases of aliases that stand for more than `MOST_NODES` values, written out.
    """

    def __init__(self, loader: Any = None) -> None:  # noqa: ANN401 - the loader of ruamel
        super().__init__(loader)
        self.warn_double_anchors = False  # YAML allows them, and a warning each is for no user
        self._sizes: dict[int, int] = {}  # of lists and mappings, by the id of a node that is kept

    def compose_sequence_node(self, anchor: Any) -> Any:  # noqa: ANN401 - the nodes of ruamel
        node = super().compose_sequence_node(anchor)
        return self._measured(node, node.value)

    def compose_mapping_node(self, anchor: Any) -> Any:  # noqa: ANN401 - the nodes of ruamel
        node = super().compose_mapping_node(anchor)
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise MarkedYAMLError(problem="a list or mapping as a key", problem_mark=key.start_mark)
        return self._measured(node, [value for _, value in node.value])

    def _measured(self, node: Any, inside: Sequence[Any]) -> Any:  # noqa: ANN401 - the nodes of ruamel
        self._sizes[id(node)] = size = 1 + sum(self._sizes.get(id(each), 1) for each in inside)
        if size > MOST_NODES:
            told = f"aliases that stand for more than {MOST_NODES:,} values"
            raise MarkedYAMLError(problem=told, problem_mark=node.start_mark)
        return node


def _yaml(kind: Literal["rt", "safe"]) -> YAML:
    found = YAML(typ=kind, pure=True)
    found.Scanner = _RoundTripScanner if kind == "rt" else _Scanner
    found.Composer = _Composer
    return found


def put(path: Path, section: str, key: str, value: str) -> None:
    """Set `key` in a `section` of a YAML file, made if need be; every other character stays as it is.

    Raises `ConfigError` when the file cannot be read or written, or is laid out so that this is not safe.
    """
    wanted = load_yaml(path) if path.exists() else {}
    text = path.read_bytes().decode() if path.exists() else ""  # with the file's own line ends
    under = wanted.get(section) or {}
    changed = _put(text, section, key, value)
    try:
        found = _yaml("safe").load(changed)
        sound = isinstance(under, dict) and found == {**wanted, section: {**under, key: value}}
    except YAMLError:
        sound = False
    if not sound:
        raise ConfigError(f"set it to {value} by hand; this file's layout is too unusual", path=path, key=key)
    _replace(path, changed)


def _put(text: str, section: str, key: str, value: str) -> str:
    """Return `text` with the key set, guided by where the YAML parser saw the nodes."""
    root = _yaml("rt").compose(text)
    found = root and _member(root, section)
    if found is None and root is not None and root.flow_style:
        return _insert(text, root, f"{section}: {{{key}: {value}}}")
    if found is None:
        newline = _newline(text)
        return f"{_ended(text, newline)}{section}:{newline}  {key}: {value}{newline}"
    if not isinstance(found, MappingNode):  # nothing, or null
        return (
            f"{text[: found.start_mark.index].rstrip(' ')} {{{key}: {value}}}{text[found.end_mark.index :]}"
        )
    member = _member(found, key)
    if member is None:
        return _insert(text, found, f"{key}: {value}")
    return text[: member.start_mark.index] + value + text[member.end_mark.index :]


def with_item(text: str, key: str, item: str) -> str:
    """Return YAML `text` with `item` (lines, the first begins with `- `) put last into the list under `key`.

    Every other character stays as it is. Raises `ConfigError` where the layout makes that unsafe.
    """
    newline = _newline(text)
    root, found = _list(text, key)
    if found is not None and (found.value or not found.flow_style):
        if not isinstance(found, SequenceNode) or found.flow_style:
            raise ConfigError("this list's layout is too unusual; put the item in by hand", key=key)
        place, indent = _content_end(text, found), found.start_mark.column
    else:
        place, indent = (len(text), 2) if found is None else (found.start_mark.index, 2)
    lines = "".join(f"{' ' * indent}{line}{newline}" for line in lines_of(item))
    head = text[:place]
    if found is None:
        head = f"{_ended(head, newline)}{key}:{newline}"
    elif found.flow_style:  # an empty list
        head = f"{head.rstrip(' ')}{newline}"
        lines = lines.removesuffix(newline)
        place = found.end_mark.index
    changed = _ended(head, newline) + lines + text[place:]
    return _as_wanted(changed, root, key, [*_items(root, key), *parsed(item)])


def without_item(text: str, key: str, position: int) -> str:
    """Return YAML `text` without one item of the list under `key`; raises as `with_item` does."""
    root, found = _list(text, key)
    if not isinstance(found, SequenceNode) or found.flow_style:
        raise ConfigError("this list's layout is too unusual; take the item out by hand", key=key)
    items = _items(root, key)
    start = text.rindex("\n", 0, found.value[position].start_mark.index) + 1
    following = found.value[position + 1 :]
    end = text.rindex("\n", 0, following[0].start_mark.index) + 1 if following else _content_end(text, found)
    kept = text[:start] if len(items) > 1 else f"{text[:start].rstrip()} []{text[start - 1 : start]}"
    return _as_wanted(kept + text[end:], root, key, [*items[:position], *items[position + 1 :]])


def _list(text: str, key: str) -> tuple[dict[str, Any], Any]:
    """Return what a YAML text says and the node of the list under `key`, None where it has none."""
    root = parsed(text) or {}
    if not isinstance(root, dict) or not isinstance(root.get(key) or [], list):
        raise ConfigError(f"expected a mapping with a list {key!r}", key=key)
    node = _yaml("rt").compose(text)
    found = node and _member(node, key)
    if found is not None and not isinstance(found, SequenceNode):
        raise ConfigError("expected a list, got nothing; remove the key, or add to it by hand", key=key)
    return root, found


def parsed(text: str) -> Any:  # noqa: ANN401 - any YAML
    """Return what a YAML 1.2 text says; raises `ConfigError` when it is none."""
    try:
        return _yaml("safe").load(text)
    except MarkedYAMLError as error:
        raise ConfigError(f"{_plainly(error.problem)}; mend the YAML") from None
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"{_plainly(str(error))}; mend the YAML") from None


def _items(root: dict[str, Any], key: str) -> list[Any]:
    return list(root.get(key) or [])


def _as_wanted(changed: str, root: dict[str, Any], key: str, items: list[Any]) -> str:
    if parsed(changed) != {**root, key: items}:
        raise ConfigError("this list's layout is too unusual; change it by hand", key=key)
    return changed


def _content_end(text: str, block: SequenceNode) -> int:
    """Return where a block list ends: empty lines, and comments further left, are after it."""
    end: int = block.end_mark.index
    while end:
        start = text.rfind("\n", 0, end - 1) + 1
        if not _is_after(text[start:end], block.start_mark.column):
            break
        end = start
    return end


def _is_after(line: str, column: int) -> bool:
    told = line.strip()
    return not told or (told.startswith("#") and len(line) - len(line.lstrip()) < column)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _ended(text: str, newline: str) -> str:
    return text if not text or text.endswith("\n") else text + newline


def _member(mapping: Any, key: str) -> Any:  # noqa: ANN401 - nodes of ruamel, which has no types for them
    return next((value for name, value in mapping.value if name.value == key), None)


def _insert(text: str, mapping: Any, member: str) -> str:  # noqa: ANN401 - the same
    """Put a member first into a mapping: after its brace, or on a line of its own before the others."""
    start = mapping.start_mark.index
    if mapping.flow_style:
        rest = ", " if mapping.value else ""
        return f"{text[: start + 1]}{member}{rest}{text[start + 1 :]}"
    indent = " " * mapping.start_mark.column
    return f"{text[:start]}{member}{_newline(text)}{indent}{text[start:]}"


def _replace(path: Path, text: str) -> None:
    """Write a file at once: who reads it sees the old or the new one."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", newline="")
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"cannot be written ({error.strerror})", path=path) from None


def check_own(path: Path, project: Path) -> bool:
    """Whether a file of a project's is there, and its own.

    Raises `ConfigError` where it, or a folder on the way from the project, is a link, or where it is no
    regular file: a clone may lead to what is none of its business, or to a pipe without an end.
    """
    step, mode = project, 0
    for part in path.relative_to(project).parts:
        step /= part
        try:
            mode = step.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no such name"
            raise ConfigError(f"cannot be read ({reason})", path=step) from None
        if stat.S_ISLNK(mode):
            raise ConfigError(
                "a link, and a project's links are not followed; put it there itself", path=step
            )
    if not stat.S_ISREG(mode):
        raise ConfigError("no regular file; put a file there, or nothing", path=path)
    return True


def sha256(path: Path) -> str:
    """Return the SHA-256 of the file's bytes in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _text(path: Path, most: int) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a device may have no end, a pipe no beginning
            raise ConfigError("no regular file", path=path)
        with path.open("rb") as file:
            raw = file.read(most + 1)
        if len(raw) > most:
            raise ConfigError(f"larger than {most} bytes: is this the right file?", path=path)
        return io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None


def _plainly(problem: str | None) -> str:
    """Return what a YAML parser found wrong, without the words of its trade."""
    told = (problem or "not valid YAML").partition("\n")[0]
    told = told.replace("found character '\\t' that cannot start any token", "a tab; indent with spaces")
    told = told.replace("but got '<stream end>'", "but the file ends here")
    if told.startswith("found duplicate key "):
        return told.partition(" with value ")[0]
    # What stands in the file is quoted, as are the names of a parser's tokens: '<block end>'.
    return _QUOTED.sub("", told)


_QUOTED = re.compile(r""" (["'])(?!<)(?:(?!\1).)*(?:\1|$)""")


def line_of(data: object, location: Location) -> int | None:
    """Return the line (from 1) of the deepest part of `location` that stands in the file."""
    line: int | None = None
    for part in location:
        marks = getattr(getattr(data, "lc", None), "data", None) or {}
        if part not in marks:
            break
        line = marks[part][0] + 1
        data = data[part]  # type: ignore[index]  # `marks` has the part, so `data` is a container
    return line
