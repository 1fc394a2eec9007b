"""Finds rubrics: the project's, then the user's, then the bundled ones.

Whole files, no merging. Providers are looked up by `judgekit.providers.registry`, never in a project. Reads
the labelled cases beside a rubric, and begins a new rubric: a copy of another one, or a commented starter.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from judgekit import outputs
from judgekit.config import files, settings, yamlfile
from judgekit.errors import ConfigError, UsageError
from judgekit.rubric.schema import (
    CASES,
    Case,
    Rubric,
    RubricFile,
    ScoreRubric,
    SelectRubric,
    WrongCase,
)
from judgekit.rubric.search_path import Origin, list_folders, read_published, rubric_files
from judgekit.text import format_rubric_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Section: TypeAlias = Literal["judge", "gate", "retrieval"]
"""The sections of a configuration that name a rubric."""
Starter: TypeAlias = Literal["score", "select", "compare"]
_YAML_ENDINGS = (".yaml", ".yml")
_SCHEMA_FILE = "rubric.schema.json"
_MODELINE = f"# yaml-language-server: $schema={_SCHEMA_FILE}\n"
BY_FULL_NAME = {"groundedness@1.1.0", "kls@1.1.0"}
"""Bundled versions that an id alone doesn't select, so that its calibrations, recordings and KPIs stay."""
_RUBRIC_REFERENCE_PATTERN = re.compile(r"[a-z][a-z0-9-]*(@\d+\.\d+\.\d+)?")


class LoadedRubric(NamedTuple):
    """A rubric with its file, the file's SHA-256, and the kind of folder it was found in."""

    rubric: Rubric
    path: Path
    sha256: str
    origin: Origin

    @property
    def source(self) -> Literal["project", "user", "path"] | None:
        """The rubric's origin if it replaces a bundled rubric with the same id, otherwise None."""
        if self.origin == "bundled":
            return None

        # The digests of all versions of the bundled rubrics, by ID@VERSION.
        bundled_digests = read_published()
        is_exact_copy = self.sha256 in bundled_digests.values()
        if is_exact_copy:  # it judges the same as the bundled rubric
            return None

        bundled_ids = {ref.partition("@")[0] for ref in bundled_digests}
        replaces_bundled = self.rubric.rubric in bundled_ids
        return self.origin if replaces_bundled else None

    @property
    def name(self) -> str:
        """The rubric's id and version; also its origin, if it replaces a bundled one."""
        return format_rubric_name(self.rubric.ref, self.source)


def load_rubrics(project: Path | None = None) -> Iterator[LoadedRubric]:
    """Load all available rubrics: the project's, the user's, then the bundled ones."""
    return (load_rubric(path, origin) for origin, path in rubric_files(project))


def find_rubric(
    reference: str, project: Path | None = None, kinds: tuple[type[Rubric], ...] = ()
) -> LoadedRubric:
    """Load a rubric by `ID` (its newest version), `ID@VERSION` or the path of a YAML file.

    `kinds` are the accepted classes of rubrics, by default all. Raises `UsageError` if the reference is
    malformed, or if the rubric doesn't exist or is of another kind. Raises `ConfigError` if its file is
    invalid.
    """
    if not isinstance(reference, str):
        raise UsageError(
            f"rubric: expected ID, ID@VERSION or the path of a YAML file, got {reference!r:.60}"
        )

    if reference.endswith(_YAML_ENDINGS):
        loaded = load_rubric(Path(reference))
    elif _RUBRIC_REFERENCE_PATTERN.fullmatch(reference):
        loaded = _find_newest(reference, project)
    else:
        raise UsageError(f"{reference!r} is neither ID, ID@VERSION nor the path of a YAML file")

    if kinds and not isinstance(loaded.rubric, kinds):
        # If there are two kinds, as for `judgekit compare`, the last one is the usual one. Name only its
        # task.
        wanted_task = _get_task(kinds[-1])
        problem = f"the rubric {loaded.rubric.ref} is for the task {loaded.rubric.task!r}"
        raise UsageError(f"{problem}; this needs one for {wanted_task!r}")
    return loaded


def _get_task(kind: type[Rubric]) -> str:
    """Return the task of a class of rubrics, such as "score" for `task: Literal["score"]`."""
    annotation = kind.model_fields["task"].annotation
    (task,) = get_args(annotation)
    return str(task)


def _find_newest(reference: str, project: Path | None) -> LoadedRubric:
    """Load `ID@VERSION`, or the newest version of `ID`, from the first folder that contains it.

    Raises `UsageError` if no folder contains it.
    """
    has_version = "@" in reference
    for origin, folder in list_folders("rubrics", project):
        if has_version:
            paths = list(folder.glob(f"{reference}.yaml"))  # one file or none
        else:
            paths = _list_versions(folder, reference, origin)
        if paths:
            newest = max(paths, key=_parse_version)  # parsed, so that 1.10.0 comes after 1.9.0
            return load_rubric(newest, origin)

    raise _build_unknown_error(reference, project)


def _list_versions(folder: Path, rubric_id: str, origin: Origin) -> list[Path]:
    """List the files of a rubric's versions in a folder.

    Leaves out bundled versions that are only found by their full name, `ID@VERSION`.
    """
    paths = []
    for path in folder.glob(f"{rubric_id}@*.yaml"):
        has_empty_version = path.stem == f"{rubric_id}@"  # the pattern also matches this
        needs_full_name = origin == "bundled" and path.stem in BY_FULL_NAME
        if not has_empty_version and not needs_full_name:
            paths.append(path)
    return paths


def _parse_version(path: Path) -> tuple[float, ...]:
    """Parse the version in a rubric's file name, for comparison."""
    if not _RUBRIC_REFERENCE_PATTERN.fullmatch(path.stem):
        # A malformed version counts as the newest. Its file is then loaded, and that raises an error.
        return (inf,)
    version = path.stem.partition("@")[2]
    return tuple(map(int, version.split(".")))


def _build_unknown_error(reference: str, project: Path | None) -> UsageError:
    """Build the error for an unknown rubric, with a list of all rubrics and the closest match."""
    refs = sorted({path.stem for _, path in rubric_files(project)})  # ID@VERSION
    ids = [ref.partition("@")[0] for ref in refs]
    problem = f"no rubric {reference!r}; there are: {', '.join(refs)}"
    problem += ", or give the path of a YAML file"
    close_matches = difflib.get_close_matches(reference, [*refs, *ids], n=1)
    if close_matches:
        problem += f"; did you mean {close_matches[0]}?"
    return UsageError(problem)


def load_configured_rubric(section: Section, reference: str, project: Path | None) -> LoadedRubric:
    """Load the rubric that's configured in `section`.

    Raises `ConfigError` with the configuration file and key if the rubric doesn't exist or is for another
    task.
    """
    # Loading a missing file would raise an error about that file instead of the configuration.
    is_missing_file = reference.endswith(_YAML_ENDINGS) and not Path(reference).is_file()
    if is_missing_file:
        problem = "there is no such file; name an ID, ID@VERSION or a YAML file that exists"
        raise settings.build_error(section, "rubric", problem, project)

    # Retrieval selects memories, and all other sections need scores.
    kind = SelectRubric if section == "retrieval" else ScoreRubric
    try:
        return find_rubric(reference, project, kinds=(kind,))
    except UsageError as error:
        # The configuration can be part of an untrusted repository, so don't show its text.
        problem = _hide_reference(str(error), reference)
        raise settings.build_error(section, "rubric", problem, project) from None


def _hide_reference(message: str, reference: str) -> str:
    """Remove the configured reference from an error message.

    "no rubric 'x'" becomes "no rubric of that name", and "'x' isn't a path" becomes "the value isn't a path".
    """
    quoted = repr(reference)
    message = message.replace(f" {quoted}", " of that name")
    return message.replace(quoted, "the value")


def load_rubric(path: Path, origin: Origin = "path") -> LoadedRubric:
    """Read and check a rubric file.

    Raises `ConfigError` if the file is invalid, has the wrong name, or differs from the published rubric with
    its id and version.
    """
    if origin == "project":
        # The file must not be a link out of the project.
        project = path.parents[2]  # the path is PROJECT/.judgekit/rubrics/FILE
        yamlfile.check_project_file(path, project)

    rubric = yamlfile.read_model(path, RubricFile, version_key="rubric").root
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    _check_unchanged(rubric, digest, path)

    if origin != "path":  # a file that's given by its path may have any name
        _check_file_name(rubric, path)
    return LoadedRubric(rubric, path, digest, origin)


def _check_unchanged(rubric: Rubric, digest: str, path: Path) -> None:
    """Raise `ConfigError` if the rubric is published, but with another digest."""
    published_digest = read_published().get(rubric.ref)
    if published_digest is None:
        return
    if published_digest != digest:
        problem = f"{rubric.ref} is published with different content; give the changed rubric a new version"
        raise ConfigError(problem, path=path, key="version")


def _check_file_name(rubric: Rubric, path: Path) -> None:
    """Raise `ConfigError` if the file isn't called ID@VERSION.yaml."""
    if path.name != f"{rubric.ref}.yaml":
        raise ConfigError(
            f"holds {rubric.ref}; name the file {rubric.ref}.yaml", path=path, key="rubric"
        )


def get_companion_path(rubric_path: Path, what: Literal["cases", "leniency"]) -> Path:
    """Return the path of the labelled cases or wrong texts next to a rubric.

    For `NAME.yaml`, that's `NAME.cases.jsonl` or `NAME.leniency.jsonl`.
    """
    return rubric_path.with_name(f"{rubric_path.stem}.{what}.jsonl")


def read_cases(loaded: LoadedRubric) -> list[Case]:
    """Read a rubric's labelled cases; [] if there's no file.

    Raises `ConfigError` with the line and key of an invalid case.
    """
    path = get_companion_path(loaded.path, "cases")
    if path.is_file():
        return yamlfile.read_lines(path, CASES[loaded.rubric.task])
    return []


def read_wrong_cases(loaded: LoadedRubric) -> list[WrongCase]:
    """Read a rubric's wrong texts: those that a judge should reject. They show how lenient it is.

    Returns [] if there's no file, or if the rubric doesn't score. Raises `ConfigError` with the line and key
    of an invalid text.
    """
    path = get_companion_path(loaded.path, "leniency")
    if isinstance(loaded.rubric, ScoreRubric) and path.is_file():
        return yamlfile.read_lines(path, WrongCase)
    return []


def create_rubric(
    name: str, to: Path, *, task: Starter = "score", like: LoadedRubric | None = None
) -> list[Path]:
    """Create a rubric called `name` (ID or ID@VERSION) in the folder `to`, and return the new files' paths.

    It's a copy of `like`, or by default of the starter rubric for `task`. Also writes a JSON schema for
    editors. Raises `UsageError` if the name is malformed or taken, and `ConfigError` if a file can't be
    written.
    """
    ref = _complete_reference(name)
    source = like.path if like else files.get_data_folder("rubrics") / "starters" / f"{task}.yaml"
    cases_text = _read_cases_text(source)

    contents = {  # by path
        to / f"{ref}.yaml": _read_renamed(source, ref),
        to / f"{ref}.cases.jsonl": cases_text,
    }
    _check_none_exists(contents)

    # All rubrics in the folder share the schema, so it may exist already.
    schema = to / _SCHEMA_FILE
    if not schema.exists():
        contents[schema] = json.dumps(RubricFile.model_json_schema(), indent=2) + "\n"

    _write_files(contents)
    return list(contents)


def _complete_reference(name: str) -> str:
    """Return ID@VERSION for a new rubric's name, with the version 1.0.0 if it has none.

    Raises `UsageError` if the name is malformed or published already.
    """
    ref = name if "@" in name else f"{name}@1.0.0"
    if not _RUBRIC_REFERENCE_PATTERN.fullmatch(ref):
        wanted = "small letters, digits and hyphens; three numbers"
        raise UsageError(f"{name!r} is neither ID nor ID@VERSION ({wanted})")
    if ref in read_published():
        raise UsageError(f"{ref} is published and cannot change; choose another id or version")
    return ref


def _read_cases_text(rubric_path: Path) -> str:
    """Read the text of a rubric's labelled cases; "" if there's no such file."""
    path = get_companion_path(rubric_path, "cases")
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return ""


def _check_none_exists(paths: Iterable[Path]) -> None:
    """Raise `UsageError` if one of the files exists already."""
    for path in paths:
        if path.exists():
            raise UsageError(
                f"{path} already exists; choose another id or version, or edit that file"
            )


def _write_files(contents: Mapping[Path, str]) -> None:
    """Write the files and any missing folders. Raises `ConfigError` if that fails."""
    for file, content in contents.items():
        try:
            # A rubric isn't private, so the user's umask decides who may read a new folder.
            outputs.make_folder(str(file.parent), mode=0o777)
            outputs.write_atomically(str(file), content)
        except OSError as error:
            raise ConfigError(f"cannot be written ({error.strerror})", path=file) from None


def _read_renamed(source: Path, ref: str) -> str:
    """Read a rubric file, and return its text with the id and version of `ref` (ID@VERSION).

    Raises `ConfigError` if the file's layout doesn't allow the replacement.
    """
    rubric_id, _, version = ref.partition("@")

    # Edit the text rather than the parsed data, to preserve comments and layout.
    text = _add_missing_version(source.read_text(encoding="utf-8"))
    text = _replace_value(text, "rubric", rubric_id)
    text = _replace_value(text, "version", version)
    if not text.startswith(_MODELINE):
        text = _MODELINE + text  # tells editors where the JSON schema is

    # In an unusual layout, the edits can miss the values or change other lines.
    if not _is_named(text, rubric_id, version):
        raise ConfigError("cannot rename a rubric with this layout; copy it by hand", path=source)
    return text


def _add_missing_version(text: str) -> str:
    """Add the line `version: 1.0.0` after the line `rubric: ID`, if a rubric's text has no version."""
    has_version = re.search("^version:", text, re.MULTILINE)
    if has_version:
        return text
    id_line = re.compile("^(rubric: .*)$", re.MULTILINE)
    return id_line.sub(r"\1\nversion: 1.0.0", text, count=1)


def _replace_value(text: str, key: str, value: str) -> str:
    """Replace the value in the first line `KEY: ...` of a YAML text."""
    key_line = re.compile(rf"^{key}: .*$", re.MULTILINE)
    return key_line.sub(f"{key}: {value}", text, count=1)


def _is_named(text: str, rubric_id: str, version: str) -> bool:
    """Whether a rubric's text, when parsed, has this id and version."""
    from judgekit.config import yaml_text  # noqa: PLC0415 - imported lazily because it's rarely needed

    # A line such as `version: 1.0.0` can also be part of a multi-line string, so parse the text to be sure.
    data = yaml_text.parse_yaml(text)
    has_id = str(data.get("rubric")) == rubric_id
    has_version = str(data.get("version")) == version
    return has_id and has_version
